"""The step in which a source gives latencies, and whether a target can be told by it. Pure.

Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

_STEPS_MS: Final = (1000.0, 100.0, 10.0, 1.0, 0.1)
"""Logs write powers of ten of a second, the coarsest first."""
_WHOLE: Final = 1e-6
FEW: Final = 20
"""With fewer latencies nothing is said of their step."""
LEAST_STEPS: Final = 10
"""A target of fewer steps of its source cannot be told from a miss."""


class Resolution:
    """Finds the largest power of ten of which all latencies are whole multiples."""

    def __init__(self) -> None:
        self._candidate = 0
        self._seen = 0

    def take(self, latencies_ms: Iterable[float]) -> None:
        """Take more latencies. What is not finite or above zero says nothing."""
        for value in latencies_ms:
            if not (math.isfinite(value) and value > 0.0):
                continue
            self._seen += 1
            while self._candidate < len(_STEPS_MS):
                steps = value / _STEPS_MS[self._candidate]
                if abs(steps - round(steps)) < _WHOLE:
                    break
                self._candidate += 1

    @property
    def step_ms(self) -> float:
        """The step; 0 if there is none, or too few latencies have come."""
        known = self._seen >= FEW and self._candidate < len(_STEPS_MS)
        return _STEPS_MS[self._candidate] if known else 0.0


def too_coarse(step_ms: float, slo_ms: float) -> tuple[str, str]:
    """Why a source cannot tell whether a target is met, and what to do; empty if it can.

    Args:
        step_ms: The step of its latencies; 0 if it has none.
        slo_ms: The target.
    """
    if slo_ms >= LEAST_STEPS * step_ms:
        return "", ""
    return (
        f"its latencies come in steps of {step_ms:g} ms, and the target of {slo_ms:g} ms is fewer "
        f"than {LEAST_STEPS} of them",
        "Use a source with finer times (docs/reference/latency.md), or a larger slo_ms.",
    )
