"""The processor time of all slots, of which some may be pods that come and go. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stallward.agent.sample import UNBOUND


class BackgroundCpu:
    """Adds up what the slots use, tick by tick.

    A pod's group has its own total, from the pod's start. So a slot counts only between two ticks
    at which it has the same group, and not while it is empty.
    """

    def __init__(self) -> None:
        self._before: tuple[tuple[str, int | None], ...] = ()
        self._total_us = 0

    def take(self, slots: Sequence[tuple[str, int | None]]) -> int | None:
        """Return the time so far; ``None`` if a group does not tell its own.

        Args:
            slots: Each slot's group, and the processor time of that so far in us.
        """
        before, self._before = self._before, tuple(slots)
        if len(before) == len(self._before):
            for (old_group, old_us), (group, used_us) in zip(before, self._before, strict=True):
                if group == old_group and old_us is not None and used_us is not None:
                    self._total_us += max(used_us - old_us, 0)
        known = all(us is not None or group.startswith(UNBOUND) for group, us in self._before)
        return self._total_us if known else None
