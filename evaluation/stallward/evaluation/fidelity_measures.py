"""How far a twin's blocks are from live ones: pure functions of measured blocks.

Errors are ``|ln(twin/live)|``: 0.1 is about 10 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from stallward.evaluation.measure import Array, BlockMeasures
from stallward.evaluation.statistics import (
    bootstrap_quantiles,
    moving_block_counts,
    pooled_quantiles,
    spearman,
)
from stallward.evaluation.summary import known_groups

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_RESAMPLES: Final = 400
_RUN_WINDOWS: Final = 5
_IDLE_ERROR: Final = float(np.log(10.0))

Blocks = Sequence[BlockMeasures]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An arm's blocks, on the node or on the twin."""

    blocks: tuple[BlockMeasures, ...]
    own_units_per_s: Array | None
    """Each group's rate with the node (or the twin) to itself; ``None`` if not measured."""

    @property
    def latency_ms(self) -> dict[str, float]:
        """Quantiles of the pooled requests."""
        return _quantiles([block.latency_ms for block in self.blocks])

    @property
    def work(self) -> Array:
        """``(1,)``: background work, the mean of the groups' shares of their own rates.

        Without own rates ``(G,)``: the groups' units/s.
        """
        rate = np.concatenate([block.units for block in self.blocks]).mean(axis=0)
        return self._relative(np.asarray(rate, dtype=np.float64))

    def parts(self) -> list[tuple[dict[str, float], Array]]:
        """Latencies and work of the first two blocks, or of the halves of the only one."""
        if len(self.blocks) >= 2:
            return [
                (part.latency_ms, part.work)
                for part in (replace(self, blocks=(block,)) for block in self.blocks[:2])
            ]
        only = self.blocks[0]
        late = only.scheduled_s >= only.duration_s / 2
        half = only.windows // 2
        return [
            (_quantiles([only.latency_ms[mine]]), self._relative(units.mean(axis=0)))
            for mine, units in ((~late, only.units[:half]), (late, only.units[half:]))
        ]

    def _relative(self, rate: Array) -> Array:
        own = self.own_units_per_s
        if own is None or own.shape != rate.shape:
            return rate
        known = known_groups(rate, own)
        return np.array([(rate[known] / own[known]).mean() if known.any() else np.nan])


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFidelity:
    """Twin against live for one arm that the fit did not see."""

    scenario: str
    arm: str
    live: Observed
    twin: Observed

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
    def effect(self) -> float:
        """Logarithm of the p95 on the twin; NaN if nothing was answered in time."""
        return float(np.log(self.twin.latency_ms["p95"]))

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
        }


def noise_floor(live: Observed) -> dict[str, float]:
    """Live against live: between two recordings, or between the halves of the only one."""
    one, two = live.parts()
    return {**_latency_errors(one[0], two[0]), "work": _work_error(one[1], two[1])}


def summarise_fidelity(rows: Sequence[ArmFidelity]) -> dict[str, Any]:
    """Errors over all arms left out, signs of effects, and rank correlation per scenario.

    ``spearman`` is the lowest of the scenarios'; ``effect_signs_right`` the share of the certain
    effects whose sign the twin has right.
    """
    errors = {name: [row.errors[name] for row in rows] for name in (*QUANTILES, "work")}
    scenarios: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(row.scenario for row in rows):
        mine = [row for row in rows if row.scenario == name]
        p95 = np.array([(row.live.latency_ms["p95"], row.twin.latency_ms["p95"]) for row in mine])
        right, counted = _signs(mine)
        scenarios[name] = {
            "spearman": finite(spearman(p95[:, 0], p95[:, 1])),
            "effects_right": right,
            "effects_counted": counted,
        }
    counted = sum(each["effects_counted"] for each in scenarios.values())
    right = sum(each["effects_right"] for each in scenarios.values())
    ranks = [each["spearman"] for each in scenarios.values() if each["spearman"] is not None]
    return {
        **_spread("p95_error", errors["p95"]),
        **_spread("p99_error", errors["p99"]),
        **_spread("background_error", errors["work"]),
        "p95_floor_median": _spread("p95", [row.floor["p95"] for row in rows])["p95_median"],
        "effect_signs_right": right / counted if counted else None,
        "effects_counted": counted,
        "spearman": min(ranks, default=None),
        "scenarios": scenarios,
    }


def _spread(name: str, errors: Sequence[float]) -> dict[str, float | None]:
    known = [error for error in errors if np.isfinite(error)]
    return {
        f"{name}_median": float(np.median(known)) if known else None,
        f"{name}_worst": max(known, default=None),
    }


def _signs(rows: Sequence[ArmFidelity]) -> tuple[int, int]:
    """Effects against ``none`` whose live interval excludes zero: how many the twin has right."""
    none = next((row for row in rows if row.arm == "none"), None)
    if none is None:
        return 0, 0
    right = counted = 0
    for row in rows:
        sign = _sure_sign(row.live.blocks, none.live.blocks) if row is not none else 0
        if sign:
            counted += 1
            # A twin without a latency has no sign right: NaN equals nothing.
            right += bool(np.sign(row.effect - none.effect) == sign)
    return right, counted


def _sure_sign(arm: Blocks, none: Blocks) -> int:
    """Sign of the live effect on p95; 0 where its interval holds zero."""
    rng = np.random.default_rng(0)
    draws = []
    for blocks in (arm, none):
        windows = [pool for block in blocks for pool in block.latency_windows()]
        counts = moving_block_counts(len(windows), _RUN_WINDOWS, _RESAMPLES, rng)
        draws.append(bootstrap_quantiles(windows, [0.95], counts)[:, 0])
    low, high = np.nanquantile(np.log(draws[0] / draws[1]), [0.025, 0.975])
    return int(np.sign(low)) if low * high > 0 else 0


def _quantiles(pools: Sequence[Array]) -> dict[str, float]:
    values = pooled_quantiles(pools, list(QUANTILES.values()))
    return {name: float(value) for name, value in zip(QUANTILES, values, strict=True)}


def _latency_errors(one: Mapping[str, float], two: Mapping[str, float]) -> dict[str, float]:
    return {name: _log_error(one[name], two[name]) for name in QUANTILES}


def _work_error(twin: Array, live: Array) -> float:
    """Mean of the errors of each entry, so that opposite errors do not cancel.

    What did nothing in one of them is off by a factor without bound, which counts as 10.
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


def _known(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: finite(value) for name, value in values.items()}


def finite(value: float) -> float | None:
    """``value``, or ``None`` where it is unknown."""
    return float(value) if np.isfinite(value) else None
