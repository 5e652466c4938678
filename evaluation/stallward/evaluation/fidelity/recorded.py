"""The recordings that fidelity is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stallward.env.catalogue.find import recording_folders
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import RunInfo, load_run
from stallward.env.recording.split import load_split
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.fidelity.signals import Signals, signals_of
from stallward.evaluation.measures.block_measures import BlockMeasures, reduce, series_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A recording of an arm, live or on the twin, with its measures and signals."""

    path: Path
    run: RunInfo
    measures: BlockMeasures
    signals: Signals


RunsByScenario = Mapping[str, Sequence[MeasuredRun]]


def load_measured_runs(directory: Path, scenario: str = "") -> list[MeasuredRun]:
    """Load and measure all recordings below ``directory``.

    Raises:
        EvaluationError: If there is no recording.
        RecordingError: If one cannot be opened.
    """
    if not directory.is_dir():
        raise EvaluationError(
            f"There is no directory {directory}.", next_step="Name a directory of recordings."
        )
    runs = [(path, load_run(path)) for path in recording_folders([directory])]
    chosen = [(p, r) for p, r in runs if scenario in ("", r.scenario)]
    if not chosen:
        what = f" of {scenario!r}" if scenario else ""
        raise EvaluationError(
            f"There is no recording{what} below {directory}.",
            next_step="Record some with `stallward record`.",
        )
    return [measure_run(path, run) for path, run in chosen]


def measure_run(path: Path, run: RunInfo) -> MeasuredRun:
    """Load and measure the recording at ``path``."""
    recording = load_recording(path)
    measures = reduce(series_of(recording))
    return MeasuredRun(
        path=path, run=run, measures=measures, signals=signals_of(recording, measures)
    )


def training_and_held_out(by_scenario: RunsByScenario) -> tuple[RunsByScenario, RunsByScenario]:
    """The scenarios that twins may be fitted to, and the held-out ones that have references."""
    split = load_split()
    training = {n: runs for n, runs in by_scenario.items() if split.part_of_name(n) == "train"}
    held_out = {
        name: runs
        for name, runs in by_scenario.items()
        if name not in training and any(r.run.condition == "ample" for r in runs)
    }
    return training, held_out
