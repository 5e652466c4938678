"""How far a twin's blocks are from live ones: pure functions of measured blocks.

Errors are ``|ln(twin/live)|``: 0.1 is about 10 %. What is unknown or nothing on one side alone is
off by a factor without bound, which counts as 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from stallward.evaluation.fidelity.effects import count_signs
from stallward.evaluation.fidelity.observed import QUANTILES, Observed
from stallward.evaluation.fidelity.signals import Signals, distances, halves, pooled
from stallward.evaluation.measures.block_measures import Array
from stallward.evaluation.measures.bootstrap import pooled_quantiles, spearman

_UNKNOWN_ERROR: Final = float(np.log(10.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFidelity:
    """Twin against live for one arm that the fit did not see."""

    scenario: str
    arm: str
    live: Observed
    twin: Observed
    replay: Signals | None = None
    """What naive replay says of this arm: what was recorded under ``none``, whatever is done."""
    scales: Mapping[str, float] = field(default_factory=dict)
    """How much each signal varies over the scenario's live runs."""

    @property
    def errors(self) -> dict[str, float]:
        """Of p50, p95, p99 and ``work``."""
        return {
            **_latency_errors(self.twin.latency_ms, self.live.latency_ms),
            "work": _work_error(self.twin.work, self.live.work),
        }

    @property
    def floor(self) -> dict[str, float]:
        """The same of live against live: two recordings, or the halves of the only one."""
        return noise_floor(self.live)

    @property
    def twin_distances(self) -> dict[str, float]:
        """Of each signal, twin against live."""
        return distances(pooled(self.live.signals), pooled(self.twin.signals), self.scales)

    @property
    def replay_distances(self) -> dict[str, float]:
        """Of each signal, naive replay against live; none for the arm that is replayed."""
        if self.replay is None:
            return {}
        return distances(pooled(self.live.signals), self.replay, self.scales)

    @property
    def floor_distances(self) -> dict[str, float]:
        """Of each signal, live against live: two recordings, or the halves of the only one."""
        runs = self.live.signals
        if not runs:
            return {}
        one, two = (runs[0], runs[1]) if len(runs) > 1 else halves(runs[0])
        return distances(one, two, self.scales)

    @property
    def covered(self) -> dict[str, bool]:
        """Whether what was seen live is among what the twin's blocks say, from least to most."""
        found = {}
        for name, quantile in QUANTILES.items():
            said = [pooled_quantiles([b.latency_ms], [quantile])[0] for b in self.twin.blocks]
            found[name] = _among(self.live.latency_ms[name], said)
        if self.live.own_units_per_s is not None:
            found["work"] = _among(
                float(self.live.work[0]), [self.twin.work_of(b.units) for b in self.twin.blocks]
            )
        return found

    def as_json(self) -> dict[str, Any]:
        """The form ``--json`` prints."""
        relative = self.live.own_units_per_s is not None
        return {
            "scenario": self.scenario,
            "arm": self.arm,
            "live_ms": _known(self.live.latency_ms),
            "twin_ms": _known(self.twin.latency_ms),
            "live_work": finite(self.live.work[0]) if relative else None,
            "twin_work": finite(self.twin.work[0]) if relative else None,
            "errors": _known(self.errors),
            "floor": _known(self.floor),
            "covered": self.covered,
            "distances": {
                "twin": self.twin_distances,
                "replay": self.replay_distances,
                "floor": self.floor_distances,
            },
        }


def noise_floor(live: Observed) -> dict[str, float]:
    """Live against live: between two recordings, or between the halves of the only one."""
    one, two = live.parts()
    return {**_latency_errors(one[0], two[0]), "work": _work_error(one[1], two[1])}


