"""What each background group gets of the room: a share, the whole, or a turn to wait. Pure.

Groups that can use a part of what they need share by water-filling. A group that only thrashes
with a part (``thrashing``) gets the whole or waits. If not all of these fit, they take turns: the
first in the order has its whole memory for a while, then it goes to the end of the order.

A group that needed more than there is for a while, even with all others squeezed, gets a part like
those that can use one: in a turn of its own it would have a part, too, and the others nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.water_filling import water_fill

NEVER_FITS_S: Final = 15.0
"""A group that has not fitted for this long gets a part."""
KEEPS_RATIO: Final = 0.95
"""A group keeps its turn while this share of what it wants fits, so that small changes of the room
do not end turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What one group wants."""

    bytes: float
    """What it holds in memory and swap, with some headroom."""
    floor_bytes: float
    """The least that it gets."""
    whole: bool = False
    """Whether it is to have the whole or wait, if the whole can be had."""
    waits: bool = False
    """Whether it waits in any case, by a set-point."""
    bound: bool = True
    """Whether a limit can hold it to a part; otherwise only a pause keeps it from growing."""
    weight: float = 1.0
    """How much it gets in proportion to others."""

    @property
    def least_bytes(self) -> float:
        """What it gets in any case."""
        return min(self.bytes, self.floor_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The result of a division."""

    shares_bytes: tuple[float, ...]
    """The memory of each group, in the order of the slots. They sum up to the room, unless the
    floors exceed it: what nobody wants is given in even parts to those that do not wait."""
    waiting: tuple[int, ...] = ()
    """The groups that wait for their turn, with their floors as shares."""
    running: tuple[int, ...] = ()
    """The groups that have the whole now, in the order of their turns."""


