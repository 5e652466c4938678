"""What a twin has to reach before it is trusted, set before anybody looked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One of them.

    Args:
        key: What it is about, a key of
        :func:`~stallward.evaluation.fidelity.measure.measure_fidelity`.
        bound: What is aimed at.
        at_least: Whether more is better.
        floor: The key of the same of live against live, which takes the place of ``bound`` where
            it is larger: no twin can be closer to a run than the next run is.
    """

    key: str
    bound: float
    at_least: bool = False
    floor: str | None = None

    def judge(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """``value``, ``target`` and whether it is ``met``; ``None`` where that is not known."""
        value = found[self.key]
        floor = None if self.floor is None else found[self.floor]
        bound = self.bound if floor is None else max(self.bound, floor)
        met = None
        if value is not None:
            met = bool(value >= bound if self.at_least else value <= bound)
        return {"value": value, "target": bound, "met": met}


TARGETS: Final = (
    Target(key="p95_error_median", bound=0.15, floor="p95_floor_median"),
    Target(key="p95_error_worst", bound=0.25),
    Target(key="p99_error_median", bound=0.15, floor="p99_floor_median"),
    Target(key="p99_error_worst", bound=0.25),
    Target(key="background_error_median", bound=0.10),
    Target(key="effect_signs_right", bound=1.0, at_least=True),
    Target(key="spearman", bound=0.9, at_least=True),
    Target(key="distance_vs_replay", bound=0.45),
)


def judge_fidelity(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every target's key -> its ``value``, ``target`` and whether it is ``met``."""
    return {target.key: target.judge(found) for target in TARGETS}
