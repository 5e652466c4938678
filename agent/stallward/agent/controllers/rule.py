"""``rule``: holds the background back while the application is in danger, releases it gradually.

Danger is the largest of three ratios: p95 over the target, memory stall of the application, and
its refaults, each divided by a threshold of its own. With enough free memory danger is 0. From 1
on, danger tightens the limits by one rung of the staircase
(``stallward.agent.control_law.staircase``). Urgent danger pauses and squeezes the first group,
then the next. After a while of calm one rung is released. The other thresholds are times.

The thresholds are searched on the twin (``stallward tune rule``); the tuned ones are shipped as
``models/stallward/models/rules/rule.toml``. The controller ``rule`` needs that file, so it is
registered by ``stallward.models.controllers``, not here.

Any of the three ratios is enough to act by (:data:`ONE_OF`): one that the node does not know is 0,
so that the rule acts later or less. Of the levers it uses those that there are. A process tree has
no limit while it runs, so there the rungs of the staircase do nothing, and only urgent danger
does, which pauses and squeezes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law import staircase
from stallward.agent.control_law.signals import (
    Array,
    LatencySignal,
    Mask,
    Observations,
    free_share,
    present_slots,
    refaults_per_s,
    stall_share,
)
from stallward.agent.control_law.thresholds import columns, tuned
from stallward.agent.controller import Need
from stallward.agent.desired import PROFILES

ONE_OF: Final = (Need.LATENCY, Need.APPLICATION_STALL, Need.REFAULTS)
"""The signals of danger, of which it needs one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleThresholds:
    """The thresholds of the rule; danger is measured against the first three."""

    latency_high: float = tuned(0.9, "p95 over the target that is danger", 0.3, 1.5)
    stall_high_share: float = tuned(
        0.05, "memory stall of the application that is danger, share of the last second",
        0.002, 0.5, logarithmic=True,
    )  # fmt: skip
    refaults_high_per_s: float = tuned(
        2000.0, "refaults of the application that are danger, pages/s", 20.0, 50e3,
        logarithmic=True,
    )  # fmt: skip
    free_enough_share: float = tuned(
        0.05, "free share of the zone at which memory cannot be the trouble", 0.01, 0.3,
        logarithmic=True,
    )  # fmt: skip
    urgent_danger: float = tuned(
        2.0, "danger at which groups are paused and squeezed", 1.0, 6.0, logarithmic=True
    )
    calm_danger: float = tuned(0.6, "danger under which it is calm", 0.1, 0.95)
    tighten_every_s: float = tuned(
        0.4, "least time between two steps towards less memory, s", 0.1, 5.0, logarithmic=True
    )
    release_every_s: float = tuned(
        2.0, "calm needed before each step towards more memory, s", 0.2, 30.0, logarithmic=True
    )
    hold_s: float = tuned(
        1.0, "how long a pause outlasts its cause, s", 0.1, 5.0, logarithmic=True
    )
    deepest_level: float = tuned(4, "tightest limit level used", 1, 5, whole=True)
    stagger_levels: float = tuned(2, "levels that a slot is ahead of the next", 0, 5, whole=True)
    rest_share: float = tuned(0.2, "share of the staircase that is never released", 0.0, 1.0)
    profile: float = tuned(
        0, f"tuning profile ({', '.join(p.name for p in PROFILES)})", 0, len(PROFILES) - 1,
        whole=True,
    )  # fmt: skip


class RuleLaw:
    """The rule over a batch.

    Args:
        settings: The thresholds: one item for all nodes, or one for each node.
        batch: The number of nodes.
    """

    def __init__(self, settings: Sequence[RuleThresholds], batch: int = 1) -> None:
        self._t = columns(settings)
        self._latency = LatencySignal(batch)
        self._rung = np.full(batch, np.nan)
        """NaN until the first decision, which begins at the rung that is never released."""
        self._since_move_s = np.full(batch, np.inf)
        self._calm_s = np.zeros(batch)
        self._pause_left_s = np.zeros(batch)
        self._paused_groups = np.zeros(batch)
        self._danger = np.zeros(batch)

    def act(self, observations: Observations, elapsed_s: float) -> NDArray[np.int64]:
        """Decide for every node, see :class:`stallward.agent.control_law.law.Law`."""
        t = self._t
        present = present_slots(observations)
        danger = self._measure_danger(observations)
        self._since_move_s += elapsed_s
        self._calm_s = np.where(danger < t["calm_danger"], self._calm_s + elapsed_s, 0.0)
        top = staircase.top_rung(present, t["deepest_level"], t["stagger_levels"])
        rest = np.rint(t["rest_share"] * top)
        previous = np.where(np.isnan(self._rung), rest, np.clip(self._rung, rest, top))
        may_tighten = self._since_move_s >= t["tighten_every_s"] - 1e-9
        tighten = (danger >= 1.0) & may_tighten
        waited_s = np.minimum(self._calm_s, self._since_move_s)
        release = waited_s >= t["release_every_s"] - 1e-9
        self._rung = np.clip(previous + tighten - release, rest, top)
        self._update_pauses(danger, present.sum(axis=1), tighten, elapsed_s)
        self._since_move_s[tighten | release] = 0.0
        paused = staircase.first_slots(self._paused_groups, present)
        level = staircase.levels(self._rung, present, t["deepest_level"], t["stagger_levels"])
        deepest = t["deepest_level"].astype(np.int64)[:, None]
        return staircase.actions(paused, np.where(paused, deepest, level), t["profile"])

    def _measure_danger(self, observations: Observations) -> Array:
        t = self._t
        danger = np.maximum(
            self._latency.read(observations) / t["latency_high"],
            np.maximum(
                stall_share(observations) / t["stall_high_share"],
                refaults_per_s(observations) / t["refaults_high_per_s"],
            ),
        )
        self._danger = np.where(free_share(observations) > t["free_enough_share"], 0.0, danger)
        return self._danger

    def _update_pauses(
        self, danger: Array, present: NDArray[np.integer], may_add: Mask, elapsed_s: float
    ) -> None:
        """Update the number of paused groups and the time for which they stay paused."""
        urgent = danger >= np.maximum(self._t["urgent_danger"], 1.0)
        left_s = np.maximum(self._pause_left_s - elapsed_s, 0.0)
        self._pause_left_s = np.where(urgent, self._t["hold_s"], left_s)
        count = np.minimum(self._paused_groups + (urgent & may_add), present)
        self._paused_groups = np.where(self._pause_left_s > 1e-9, count, 0.0)

    def reason(self) -> str:
        """The danger, the rung and the number of paused groups."""
        return (
            f"danger {self._danger[0]:.2f}: rung {self._rung[0]:.0f}, "
            f"{self._paused_groups[0]:.0f} paused"
        )
