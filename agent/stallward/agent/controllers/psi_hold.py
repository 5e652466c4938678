"""``psi-hold``: pauses all background while the application stalls, and for a hold-off after it.

With ``latency_high`` it also does so while the p95 is near the target. On a slow disk that keeps the
target better than limits, which squeeze pages to swap that are slow to come back
(docs/lab/disk-and-cpu.md).

This is the oldest rule that freezes instead of killing, after ``sideloader`` of resctl-demo
(Meta). Above a threshold of memory stall everything is frozen, for a hold-off that grows when the
overload returns and decays when it does not. The numbers of ``sideloader`` (a 60 s average above
50 %, hold-offs of 10 to 30 s) are for whole machines and reaction within minutes. Here the
application's own stall over one second counts, and hold-offs are a fifth as long. The guard ends
pauses at its ``max_pause_s`` and ``max_pause_share``.

It needs the pauses and the stall of the application, and is refused without either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law import staircase
from stallward.agent.control_law.law import LawController
from stallward.agent.control_law.signals import (
    LatencySignal,
    Observations,
    present_slots,
    stall_share,
)
from stallward.agent.control_law.thresholds import spans, tuned
from stallward.agent.controller import Need
from stallward.agent.plugin import ControllerEntry, number

_DECAY = 0.5
"""The hold-off shrinks to this share after each hold-off of calm (the constant of sideloader)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PsiHoldThresholds:
    """When it pauses, and for how long."""

    threshold_share: float = tuned(
        0.1, "memory stall of the application that is overload, share of the last second",
        0.001, 1.0, logarithmic=True,
    )  # fmt: skip
    latency_high: float = tuned(
        0, "p95 over the target that is overload as well (0: latencies do not count)", 0, 10
    )
    hold_s: float = tuned(2.0, "first hold-off, s", 0.1, 60.0, logarithmic=True)
    most_hold_s: float = tuned(6.0, "longest hold-off, s", 0.1, 300.0, logarithmic=True)
    level: float = tuned(0, "limit level of what is paused (0: pause only)", 0, 5, whole=True)


class PsiHoldLaw:
    """The rule over a batch, with the same thresholds for all nodes."""

    def __init__(self, thresholds: PsiHoldThresholds, batch: int = 1) -> None:
        self._t = thresholds
        self._hold_s = np.full(batch, thresholds.hold_s)
        self._left_s = np.zeros(batch)
        self._latency = LatencySignal(batch)

    def act(self, observations: Observations, elapsed_s: float) -> NDArray[np.int64]:
        """Decide for every node, see :class:`stallward.agent.control_law.law.Law`."""
        t, held = self._t, self._left_s > 1e-9
        overload = stall_share(observations) >= t.threshold_share
        if t.latency_high > 0.0:
            overload |= self._latency.read(observations) >= t.latency_high
        left_s = np.maximum(self._left_s - elapsed_s, 0.0)
        begins = overload & ~held
        calm = ~overload & ~held
        decayed_s = self._hold_s * _DECAY ** (elapsed_s / self._hold_s)
        self._hold_s = np.where(calm, np.maximum(decayed_s, t.hold_s), self._hold_s)
        self._left_s = np.where(overload, np.maximum(self._hold_s, left_s), left_s)
        most_s = max(t.most_hold_s, t.hold_s)
        grown_s = np.minimum(self._hold_s + t.hold_s, most_s)
        self._hold_s = np.where(begins, grown_s, self._hold_s)
        paused = present_slots(observations) & (self._left_s > 1e-9)[:, None]
        level = np.where(paused, int(t.level), 0)
        return staircase.actions(paused, level, np.zeros(1))

    def reason(self) -> str:
        """The time for which the pause still lasts."""
        left_s = self._left_s[0]
        return f"overload: paused for {left_s:.1f} s more" if left_s > 1e-9 else "no overload"


def _make(arguments: Mapping[str, str]) -> LawController:
    default = PsiHoldThresholds()
    values = {
        name: number(arguments, name, getattr(default, name), low=span.low, high=span.high)
        for name, span in spans(PsiHoldThresholds).items()
    }
    thresholds = PsiHoldThresholds(**values)
    return LawController(
        "psi-hold",
        lambda: PsiHoldLaw(thresholds),
        needs=(Need.PAUSE, Need.APPLICATION_STALL),
    )


ENTRY = ControllerEntry(
    name="psi-hold",
    summary="pauses all background while the application stalls, with a growing hold-off",
    make=_make,
    parameters={
        name: f"{span.meaning} (default {getattr(PsiHoldThresholds(), name):g})"
        for name, span in spans(PsiHoldThresholds).items()
    },
)
