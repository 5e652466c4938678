"""The recordings that a measure of fidelity lays twins beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import RunInfo, load_run
from stallward.env.recording.split import load_split
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.fidelity.signals import Signals, signals_of
from stallward.evaluation.measures.block_measures import BlockMeasures, reduce, series_of
from stallward.training.pipeline.recordings import recordings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A live recording of an arm."""

    path: Path
    run: RunInfo
    measures: BlockMeasures
    signals: Signals


ByScenario = Mapping[str, Sequence[Recorded]]


def load_recorded(directory: Path, scenario: str = "") -> list[Recorded]:
    """All recordings below ``directory``, measured.

    Raises:
        EvaluationError: If there is none.
        RecordingError: If one cannot be opened.
    """
    if not directory.is_dir():
        raise EvaluationError(
            f"There is no directory {directory}.", next_step="Name a directory of recordings."
        )
    runs = [(path, load_run(path)) for path in recordings_of([directory])]
    chosen = [(p, r) for p, r in runs if scenario in ("", r.scenario)]
    if not chosen:
        what = f" of {scenario!r}" if scenario else ""
        raise EvaluationError(
            f"There is no recording{what} below {directory}.",
            next_step="Record some with `stallward record`.",
        )
    return [_recorded(path, run) for path, run in chosen]


def _recorded(path: Path, run: RunInfo) -> Recorded:
    recording = load_recording(path)
    measures = reduce(series_of(recording))
    return Recorded(path=path, run=run, measures=measures, signals=signals_of(recording, measures))


def _divided(found: ByScenario) -> tuple[ByScenario, ByScenario]:
    """The scenarios that twins may be fitted to, and held-out ones that have references."""
    split = load_split()
    learned = {n: mine for n, mine in found.items() if split.part_of_name(n) == "train"}
    strange = {
        name: mine
        for name, mine in found.items()
        if name not in learned and any(r.run.condition == "ample" for r in mine)
    }
    return learned, strange
