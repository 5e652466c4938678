"""``border``: holds one loan of the application's memory after another, for a measurement.

It shows what a part of its memory costs the application and gives the background. ``partition``
divides the memory at each level, and the loan stays whatever comes of it: nothing is recalled and
nothing is kept in reserve. Groups that thrash still take turns, and the disk is still throttled. At
one level there are no limits, at another one there are none either, but the application's own pages
are the last that the kernel takes (its swappiness, memory.low).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import Decision, IgnoresTarget, NodeContext
from stallward.agent.controllers.partition import PartitionController, PartitionThresholds
from stallward.agent.errors import ControllerError
from stallward.agent.plugin import MAX_SEED, ControllerEntry, number
from stallward.agent.sample import Sample
from stallward.research.border.loans import DIVIDED, NO_LIMITS, Level, loan

DWELL_S: Final = 60.0
_NO_LIMITS: Final = "none"
_KEPT: Final = "keep"
_RULE: Final = "partition"
_LEVELS: Final = "0+5+10+20+30+45+keep+none"
_MOST_PERCENT: Final = 90.0


def read_levels(arguments: Mapping[str, str]) -> tuple[Level, ...]:
    """The levels that the arguments of the arm name, in their order.

    Raises:
        ControllerError: If one is no level, or is named twice.
    """
    names = arguments.get("levels", _LEVELS).split("+")
    if len(set(names)) < len(names):
        raise ControllerError("A level is named twice.", next_step=f"Write levels={_LEVELS}.")
    return tuple(_level(name) for name in names)


def _level(name: str) -> Level:
    if name == _NO_LIMITS:
        return NO_LIMITS
    if name == _KEPT:
        return Level(label="kept", limits=False)
    if name == _RULE:
        return DIVIDED
    try:
        percent = float(name)
    except ValueError:
        percent = math.nan
    if not 0.0 <= percent <= _MOST_PERCENT:
        raise ControllerError(
            f"{name!r:.80} is no level of the border.",
            next_step=f"Name percents from 0 to {_MOST_PERCENT:g}, {_KEPT}, {_NO_LIMITS} or "
            f"{_RULE}, such as levels={_LEVELS}.",
        )
    return loan(percent / 100.0)


class Schedule:
    """Which level is held when: all of them in a random order, then in another one.

    Args:
        arguments: See :data:`ENTRY`.
        seed: The seed of the run.

    Raises:
        ControllerError: If an argument is out of range.
    """

    def __init__(self, arguments: Mapping[str, str], seed: int) -> None:
        self.levels = read_levels(arguments)
        self._dwell_s = number(arguments, "dwell_s", DWELL_S, low=1.0, high=3600.0)
        offset = int(number(arguments, "seed", 0, low=0, high=MAX_SEED))
        self._generator = np.random.default_rng((seed, offset))
        self._left: list[int] = []
        self._level = 0
        self._until_s = -math.inf

    def at(self, time_s: float) -> tuple[int, float]:
        """The level at a time that is not before the last one asked for, and its propensity.

        The propensity is 1 while a level is held. When it ends it is that of the choice among the
        levels that are left.
        """
        if time_s < self._until_s:
            return self._level, 1.0
        self._until_s = time_s + self._dwell_s
        if not self._left:
            self._left = [int(level) for level in self._generator.permutation(len(self.levels))]
        propensity = 1.0 / len(self._left)
        self._level = self._left.pop()
        return self._level, propensity


class BorderController(IgnoresTarget):
    """Holds every level for a while.

    Args:
        arguments: See :data:`ENTRY`.

    Raises:
        ControllerError: If an argument is out of range.
    """

    name = "border"
    needs_processes = False

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._partition = PartitionController(PartitionThresholds())
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def reset(self, context: NodeContext) -> None:
        """Begin again, with the order of the context's seed."""
        self._partition.reset(context)
        self._schedule = Schedule(self._arguments, context.seed)

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Hold the level, or take the next one of the order."""
        index, propensity = self._schedule.at(sample.time_s)
        level = self._schedule.levels[index]
        divided = self._partition.divide(sample, level.set_points)
        return Decision(
            desired=level.of(divided.desired),
            reason=f"border {level.label}: {divided.reason}",
            propensity=propensity,
        )


ENTRY = ControllerEntry(
    name="border",
    summary="holds loans of the application's memory one after another, for a measurement",
    make=BorderController,
    parameters={
        "levels": f"percents of the demand that are lent, {_NO_LIMITS} for no limits, {_KEPT} for "
        f"none but with the application's pages kept, {_RULE} for what that does (default "
        f"{_LEVELS})",
        "dwell_s": f"seconds for which each is held (default {DWELL_S:g})",
        "seed": "added to the run's seed (default 0)",
    },
)