class Turns:
    """Divides the room, and remembers whose turn it is.

    Args:
        turn_s: How long a turn lasts while others wait.
    """

    def __init__(self, turn_s: float) -> None:
        self._turn_s = turn_s
        self._order: list[int] = []
        self._running: tuple[int, ...] = ()
        self._since_s = 0.0
        self._fitted_s: dict[int, float] = {}

    def divide(
        self,
        room_bytes: float,
        wants: Sequence[Want],
        time_s: float,
        *,
        coming_bytes: float = 0.0,
        in_danger: bool = False,
    ) -> Division:
        """Divide the room among the groups.

        Args:
            room_bytes: The memory to divide.
            wants: What each group wants.
            time_s: The time now.
            coming_bytes: By how much the room may grow soon. A group that fits then waits for it
                rather than thrash meanwhile.
            in_danger: Whether the application is in danger. Groups that need more than there is
                wait then, and so do those that no limit holds.
        """
        flagged = [index for index, want in enumerate(wants) if want.whole and not want.waits]
        whole = self._attainable(flagged, room_bytes + coming_bytes, wants, time_s)
        too_big = [index for index in flagged if index not in whole]
        held_back = [index for index, want in enumerate(wants) if want.waits]
        if in_danger:
            unbound = [i for i, want in enumerate(wants) if not (want.bound or want.waits)]
            held_back += [*too_big, *(i for i in unbound if i not in too_big)]
            whole = [i for i in whole if i not in unbound]
        self._order = [index for index in self._order if index in whole]
        self._order += [index for index in whole if index not in self._order]
        self._end_turn(time_s)
        partial = [
            index for index in range(len(wants)) if index not in whole and index not in held_back
        ]
        left = room_bytes - sum(wants[index].least_bytes for index in [*partial, *held_back])
        running = self._fitting(left, wants)
        if not running and not in_danger and not self._fitting(left + coming_bytes, wants):
            running = self._order[:1]
        waiting = [index for index in self._order if index not in running]
        if not waiting or tuple(running[:1]) != self._running[:1]:
            self._since_s = time_s
        self._running = tuple(running)
        return _divided(room_bytes, wants, running, [*waiting, *held_back], partial)

    def gains(self, room_bytes: float, more_bytes: float, wants: Sequence[Want]) -> bool:
        """Whether the groups could use more memory than the room.

        Args:
            room_bytes: The memory to divide.
            more_bytes: How much more there could be.
            wants: What each group wants, as for the last division.

        Returns:
            ``True`` if with it one more group would have the whole, or if a group has to do with
            a part. ``False`` if it would only lie idle.
        """
        others = [want for index, want in enumerate(wants) if index not in self._order]
        partial = [want for want in others if not want.waits]
        left = room_bytes - sum(want.least_bytes for want in others)
        fitting = self._fitting(left, wants)
        if self._order and not fitting:
            return True
        spent = sum(wants[index].bytes for index in fitting)
        spent += sum(wants[index].least_bytes for index in self._order if index not in fitting)
        spent += sum(want.least_bytes for want in others if want.waits)
        if sum(want.bytes for want in partial) > max(room_bytes - spent, 0.0):
            return True
        return len(self._fitting(left + more_bytes, wants)) > len(fitting)

    def _attainable(
        self, flagged: Sequence[int], most_bytes: float, wants: Sequence[Want], time_s: float
    ) -> list[int]:
        """Those of the groups ``flagged`` that lately fitted if all others had their least."""
        least = sum(want.least_bytes for want in wants)
        for index, want in enumerate(wants):
            fits = self._keeps(index) * want.bytes <= most_bytes - (least - want.least_bytes)
            if fits or index not in flagged:
                self._fitted_s[index] = time_s
        return [i for i in flagged if time_s - self._fitted(i, time_s) <= NEVER_FITS_S]

    def _fitted(self, index: int, time_s: float) -> float:
        """When a group last fitted; if it never did, the time at which it was first seen."""
        return self._fitted_s.setdefault(index, time_s)

    def _keeps(self, index: int) -> float:
        """The share of what a group wants that has to fit."""
        return KEEPS_RATIO if index in self._running else 1.0

    def _end_turn(self, time_s: float) -> None:
        """Move the first group to the end of the order when its turn is over."""
        if self._running and time_s - self._since_s > self._turn_s:
            first = self._running[0]
            if first in self._order:
                self._order.remove(first)
                self._order.append(first)
            self._running = ()

    def _fitting(self, room_bytes: float, wants: Sequence[Want]) -> list[int]:
        """The groups that have the whole now: those that have it already, then by the order."""
        had = [index for index in self._running if index in self._order]
        candidates = had + [index for index in self._order if index not in had]
        running: list[int] = []
        left = room_bytes
        for index in candidates:
            others = sum(
                wants[other].least_bytes
                for other in self._order
                if other != index and other not in running
            )
            if self._keeps(index) * wants[index].bytes <= left - others:
                running.append(index)
                left -= wants[index].bytes
        return running


def _divided(
    room_bytes: float,
    wants: Sequence[Want],
    running: Sequence[int],
    waiting: Sequence[int],
    partial: Sequence[int],
) -> Division:
    shares = [0.0] * len(wants)
    left = room_bytes
    for index in waiting:
        shares[index] = wants[index].floor_bytes
        left -= wants[index].least_bytes
    least = sum(wants[index].least_bytes for index in partial)
    for index in running:
        want = wants[index]
        shares[index] = max(min(want.bytes, left - least), want.floor_bytes)
        left = max(left - shares[index], 0.0)
    parts, left = water_fill(
        max(left, 0.0),
        [wants[index].bytes for index in partial],
        [wants[index].floor_bytes for index in partial],
        [wants[index].weight for index in partial],
    )
    for index, part in zip(partial, parts, strict=True):
        shares[index] = part
    unpaused = [*running, *partial]
    for index in unpaused:
        shares[index] += left / len(unpaused)
    return Division(shares_bytes=tuple(shares), waiting=tuple(waiting), running=tuple(running))
