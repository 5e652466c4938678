"""``stallward fidelity``: how far the twin is off, arm by arm, each arm left out of its fit.

For every scenario and arm that was recorded, a twin is fitted to the scenario's other
recordings; that twin runs the arm (the controller itself, closed loop, not a replay) and its
latencies and background work are laid beside the recorded ones. Errors are ``|ln(twin/live)|``.
Beside them stands the noise floor: the same figure between two live recordings of the arm, or
between the halves of the only one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.errors import StallwardError
from stallward.env.recording import RunInfo, load_run
from stallward.env.scenario_file import load_scenario
from stallward.env.twin.fitted import FittedTwin
from stallward.evaluation.arms import make_arms
from stallward.evaluation.compare import find_policy_of
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.measure import BlockMeasures, measure_recording
from stallward.evaluation.node_facts import node_info
from stallward.evaluation.pipeline import fit_recordings, recordings_of
from stallward.evaluation.progress import Report, part, silent
from stallward.evaluation.runs import RunRequest
from stallward.evaluation.simulate import TwinRunner
from stallward.evaluation.statistics import (
    bootstrap_quantiles,
    moving_block_counts,
    pooled_quantiles,
)

Array = NDArray[np.float64]
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_TWIN_BLOCKS: Final = 4
"""Twin blocks per arm: so many draws of parameters and arrivals."""
_RESAMPLES: Final = 400
_IDLE_ERROR: Final = float(np.log(10.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A live recording of an arm."""

    path: Path
    run: RunInfo
    measures: BlockMeasures


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFidelity:
    """Twin against live for one arm that the fit did not see."""

    scenario: str
    arm: str
    live_ms: Mapping[str, float]
    twin_ms: Mapping[str, float]
    errors: Mapping[str, float]
    """``|ln(twin/live)|`` of p50, p95, p99 and ``work`` (units/s; mean of the groups' errors)."""
    floor: Mapping[str, float]
    """Live against live, the same measures."""

    def as_json(self) -> dict[str, Any]:
        """The form ``--json`` prints."""
        return {
            "scenario": self.scenario,
            "arm": self.arm,
            "live_ms": dict(self.live_ms),
            "twin_ms": dict(self.twin_ms),
            "errors": {name: _finite(value) for name, value in self.errors.items()},
            "floor": {name: _finite(value) for name, value in self.floor.items()},
        }


def measure_fidelity(
    recordings: Path,
    *,
    seconds: float = 30.0,
    scenario: str = "",
    seed: int = 1,
    report: Report = silent,
) -> dict[str, Any]:
    """Measure the fidelity of twins fitted to ``recordings``.

    Raises:
        EvaluationError: If there are not two arms of any scenario.
        RecordingError: If a recording cannot be opened.
    """
    found = load_recorded(recordings, scenario)
    jobs = [
        (name, arm)
        for name in dict.fromkeys(r.run.scenario for r in found)
        for arm in _arms(found, name)
        if len(_arms(found, name)) >= 2
    ]
    if not jobs:
        raise EvaluationError(
            f"{recordings} holds no scenario with two arms or more.",
            next_step="Record some with `stallward record`, or name another directory.",
        )
    rows: list[ArmFidelity] = []
    for number, (name, arm) in enumerate(jobs):
        step = part(report, number / len(jobs), (number + 1) / len(jobs))
        step(f"{name} without {arm}", 0.0)
        rows.append(_left_out(found, name, arm, seconds=seconds, seed=seed, report=step))
    report("done", 1.0)
    return {"schema": 1, "arms": [row.as_json() for row in rows], **summary(rows, found)}


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
    return [Recorded(path=p, run=r, measures=measure_recording(p)) for p, r in chosen]


def _arms(found: Sequence[Recorded], scenario: str) -> list[str]:
    """Arms of a scenario that ran together with the background and can be run on the twin."""
    names = dict.fromkeys(
        r.run.arm for r in found if r.run.scenario == scenario and r.run.condition == "together"
    )
    return [name for name in names if _can_run(name)]


def _can_run(label: str) -> bool:
    try:
        return (
            find_policy_of(make_arms([label])[0], "default") is not None
            or not make_arms([label])[0].runs_policy
        )
    except StallwardError:
        return False


