"""The recordings that a fit or a training may use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from stallward.env.errors import SplitError
from stallward.env.recording.split import Part, choose_part
from stallward.env.recording.stored import Stored, StoredRecording
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.errors import TrainingError
from stallward.training.progress import Report, silent
from stallward.training.twin_fit.fit import FitSettings, fit_scenario

PART_USES: Final = {"train": "learn from", "validation": "choose by", None: "look at"}
"""What the twins of a part of the split are for, in words."""


def fit_recordings(
    recordings: Sequence[StoredRecording],
    *,
    seconds: float = math.inf,
    generations: int | None = None,
    seed: int = 1,
    start: FittedTwin | None = None,
    report: Report = silent,
) -> FittedTwin:
    """Fit a twin to recordings of one scenario.

    Args:
        recordings: The recordings; a few of them are in memory at a time.
        seconds: The most time for the fit.
        generations: The most generations, by default those of ``FitSettings``.
        seed: The seed of the search.
        start: A twin from which the search starts.
        report: Called with the progress.

    Raises:
        TrainingError: If there is no recording, or they are of several scenarios.
        RecordingError: If they are not enough to describe the scenario.
    """
    scenarios = sorted({recording.scenario for recording in recordings})
    if len(scenarios) != 1:
        raise TrainingError(
            f"One twin cannot be fitted to {len(scenarios)} scenarios ({', '.join(scenarios)})."
        )
    _check_units(recordings)
    settings = FitSettings(max_seconds=seconds, seed=seed)
    if generations is not None:
        settings = replace(settings, generations=generations)
    return fit_scenario(recordings, settings, report, start=start)


def _check_units(recordings: Sequence[StoredRecording]) -> None:
    """Refuse recordings whose work does not compare.

    Raises:
        TrainingError: If a slot's work was counted in different units.
    """
    units = {recording.run().slot_units for recording in recordings} - {()}
    if len(units) > 1:
        listed = " and ".join(sorted("/".join(one) for one in units))
        raise TrainingError(
            f"The work in these recordings was counted in different units: {listed}.",
            next_step="Fit a twin to those with one [background.work] for each slot.",
        )


def drop_held_out(
    recordings: Sequence[Stored],
    *,
    parts: Sequence[Part] = ("train",),
    held_out: bool = False,
    report: Report = silent,
) -> Sequence[Stored]:
    """Drop the recordings of held-out scenarios, and report which they are.

    Args:
        recordings: The recordings.
        parts: The parts of the split whose recordings are kept.
        held_out: Keep all recordings.
        report: Called with a note about what was dropped.

    Raises:
        SplitError: If all of them are held out.
    """
    if held_out:
        return recordings
    chosen = choose_part(recordings, parts)
    if chosen.left_out and not chosen.kept:
        raise SplitError(
            f"All these recordings are held out: {chosen.note}.",
            next_step="Name recordings to train on; --held-out fits a twin to look at, "
            "which `stallward train` does not take.",
        )
    if chosen.left_out:
        report(chosen.note, 0.0)
    return chosen.kept
