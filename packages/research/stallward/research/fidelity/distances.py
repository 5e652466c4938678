"""The errors and distances of a twin's blocks from live ones: functions of measured blocks. Pure.

Errors are ``|ln(twin/live)|``: 0.1 is about 10 %. If a figure is unknown or 0 on one side only,
the factor has no bound and counts as 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

import numpy as np

from stallward.evaluation.measures.block_measures import Array
from stallward.evaluation.measures.bootstrap import (
    RUN_WINDOWS,
    bootstrap_quantiles,
    moving_block_counts,
)
from stallward.research.fidelity.observed import Half, Observed, QuantilesMs, quantiles_ms
from stallward.research.fidelity.result import (
    ArmRow,
    Distances,
    Errors,
    FidelitySummary,
    Latencies,
    ScenarioFidelity,
)
from stallward.research.fidelity.signals import Signals, distances, halves, pooled

# ---------- The effects between arms, and whether their signs on the twin are right.

_RESAMPLES: Final = 400
_INTERVAL: Final = (0.025, 0.975)


def count_signs(arms: Sequence[tuple[Observed, Observed]]) -> tuple[int, int]:
    """Count the effects on p95 and on background work between all pairs of arms.

    An effect is certain if its live 95 % interval excludes zero. The interval comes from
    resampling the seconds of all blocks of an arm, in runs.

    Args:
        arms: The blocks of each arm, live and on the twin.

    Returns:
        How many certain effects have the right sign on the twin, and how many there are.
    """
    rng = np.random.default_rng(0)
    draws = [_draws(live, rng) for live, _ in arms]
    predicted = [_predicted(twin) for _, twin in arms]
    right = counted = 0
    for one, two in combinations(range(len(arms)), 2):
        for measure in range(len(predicted[one])):
            sign = _sure_sign(draws[one][measure] - draws[two][measure])
            if sign:
                counted += 1
                # An unknown figure of the twin counts as a wrong sign: NaN equals nothing.
                difference = predicted[one][measure] - predicted[two][measure]
                right += bool(np.sign(difference) == sign)
    return right, counted


def _draws(live: Observed, rng: np.random.Generator) -> tuple[Array, Array]:
    """Bootstrap draws of the logarithm of p95, and of the background work."""
    windows = [pool for block in live.blocks for pool in block.latency_windows()]
    counts = moving_block_counts(len(windows), RUN_WINDOWS, _RESAMPLES, rng)
    with np.errstate(divide="ignore"):
        p95 = np.log(bootstrap_quantiles(windows, [0.95], counts)[:, 0])
    units = np.concatenate([block.units for block in live.blocks])
    counts = moving_block_counts(len(units), RUN_WINDOWS, _RESAMPLES, rng)
    return p95, np.array([live.work_of(np.repeat(units, row, axis=0)) for row in counts])


def _predicted(twin: Observed) -> tuple[float, float]:
    """The logarithm of p95 and the background work on the twin."""
    units = np.concatenate([block.units for block in twin.blocks])
    return float(np.log(twin.latency_ms.p95)), twin.work_of(units)


def _sure_sign(differences: Array) -> int:
    """The sign of an effect; 0 if its interval contains zero, or too little is known."""
    known = differences[np.isfinite(differences)]
    if len(known) < len(differences) / 2:
        return 0
    low, high = np.quantile(known, _INTERVAL)
    return int(np.sign(low)) if low * high > 0.0 else 0


_UNKNOWN_ERROR: Final = float(np.log(10.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmErrors:
    """Errors of latency and work; NaN if both sides are unknown."""

    p50: float
    p95: float
    p99: float
    work: float

    def known(self) -> Errors:
        """These errors as results hold them: ``None`` for what is unknown."""
        return Errors(
            p50=finite(self.p50),
            p95=finite(self.p95),
            p99=finite(self.p99),
            work=finite(self.work),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFidelity:
    """Twin against live for one arm, which a fit may have left out."""

    scenario: str
    arm: str
    live: Observed
    twin: Observed
    replay: Signals | None = None
    """The prediction of naive replay: what was recorded under ``none``, whatever the arm does."""
    scales: Mapping[str, float] = field(default_factory=dict)
    """The variation of each signal over the scenario's live runs."""

    @property
    def errors(self) -> ArmErrors:
        """The errors of the twin."""
        return _errors(
            Half(latency_ms=self.twin.latency_ms, work=self.twin.work),
            Half(latency_ms=self.live.latency_ms, work=self.live.work),
        )

    @property
    def floor(self) -> ArmErrors:
        """The errors of live against live: two recordings, or the halves of a single one."""
        return noise_floor(self.live)

    @property
    def twin_distances(self) -> dict[str, float]:
        """Name of a signal -> distance of the twin from live."""
        return distances(pooled(self.live.signals), pooled(self.twin.signals), self.scales)

    @property
    def replay_distances(self) -> dict[str, float]:
        """Name of a signal -> distance of naive replay from live; empty for the replayed arm."""
        if self.replay is None:
            return {}
        return distances(pooled(self.live.signals), self.replay, self.scales)

    @property
    def floor_distances(self) -> dict[str, float]:
        """Name of a signal -> distance of live from live: two recordings, or the halves of one."""
        runs = self.live.signals
        if not runs:
            return {}
        one, two = (runs[0], runs[1]) if len(runs) > 1 else halves(runs[0])
        return distances(one, two, self.scales)

    @property
    def covered(self) -> dict[str, bool]:
        """Figure -> whether its live value lies within the range of the twin's blocks."""
        live, blocks = self.live.latency_ms, self.twin.blocks
        predicted = [quantiles_ms([block.latency_ms]) for block in blocks]
        inside = {
            "p50": _within_range(live.p50, [one.p50 for one in predicted]),
            "p95": _within_range(live.p95, [one.p95 for one in predicted]),
            "p99": _within_range(live.p99, [one.p99 for one in predicted]),
        }
        if self.live.own_units_per_s is not None:
            inside["work"] = _within_range(
                float(self.live.work[0]), [self.twin.work_of(block.units) for block in blocks]
            )
        return inside

    def row(self) -> ArmRow:
        """The arm as results hold it."""
        relative = self.live.own_units_per_s is not None
        return ArmRow(
            scenario=self.scenario,
            arm=self.arm,
            live_ms=_latencies(self.live.latency_ms),
            twin_ms=_latencies(self.twin.latency_ms),
            live_work=finite(self.live.work[0]) if relative else None,
            twin_work=finite(self.twin.work[0]) if relative else None,
            errors=self.errors.known(),
            floor=self.floor.known(),
            covered=self.covered,
            distances=Distances(
                twin=self.twin_distances,
                replay=self.replay_distances,
                floor=self.floor_distances,
            ),
        )


