"""Finding recordings, splitting them by arm, and naming exactly what was used."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from stallward.env.errors import RecordingError
from stallward.env.recording import Recording, load_recording
from stallward.training.errors import DatasetError


def find_recordings(roots: Sequence[Path]) -> tuple[Path, ...]:
    """Recording directories at or below ``roots``.

    Raises:
        DatasetError: If there is none.
    """
    found: set[Path] = set()
    for root in roots:
        found.update(file.parent for file in root.glob("**/run.json"))
    visible = sorted(p for p in found if not p.name.startswith("."))
    if not visible:
        named = ", ".join(str(root) for root in roots) or "nothing"
        raise DatasetError(
            f"There are no recordings in {named}.",
            next_step="Record some with `stallward record`.",
        )
    return tuple(visible)


def load_recordings(
    roots: Sequence[Path], *, scenario: str | None = None, leave_out: str = ""
) -> tuple[Recording, ...]:
    """Valid recordings, without those of a scenario or arm not wanted.

    Raises:
        DatasetError: If none is left.
        RecordingError: If one is broken.
    """
    kept = []
    for path in find_recordings(roots):
        recording = load_recording(path)
        other = scenario is not None and recording.run.scenario != scenario
        if other or recording.run.oom_kills or (leave_out and recording.run.arm == leave_out):
            continue
        kept.append(recording)
    if not kept:
        raise DatasetError(
            "No recording fits: none of this scenario, or all left out or with OOM kills.",
            next_step="Record more, or leave out less.",
        )
    return tuple(kept)


def scenarios_of(recordings: Sequence[Recording]) -> tuple[str, ...]:
    """Names of the scenarios recorded, sorted."""
    return tuple(sorted({r.run.scenario for r in recordings}))


def dataset_hash(paths: Sequence[Path]) -> str:
    """SHA-256 over the contents of recordings, whatever the order of the paths.

    Raises:
        RecordingError: If a file cannot be read.
    """
    digests = []
    try:
        for path in paths:
            one = hashlib.sha256()
            for file in sorted(path.iterdir()):
                if file.suffix in {".parquet", ".json"}:
                    one.update(file.name.encode())
                    one.update(file.read_bytes())
            digests.append(one.hexdigest())
    except OSError as error:
        raise RecordingError(f"A recording cannot be read: {error}.") from error
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()
