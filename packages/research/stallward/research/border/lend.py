"""``lend``: ``partition`` that lends of all the application's memory, as much as it can do without.

``partition`` keeps the anonymous pages of the application in memory, whatever its latencies are.
Here the border between the two is moved: loans of 5 to 45 % of the demand and no limits at all are
tried one after another and held (``search``), while the target is met well and a group has
less than it could use. Nothing is lent to an application that reports no latencies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import as_values, make_thresholds, spans
from stallward.agent.control_law.water_filling import water_fill
from stallward.agent.controller import Decision, NodeContext
from stallward.agent.controllers.partition import (
    Balance,
    PartitionController,
    PartitionThresholds,
)
from stallward.agent.plugin import ControllerEntry, number
from stallward.agent.sample import Sample
from stallward.agent.sharing.counter_rate import elapsed_since
from stallward.research.border.loans import DIVIDED, NO_LIMITS, loan
from stallward.research.border.search import BorderSearch, BorderThresholds

SHARES: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45)
"""The shares of the demand that are lent."""
LEVELS: Final = (DIVIDED, *(loan(share) for share in SHARES[1:]), NO_LIMITS)
"""What is done for each of them; at the last level the kernel decides how much is lent."""
_FORGET_S: Final = 60.0
"""The time in which the most that a group wanted falls to nothing: groups come and go."""
_FITS_RATIO: Final = 0.97
"""A group that has this share of what it wants has all of it."""


class _Room:
    """How many background groups fit into the memory that is left for them, by what is lent."""

    def __init__(self) -> None:
        self._balance = Balance()
        self._most_bytes: list[float] = []

    def update(self, balance: Balance, elapsed_s: float) -> None:
        """Take what is left now; ``elapsed_s`` is the time since the look before."""
        self._balance = balance
        self._most_bytes += [0.0] * (len(balance.wants) - len(self._most_bytes))
        kept = max(1.0 - elapsed_s / _FORGET_S, 0.0)
        for index, want in enumerate(balance.wants):
            self._most_bytes[index] = max(want.bytes, kept * self._most_bytes[index])

    def fitting(self, lent_share: float) -> int:
        """How many groups would have all that they wanted lately.

        Args:
            lent_share: The share of the application's demand that is lent.
        """
        balance = self._balance
        room = max(balance.base_bytes + lent_share * balance.demand_bytes, 0.0)
        parts, _ = water_fill(
            room,
            self._most_bytes,
            [want.floor_bytes for want in balance.wants],
            [want.weight for want in balance.wants],
        )
        return sum(
            part >= _FITS_RATIO * most for part, most in zip(parts, self._most_bytes, strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class LendThresholds(PartitionThresholds, BorderThresholds):
    """The numbers of ``partition``, and those of the search for the border."""


class LendController:
    """Divides the memory, and moves the border.

    Args:
        thresholds: The numbers of the rule.
    """

    name = "lend"
    needs_processes = False

    def __init__(self, thresholds: LendThresholds) -> None:
        self._thresholds = thresholds
        self._partition = PartitionController(thresholds)
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def reset(self, context: NodeContext) -> None:
        """Forget what came of every loan."""
        self._previous_s = math.nan
        self._partition.reset(context)
        self._room = _Room()
        self._search = BorderSearch(self._thresholds, len(LEVELS), context.slo_ms)

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target."""
        self._partition.retarget(slo_ms)
        self._search.retarget(slo_ms)

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Divide the memory at the level that is held."""
        elapsed_s = elapsed_since(self._previous_s, sample.time_s)
        self._previous_s = sample.time_s
        index = self._search.update(
            sample,
            elapsed_s,
            # Without limits everybody takes what it wants.
            fitting=lambda: (*map(self._room.fitting, SHARES), len(sample.slots)),
            stalled=self._partition.application_stalls,
        )
        level = LEVELS[index]
        divided = self._partition.divide(sample, level.set_points)
        self._room.update(self._partition.balance, elapsed_s)
        if index == 0:
            return divided
        return replace(
            divided,
            desired=level.of(divided.desired),
            reason=f"{level.label} lent: {divided.reason}",
        )


def _make(arguments: Mapping[str, str]) -> LendController:
    given = {key: number(arguments, key, 0.0) for key in arguments}
    values = {**as_values(LendThresholds()), **given}
    return LendController(make_thresholds(LendThresholds, values, "the arm 'lend'"))


ENTRY = ControllerEntry(
    name="lend",
    summary="as partition, but lends as much of the application's memory as it can do without",
    make=_make,
    parameters={key: span.meaning for key, span in spans(LendThresholds).items()},
)
"""``partition`` that finds out how much of the application's memory may be lent."""