def noise_floor(live: Observed) -> ArmErrors:
    """The errors of live against live: two recordings, or the halves of a single one."""
    return _errors(*live.halves())


def summarise_fidelity(arms: Sequence[ArmFidelity]) -> FidelitySummary:
    """Summarise all arms: errors, distances, coverage, signs of effects, ranks per scenario."""
    errors, floors = [arm.errors for arm in arms], [arm.floor for arm in arms]
    scenarios = {
        name: _scenario([arm for arm in arms if arm.scenario == name])
        for name in dict.fromkeys(arm.scenario for arm in arms)
    }
    counted = sum(each.effects_counted for each in scenarios.values())
    right = sum(each.effects_right for each in scenarios.values())
    ranks = [each.spearman for each in scenarios.values() if each.spearman is not None]
    covered = [inside for arm in arms for inside in arm.covered.values()]
    return FidelitySummary(
        p95_error_median=_median([one.p95 for one in errors]),
        p95_error_worst=_worst([one.p95 for one in errors]),
        p99_error_median=_median([one.p99 for one in errors]),
        p99_error_worst=_worst([one.p99 for one in errors]),
        background_error_median=_median([one.work for one in errors]),
        background_error_worst=_worst([one.work for one in errors]),
        p95_floor_median=_median([one.p95 for one in floors]),
        p99_floor_median=_median([one.p99 for one in floors]),
        effect_signs_right=right / counted if counted else None,
        effects_counted=counted,
        spearman=float(np.median(ranks)) if ranks else None,
        spearman_worst=min(ranks, default=None),
        distance_vs_replay=_ratio([(a.twin_distances, a.replay_distances) for a in arms]),
        distance_vs_noise_floor=_ratio([(a.twin_distances, a.floor_distances) for a in arms]),
        covered=float(np.mean(covered)) if covered else None,
        scenarios=scenarios,
    )


