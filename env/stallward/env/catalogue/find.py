"""Finds recordings in places: directories of them, and catalogues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stallward.env.catalogue.files import MARKER
from stallward.env.catalogue.read import Catalogue
from stallward.env.errors import RecordingError
from stallward.env.recording.run_info import load_run
from stallward.env.recording.stored import RecordingFolder, Selection, StoredRecording

_URL: Final = "://"


def find_recordings(
    places: Sequence[str | Path], selection: Selection | None = None
) -> list[StoredRecording]:
    """Find the recordings that are selected. None of them is loaded.

    Args:
        places: Recordings, directories of them, catalogues, and URLs of catalogues.
        selection: Which recordings to take; by default all.

    Returns:
        The recordings: those of a directory by their paths, those of a catalogue by their time. One
        that several places have comes once.

    Raises:
        RecordingError: If a place does not exist, or a directory's recording cannot be opened.
        CatalogueError: If a catalogue is missing, damaged or of another version.
        StorageError: If the storage of a catalogue cannot be read.
    """
    chosen = selection or Selection()
    found: list[StoredRecording] = []
    for place in places:
        if _URL in str(place) or (Path(place) / MARKER).is_file():
            found += Catalogue(str(place)).recordings(chosen)
        else:
            folders = (RecordingFolder.open(path) for path in recording_folders([Path(place)]))
            found += [folder for folder in folders if chosen.takes(folder)]
    if len(places) < 2:
        return found
    once: dict[str, StoredRecording] = {}
    for recording in found:  # a catalogue may have those of a directory
        once.setdefault(recording.sha256(), recording)
    return list(once.values())


def recording_folders(places: Sequence[Path], scenario: str = "") -> list[Path]:
    """Find the directory of every recording in ``places``, once and in the order of their paths.

    Args:
        places: Recordings, or directories of them.
        scenario: The scenario whose recordings to take; empty for all.

    Raises:
        RecordingError: If a place does not exist, or a recording whose scenario is asked for
            cannot be opened.
    """
    recordings: list[Path] = []
    for place in places:
        if not place.is_dir():
            raise RecordingError(
                f"There is no directory {place}.",
                next_step="Name recordings, their directory, or a catalogue.",
            )
        inside = {file.parent for file in place.glob("**/run.json")}
        # The directory of a recording that is still being written is hidden.
        recordings += sorted(path for path in inside if not path.name.startswith("."))
    once = {path.resolve(): path for path in recordings}.values()
    return [path for path in once if not scenario or load_run(path).scenario == scenario]
