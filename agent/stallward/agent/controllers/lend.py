"""``lend``: ``partition`` that lends of all the application's memory, as much as it can do without.

``partition`` keeps the anonymous pages of the application in memory, whatever its latencies are.
Here the border between the two is moved: loans of 5 to 45 % of the demand and no limits at all are
tried one after another and held (``border_search``), while the target is met well and a group has
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
from stallward.agent.controller import Decision, NodeContext
from stallward.agent.controllers.partition import (
    PartitionController,
    PartitionThresholds,
)
from stallward.agent.plugin import ControllerEntry, number
from stallward.agent.sample import Sample
from stallward.agent.sharing.border_search import BorderSearch, BorderThresholds
from stallward.agent.sharing.counter_rate import elapsed_since
from stallward.agent.sharing.levels import DIVIDED, NO_LIMITS, loan

SHARES: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45)
"""The shares of the demand that are lent."""
LEVELS: Final = (DIVIDED, *(loan(share) for share in SHARES[1:]), NO_LIMITS)
"""What is done for each of them; at the last level the kernel decides how much is lent."""


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
            fitting=lambda: (*map(self._partition.fitting, SHARES), len(sample.slots)),
            stalled=self._partition.application_stalls,
        )
        level = LEVELS[index]
        divided = self._partition.divide(sample, level.set_points)
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
