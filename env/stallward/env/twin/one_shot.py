"""The levers of a twin node that act once for each new wish: reclaiming and ending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stallward.agent.desired import DesiredState
from stallward.agent.observation.raw import SLOT, RawFrame
from stallward.env.twin.inputs.exogenous import PAGE_BYTES
from stallward.env.twin.simd.layout import Arrays

_GIVE_UP_TICKS: Final = 20
"""How long a slot may keep all its pages before its reclaim is given up, as on a node."""
_NEAR_BYTES: Final = 64 * 4096
"""A use this close to the target is near enough, as on a node."""


class Reclaims:
    """The reclaims under way, one for each slot.

    Args:
        slots: The number of slots.
    """

    def __init__(self, slots: int) -> None:
        self._targets: list[int | None] = [None] * slots
        self._wanted: list[int | None] = [None] * slots
        self._least: list[float] = [0.0] * slots
        self._stuck_ticks = [0] * slots
        self._before: tuple[int | None, ...] = (None,) * slots

    def hold(self, granted: DesiredState, frame: RawFrame, nodes: Arrays) -> None:
        """Hold what is being reclaimed under a limit that is in force at once, and only now.

        Args:
            granted: The desired state that the guard granted, whose limits are wanted already.
            frame: The raw columns of the node.
            nodes: The node, whose limits are changed.
        """
        usages = [frame.slots[i][SLOT["usage_bytes"]] for i in range(len(self._targets))]
        targets = self.targets(granted, usages)
        wanted, in_force = nodes.want_limit_pages.copy(), nodes.limit_pages.copy()
        for i, target in enumerate(targets):
            if target is not None:
                wanted[i, 0] = min(wanted[i, 0], target / PAGE_BYTES)
            if target is not None or self._before[i] is not None:
                in_force[i, 0] = wanted[i, 0]
        self._before = targets
        nodes.want_limit_pages, nodes.limit_pages = wanted, in_force

    def targets(
        self, granted: DesiredState, usages_bytes: Sequence[float]
    ) -> tuple[int | None, ...]:
        """The size that each slot is to be reclaimed to in this tick; ``None`` for none.

        A reclaim lasts until the slot holds no more than its target, another target is wanted, or
        the slot gives nothing any more.

        Args:
            granted: The desired state that the guard granted.
            usages_bytes: The memory that each slot holds.
        """
        for i, usage in enumerate(usages_bytes):
            wanted = granted.slot(i).reclaim_to_bytes
            if wanted != self._wanted[i]:
                self._wanted[i] = self._targets[i] = wanted
                self._least[i], self._stuck_ticks[i] = usage, 0
            elif usage < self._least[i]:
                self._least[i], self._stuck_ticks[i] = usage, 0
            else:
                self._stuck_ticks[i] += 1
            target = self._targets[i]
            if target is not None and (
                usage <= target + _NEAR_BYTES or self._stuck_ticks[i] >= _GIVE_UP_TICKS
            ):
                self._targets[i] = None
        return tuple(self._targets)


def newly_ended(granted: DesiredState, before: DesiredState, first_pid: int) -> tuple[int, ...]:
    """The slots that a state ends and the state before it did not.

    Args:
        granted: The desired state that the guard granted.
        before: The one before it.
        first_pid: The process of slot ``i`` has the pid ``first_pid + i``.
    """
    slots = {i for i, slot in enumerate(granted.slots) if slot.terminated}
    slots -= {i for i, slot in enumerate(before.slots) if slot.terminated}
    if granted.terminate is not None and granted.terminate != before.terminate:
        slots.add(granted.terminate.pid - first_pid)
    return tuple(sorted(slots))
