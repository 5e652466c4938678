"""The twin of a recording, without a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stallward.env.errors import RecordingError
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.twin.estimate.exogenous import estimate_exogenous
from stallward.env.twin.estimate.transfer import transfer
from stallward.env.twin.inputs.find import load_twins
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.models.registry import twin_names


def twin_of_recordings(folders: Sequence[str | Path]) -> FittedTwin:
    """Make a twin of what was recorded, within a second and without a fit.

    Its programs, sizes, requests and target are estimated from the recordings
    (:func:`~stallward.env.twin.estimate.exogenous.estimate_exogenous`). Its parameters are those
    of the shipped twin of that scenario or, without one, of all shipped twins, by how long their
    requests take (:func:`~stallward.env.twin.estimate.transfer.transfer`). ``stallward fit`` finds
    better ones.

    Args:
        folders: Folders of recordings of one scenario, at least one of the application together
            with the background. References, with ample memory or without background, say more
            about sizes and full speeds.

    Raises:
        RecordingError: If there is none, one cannot be read, they are of several scenarios, or
            none is of the application together with the background.
    """
    recordings = [load_recording(Path(folder)) for folder in folders]
    names = sorted({recording.run.scenario for recording in recordings})
    if len(names) != 1:
        raise RecordingError(
            f"A twin is made from recordings of one scenario, and these are of {len(names)}"
            f"{': ' if names else ''}{', '.join(names)}.",
            next_step="Name the folders of recordings of one scenario.",
        )
    (name,) = names
    described = estimate_exogenous(name, recordings)
    twin = transfer(described, load_twins([name] if name in twin_names() else None))
    return replace(twin, provenance={"described_by": _names(recordings)})


def _names(recordings: Sequence[Recording]) -> list[str]:
    return sorted(recording.path.name for recording in recordings)