def _left_out(
    found: Sequence[Recorded],
    scenario: str,
    arm: str,
    *,
    seconds: float,
    seed: int,
    report: Report,
) -> ArmFidelity:
    mine = [r for r in found if r.run.scenario == scenario]
    live = [r for r in mine if r.run.arm == arm and r.run.condition == "together"]
    rest = [r.path for r in mine if r not in live]
    twin = fit_recordings(rest, seconds=seconds, seed=seed, report=part(report, 0.0, 0.9))
    report(f"{scenario}: {arm} on the twin", 0.9)
    simulated = run_on_twin(twin, live[0].run, arm, blocks=_TWIN_BLOCKS, seed=seed)
    observed = [r.measures for r in live]
    live_ms, twin_ms = _latencies(observed), _latencies(simulated)
    errors = {name: _log_error(twin_ms[name], live_ms[name]) for name in QUANTILES}
    errors["work"] = _work_error(_units_per_s(simulated), _units_per_s(observed))
    return ArmFidelity(
        scenario=scenario,
        arm=arm,
        live_ms=live_ms,
        twin_ms=twin_ms,
        errors=errors,
        floor=noise_floor(observed),
    )


def run_on_twin(
    twin: FittedTwin, run: RunInfo, arm: str, *, blocks: int, seed: int
) -> list[BlockMeasures]:
    """Run an arm on a twin as it was run live: same target, same length, ``blocks`` times."""
    runner = TwinRunner(
        twin=twin, scenario=load_scenario(run.scenario), node=node_info(Path.cwd())
    )
    chosen = make_arms([arm])[0]
    policy = find_policy_of(chosen, "default")
    measures = []
    with tempfile.TemporaryDirectory(prefix="stallward-") as folder:
        for block in range(blocks):
            out = Path(folder) / f"{block}"
            request = RunRequest(
                condition="together",
                arm=chosen,
                policy=policy,
                slo_ms=run.slo_ms,
                duration_s=run.end_s - run.measured_from_s,
                burn_in_s=run.burn_in_s,
                seed=seed + block,
            )
            runner.run_block(request, out)
            measures.append(measure_recording(out))
    return measures


def noise_floor(observed: Sequence[BlockMeasures]) -> dict[str, float]:
    """Live against live: between two recordings, or between the halves of the only one."""
    if len(observed) >= 2:
        one, two = _latencies(observed[:1]), _latencies(observed[1:2])
        work = _work_error(_units_per_s(observed[:1]), _units_per_s(observed[1:2]))
    else:
        only = observed[0]
        late = only.scheduled_s >= only.duration_s / 2
        one, two = (_quantiles([only.latency_ms[~late]]), _quantiles([only.latency_ms[late]]))
        half = only.windows // 2
        work = _work_error(only.units[:half].mean(axis=0), only.units[half:].mean(axis=0))
    return {**{name: _log_error(one[name], two[name]) for name in QUANTILES}, "work": work}


def _latencies(blocks: Sequence[BlockMeasures]) -> dict[str, float]:
    return _quantiles([block.latency_ms for block in blocks])


def _quantiles(pools: Sequence[Array]) -> dict[str, float]:
    values = pooled_quantiles(pools, list(QUANTILES.values()))
    return {name: float(value) for name, value in zip(QUANTILES, values, strict=True)}


def _units_per_s(blocks: Sequence[BlockMeasures]) -> Array:
    """Of each group."""
    return np.asarray(np.concatenate([block.units for block in blocks]).mean(axis=0))


def _work_error(twin: Array, live: Array) -> float:
    """Mean over groups of the error of each, so that opposite errors do not cancel.

    A group that did nothing in one of them is off by a factor without bound, which counts as 10.
    """
    if twin.shape != live.shape:
        return float("nan")
    errors = []
    for here, there in zip(twin, live, strict=True):
        idle = (here > 0) != (there > 0) and np.isfinite(here) and np.isfinite(there)
        errors.append(_IDLE_ERROR if idle else _log_error(float(here), float(there)))
    known = [error for error in errors if np.isfinite(error)]
    return float(np.mean(known)) if known else float("nan")


def _log_error(twin: float, live: float) -> float:
    if not (np.isfinite(twin) and np.isfinite(live)) or twin <= 0 or live <= 0:
        return float("nan")
    return float(abs(np.log(twin / live)))


def spearman(x: Array, y: Array) -> float:
    """Rank correlation; NaN for fewer than 3 pairs or no variation."""
    if x.size < 3:
        return float("nan")
    ranks = [_ranks(v) for v in (x, y)]
    spread = ranks[0].std() * ranks[1].std()
    if spread == 0:
        return float("nan")
    return float(np.mean((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())) / spread)