def summarise_fidelity(rows: Sequence[ArmFidelity]) -> dict[str, Any]:
    """Errors, distances and coverage over all arms, signs of effects, ranks per scenario.

    ``spearman`` is the median of the scenarios', ``spearman_worst`` the lowest.
    ``effect_signs_right`` is the share of certain effects whose sign the twin has right.
    ``distance_vs_replay`` and ``distance_vs_noise_floor`` are medians over arms of the twin's mean
    distance divided by the other's.
    """
    errors = {name: [row.errors[name] for row in rows] for name in (*QUANTILES, "work")}
    scenarios: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(row.scenario for row in rows):
        mine = [row for row in rows if row.scenario == name]
        p95 = np.array([(row.live.latency_ms["p95"], row.twin.latency_ms["p95"]) for row in mine])
        right, counted = count_signs([(row.live, row.twin) for row in mine])
        scenarios[name] = {
            "spearman": finite(spearman(p95[:, 0], p95[:, 1])),
            "effects_right": right,
            "effects_counted": counted,
        }
    counted = sum(each["effects_counted"] for each in scenarios.values())
    right = sum(each["effects_right"] for each in scenarios.values())
    ranks = [each["spearman"] for each in scenarios.values() if each["spearman"] is not None]
    covered = [inside for row in rows for inside in row.covered.values()]
    return {
        **_spread("p95_error", errors["p95"]),
        **_spread("p99_error", errors["p99"]),
        **_spread("background_error", errors["work"]),
        "p95_floor_median": _spread("p95", [row.floor["p95"] for row in rows])["p95_median"],
        "p99_floor_median": _spread("p99", [row.floor["p99"] for row in rows])["p99_median"],
        "effect_signs_right": right / counted if counted else None,
        "effects_counted": counted,
        "spearman": float(np.median(ranks)) if ranks else None,
        "spearman_worst": min(ranks, default=None),
        "distance_vs_replay": _ratio([(r.twin_distances, r.replay_distances) for r in rows]),
        "distance_vs_noise_floor": _ratio([(r.twin_distances, r.floor_distances) for r in rows]),
        "covered": float(np.mean(covered)) if covered else None,
        "scenarios": scenarios,
    }


def _ratio(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> float | None:
    """Median over arms of mean distance over mean distance, of the signals that both have."""
    ratios = []
    for one, two in pairs:
        both = [name for name in one if name in two]
        other = sum(two[name] for name in both)
        if other > 0.0:
            ratios.append(sum(one[name] for name in both) / other)
    return float(np.median(ratios)) if ratios else None


def _among(value: float, said: Sequence[float]) -> bool:
    """Whether ``value`` lies among what was said."""
    return bool(min(said) <= value <= max(said)) if len(said) else False


def _spread(name: str, errors: Sequence[float]) -> dict[str, float | None]:
    known = [error for error in errors if np.isfinite(error)]
    return {
        f"{name}_median": float(np.median(known)) if known else None,
        f"{name}_worst": max(known, default=None),
    }


def _latency_errors(one: Mapping[str, float], two: Mapping[str, float]) -> dict[str, float]:
    return {name: _log_error(one[name], two[name]) for name in QUANTILES}


def _work_error(twin: Array, live: Array) -> float:
    """Mean of the errors of each entry, so that opposite errors do not cancel."""
    if twin.shape != live.shape:
        return float("nan")
    errors = [
        _log_error(float(here), float(there)) for here, there in zip(twin, live, strict=True)
    ]
    known = [error for error in errors if np.isfinite(error)]
    return float(np.mean(known)) if known else float("nan")


def _log_error(twin: float, live: float) -> float:
    """``|ln(twin/live)|``; a factor of 10 where only one of them is known or above 0."""
    usable = [bool(np.isfinite(value) and value > 0) for value in (twin, live)]
    if not all(usable):
        return _UNKNOWN_ERROR if any(usable) else float("nan")
    return float(abs(np.log(twin / live)))


def _known(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: finite(value) for name, value in values.items()}


def finite(value: float) -> float | None:
    """``value``, or ``None`` where it is unknown."""
    return float(value) if np.isfinite(value) else None