def _scenario(arms: Sequence[ArmFidelity]) -> ScenarioFidelity:
    live_ms = np.array([arm.live.latency_ms.p95 for arm in arms])
    twin_ms = np.array([arm.twin.latency_ms.p95 for arm in arms])
    right, counted = count_signs([(arm.live, arm.twin) for arm in arms])
    return ScenarioFidelity(
        spearman=finite(spearman(live_ms, twin_ms)),
        effects_right=right,
        effects_counted=counted,
    )


def _ratio(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> float | None:
    """The median over arms of the ratio of mean distances, over the signals that both have."""
    ratios = []
    for one, two in pairs:
        both = [name for name in one if name in two]
        other = sum(two[name] for name in both)
        if other > 0.0:
            ratios.append(sum(one[name] for name in both) / other)
    return float(np.median(ratios)) if ratios else None


def _within_range(value: float, others: Sequence[float]) -> bool:
    """Whether ``value`` lies between the smallest and the largest of ``others``."""
    return bool(min(others) <= value <= max(others)) if len(others) else False


def _median(errors: Sequence[float]) -> float | None:
    known = [error for error in errors if np.isfinite(error)]
    return float(np.median(known)) if known else None


def _worst(errors: Sequence[float]) -> float | None:
    return max((error for error in errors if np.isfinite(error)), default=None)


def _errors(one: Half, two: Half) -> ArmErrors:
    return ArmErrors(
        p50=log_error(one.latency_ms.p50, two.latency_ms.p50),
        p95=log_error(one.latency_ms.p95, two.latency_ms.p95),
        p99=log_error(one.latency_ms.p99, two.latency_ms.p99),
        work=_work_error(one.work, two.work),
    )


def _work_error(twin: Array, live: Array) -> float:
    """The mean of the errors of all entries, so that opposite errors do not cancel."""
    if twin.shape != live.shape:
        return float("nan")
    errors = [
        log_error(float(on_twin), float(on_node))
        for on_twin, on_node in zip(twin, live, strict=True)
    ]
    known = [error for error in errors if np.isfinite(error)]
    return float(np.mean(known)) if known else float("nan")


def log_error(twin: float, live: float) -> float:
    """``|ln(twin/live)|``; the logarithm of 10 if only one of them is known and above 0."""
    usable = [bool(np.isfinite(value) and value > 0) for value in (twin, live)]
    if not all(usable):
        return _UNKNOWN_ERROR if any(usable) else float("nan")
    return float(abs(np.log(twin / live)))


def _latencies(latency_ms: QuantilesMs) -> Latencies:
    return Latencies(
        p50=finite(latency_ms.p50), p95=finite(latency_ms.p95), p99=finite(latency_ms.p99)
    )


def spearman(x: Array, y: Array) -> float:
    """The rank correlation of the known pairs; NaN for fewer than 3, or without variation."""
    from scipy.stats import spearmanr  # noqa: PLC0415 - takes a second to import

    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if x.size < 3 or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return float("nan")
    return float(spearmanr(x, y).statistic)


def finite(value: float) -> float | None:
    """``value``, or ``None`` if it is unknown."""
    return float(value) if np.isfinite(value) else None