def _ranks(values: Array) -> Array:
    """Ranks from 0, ties sharing their mean."""
    below = (values[:, None] > values[None, :]).sum(axis=1)
    same = (values[:, None] == values[None, :]).sum(axis=1)
    return np.asarray(below + (same - 1) / 2.0, dtype=np.float64)


def _sure_sign(arm: Sequence[BlockMeasures], none: Sequence[BlockMeasures]) -> int:
    """Sign of the live effect on p95; 0 where its interval holds zero."""
    rng = np.random.default_rng(0)
    draws = []
    for blocks in (arm, none):
        windows = [pool for block in blocks for pool in block.latency_windows()]
        counts = moving_block_counts(len(windows), 5, _RESAMPLES, rng)
        draws.append(bootstrap_quantiles(windows, [0.95], counts)[:, 0])
    low, high = np.nanquantile(np.log(draws[0] / draws[1]), [0.025, 0.975])
    return int(np.sign(low)) if low * high > 0 else 0


def summary(rows: Sequence[ArmFidelity], found: Sequence[Recorded]) -> dict[str, Any]:
    """Median and worst errors, signs of effects and rank correlation per scenario."""
    names = (*QUANTILES, "work")
    errors = {n: np.array([r.errors[n] for r in rows], dtype=np.float64) for n in names}
    scenarios: dict[str, Any] = {}
    for name in dict.fromkeys(row.scenario for row in rows):
        mine = [row for row in rows if row.scenario == name]
        live = np.array([row.live_ms["p95"] for row in mine])
        twin = np.array([row.twin_ms["p95"] for row in mine])
        right, counted = _signs(mine, found)
        scenarios[name] = {
            "spearman_p95": _finite(spearman(live, twin)),
            "effects_right": right,
            "effects_counted": counted,
        }
    return {
        "median": {n: _finite(float(np.nanmedian(e))) for n, e in errors.items()},
        "worst": {n: _finite(float(np.nanmax(e))) for n, e in errors.items()},
        "scenarios": scenarios,
    }


def _signs(rows: Sequence[ArmFidelity], found: Sequence[Recorded]) -> tuple[int, int]:
    """Effects against ``none`` whose live interval excludes zero: how many the twin has right."""
    none = next((row for row in rows if row.arm == "none"), None)
    if none is None:
        return 0, 0
    right = counted = 0

    def live(arm: str) -> list[BlockMeasures]:
        return [
            r.measures
            for r in found
            if (r.run.scenario, r.run.arm, r.run.condition) == (none.scenario, arm, "together")
        ]

    for row in rows:
        sign = _sure_sign(live(row.arm), live("none")) if row.arm != "none" else 0
        if sign:
            counted += 1
            # A twin without a latency has no sign right: NaN equals nothing.
            right += bool(np.sign(np.log(row.twin_ms["p95"] / none.twin_ms["p95"])) == sign)
    return right, counted


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def fidelity_rows(
    found: Mapping[str, Any],
) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """Headers, rows and closing lines of the table."""
    headers = (
        "scenario",
        "arm left out",
        "p95 live ms",
        "p95 twin ms",
        "err p50",
        "err p95",
        "err p99",
        "err work",
        "floor p95",
    )
    rows = [
        (
            row["scenario"],
            row["arm"],
            f"{row['live_ms']['p95']:.1f}",
            f"{row['twin_ms']['p95']:.1f}",
            *(_shown(row["errors"][name]) for name in (*QUANTILES, "work")),
            _shown(row["floor"]["p95"]),
        )
        for row in found["arms"]
    ]
    notes = [
        f"{what}: median error {_shown(found['median'][name])}, "
        f"worst {_shown(found['worst'][name])}"
        for name, what in (("p95", "p95"), ("p99", "p99"), ("work", "background work"))
    ]
    notes += [
        f"{name}: rank correlation of p95 {_shown(values['spearman_p95'])}, "
        f"{values['effects_right']} of {values['effects_counted']} certain effects with the "
        "right sign"
        for name, values in found["scenarios"].items()
    ]
    return headers, rows, notes


def _shown(value: float | None) -> str:
    return "-" if value is None or not np.isfinite(value) else f"{value:.2f}"
