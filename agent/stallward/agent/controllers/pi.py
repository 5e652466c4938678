"""``pi``: PI control of the application's memory stall through the memory of the background.

The output is the share of its memory that the background is allowed, from 1 (all) down to a least
share. It becomes limit levels in slot order, and pauses where nearly nothing is allowed. The
controller has velocity form: each decision moves the output by an amount computed from the error
and its change, so that clipping the output is enough against windup (Åström and Murray, Feedback
Systems, section 11.4). The error is (set point - stall) / set point, cut off below: a stall can be
a hundred times its set point, but the output should fall in seconds, not at once.

The gains are searched like the thresholds of ``rule`` (``stallward tune pi``). It needs the stall,
limits of running work, and pauses (:data:`NEEDS`), and is refused without any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law import staircase
from stallward.agent.control_law.signals import Observations, present_slots, stall_share
from stallward.agent.control_law.thresholds import columns, tuned
from stallward.agent.controller import Need
from stallward.agent.desired import LIMIT_RATIOS, PROFILES

NEEDS: Final = (Need.LIMIT, Need.PAUSE, Need.APPLICATION_STALL)
"""What it cannot do its work without."""
_DEEPEST = float(len(LIMIT_RATIOS) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PiThresholds:
    """The set point, the gains, and the numbers by which the output becomes an action."""

    set_point_share: float = tuned(
        0.02, "memory stall of the application that is aimed at, share of the last second",
        0.0005, 0.3, logarithmic=True,
    )  # fmt: skip
    proportional: float = tuned(
        0.05, "output for a change of the error by 1", 0.001, 1.0, logarithmic=True
    )
    integral_per_s: float = tuned(
        0.05, "output per second for an error of 1", 0.001, 1.0, logarithmic=True
    )
    most_error: float = tuned(
        5.0, "largest error below zero that counts", 1.0, 50.0, logarithmic=True
    )
    least_share: float = tuned(
        0.05, "least share of its memory that the background is allowed", 0.0, 0.6
    )
    pause_share: float = tuned(
        0.1, "share of a group's memory under which it is paused too", 0.0, 0.5
    )
    dead_band: float = tuned(0.03, "change of the output that moves nothing", 0.0, 0.2)
    stagger_levels: float = tuned(2, "levels that a slot is ahead of the next", 0, 5, whole=True)
    profile: float = tuned(
        0, f"tuning profile ({', '.join(p.name for p in PROFILES)})", 0, len(PROFILES) - 1,
        whole=True,
    )  # fmt: skip


class PiLaw:
    """PI control over a batch.

    Args:
        settings: The thresholds: one item for all nodes, or one for each node.
        batch: The number of nodes.
    """

    def __init__(self, settings: Sequence[PiThresholds], batch: int = 1) -> None:
        self._t = columns(settings)
        self._allowed = np.ones(batch)
        self._in_force = np.ones(batch)
        self._error = np.full(batch, np.nan)

    def act(self, observations: Observations, elapsed_s: float) -> NDArray[np.int64]:
        """Decide for every node, see :class:`stallward.agent.control_law.law.Law`."""
        t = self._t
        relative = 1.0 - stall_share(observations) / t["set_point_share"]
        error = np.maximum(relative, -t["most_error"])
        change = error - np.where(np.isnan(self._error), error, self._error)
        self._error = error
        step = t["proportional"] * change + t["integral_per_s"] * error * elapsed_s
        self._allowed = np.clip(self._allowed + step, t["least_share"], 1.0)
        ends = (self._allowed <= t["least_share"]) | (self._allowed >= 1.0)
        moved = ends | (np.abs(self._allowed - self._in_force) > t["dead_band"])
        self._in_force = np.where(moved, self._allowed, self._in_force)
        return self._actions(present_slots(observations))

    def _actions(self, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The actions that give the background the share in force."""
        t = self._t
        deepest = np.full(1, _DEEPEST)
        withheld = 1.0 - self._in_force
        rung = np.rint(withheld * staircase.top_rung(present, deepest, t["stagger_levels"]))
        level = staircase.levels(rung, present, deepest, t["stagger_levels"])
        share = np.array(LIMIT_RATIOS)[level]
        pausing = (self._in_force <= t["pause_share"])[:, None]
        return staircase.actions(present & pausing & (share < 1.0), level, t["profile"])

    def reason(self) -> str:
        """The error and the output."""
        return f"error {self._error[0]:.2f}: {100 * self._in_force[0]:.0f} % allowed"
