"""Measures the border of a scenario: one live run that holds one loan after another."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from stallward.agent.errors import UsageError
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import load_run
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Target, states_target
from stallward.evaluation.blocks.record import RecordRequest, record_one
from stallward.research.border.controller import read_levels
from stallward.research.border.levels import LevelFigures, figures_of, work_ratios
from stallward.research.border.picture import draw
from stallward.training.progress import Report, silent

RECORDING: Final = "run"
_BURN_IN_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderRequest:
    """What to measure."""

    scenario: str
    levels: str | None = None
    """As the arm ``border`` names them; ``None`` for its own."""
    dwell_s: float = 60.0
    rounds: int = 1
    """How often each level is held."""
    seed: int = 1
    target: Target = "stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderResult:
    """The border of one scenario."""

    scenario: str
    target_ms: float
    target: Target
    """Whether the scenario stated the target."""
    groups: tuple[str, ...]
    levels: tuple[LevelFigures, ...]
    work_ratios: tuple[float, ...]
    """The work of all groups at each level over that at the first one, a geometric mean."""

    def to_json(self) -> dict[str, Any]:
        """The figures, with ``null`` for what is not known."""
        return {
            "scenario": self.scenario,
            "target_ms": self.target_ms,
            "target": self.target,
            "groups": list(self.groups),
            "levels": [
                {
                    **{key: _known(value) for key, value in asdict(level).items()},
                    "work_ratio": ratio,
                }
                for level, ratio in zip(self.levels, self.work_ratios, strict=True)
            ],
        }


def measure_border(request: BorderRequest, out: Path, report: Report = silent) -> BorderResult:
    """Record a run, unless ``out`` has it already, and write its figures and picture.

    Args:
        request: What to measure.
        out: A directory; ``run`` in it is the recording, ``border.json`` and ``border.svg`` are
            made of it.
        report: Called with the progress.

    Raises:
        StallwardError: If a level is none, this machine cannot run the scenario, or ``out`` has a
            run of another measurement.
    """
    arguments = {"levels": request.levels} if request.levels else {}
    count = len(read_levels(arguments))
    recording = out / RECORDING
    options = ",".join(
        [f"dwell_s={request.dwell_s:g}", *(f"{k}={v}" for k, v in arguments.items())]
    )
    wanted = RecordRequest(
        scenario=request.scenario,
        arm=f"border:{options}",
        seconds=request.rounds * count * request.dwell_s,
        burn_in_s=_BURN_IN_S,
        seed=request.seed,
        target=request.target,
    )
    if recording.exists():
        _check(recording, wanted)
    else:
        record_one(wanted, recording, report)
    result = border_of(recording)
    (out / "border.json").write_text(json.dumps(result.to_json(), indent=1) + "\n", "utf-8")
    (out / "border.svg").write_text(
        draw(result.scenario, result.levels, result.groups, result.target_ms),
        "utf-8",
    )
    return result


def _check(recording: Path, wanted: RecordRequest) -> None:
    """Refuse a run of another measurement, whose figures would not be those asked for.

    Raises:
        UsageError: If it is one.
    """
    run = load_run(recording)
    scenario = load_scenario(wanted.scenario).with_target(wanted.target)
    stated_ms = run.slo_ms if states_target(run.scenario_parameters) else None
    asked = (scenario.name, wanted.arm, wanted.seed, scenario.protected.slo.latency_ms)
    found = (run.scenario, run.arm, run.seed, stated_ms)
    other_length = abs(run.end_s - run.measured_from_s - wanted.seconds) > 1.0
    if found != asked or other_length:
        raise UsageError(
            f"{recording} is a run of another measurement: {run.arm} in {run.scenario}.",
            next_step="Name a new directory with --out, or repeat that command.",
        )


def border_of(recording: Path) -> BorderResult:
    """The border that a recording shows.

    Raises:
        StallwardError: If it is no recording, or one of another arm.
    """
    loaded = load_recording(recording)
    levels = figures_of(loaded)
    return BorderResult(
        scenario=loaded.run.scenario,
        target_ms=loaded.run.slo_ms,
        target="stated" if states_target(loaded.run.scenario_parameters) else "tight",
        groups=tuple(loaded.run.slot_names),
        levels=levels,
        work_ratios=work_ratios(levels, levels[0]),
    )


def _known(value: object) -> object:
    """JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
