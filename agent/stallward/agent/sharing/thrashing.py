"""Which groups thrash: those that get a part of what they need and use it only to swap. Pure.

Many programs work well with all of their memory and hardly at all with half of it. With half, each
page that they touch takes the place of one that they touch soon after. Such a program does its
neighbours harm by reading and writing, and gains nothing: it had better have all of its memory for
a while and then wait while another has it (P. J. Denning, Thrashing: its causes and prevention,
1968).

A group thrashes if, under a limit below what it needs, its processes spend a good part of their
time waiting for pages and it refaults many. What it needs is more than its limit if the limit is
below what it holds and has in swap, or if it fills the limit: the file pages that a program reads
again and again are nowhere once they were evicted. Waiting for pages is the stall on memory *and*
on disk: the kernel counts the wait for a page from swap as a stall on memory only if that page was
in use shortly before it was evicted (mm/page_io.c, ``swap_read_folio``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.observation.demand import held_bytes
from stallward.agent.sample import GroupSample, SlotState

SMOOTHING_S: Final = 2.0
"""The time constant of the averages of stall and refaults."""
SHORT_RATIO: Final = 0.97
"""A group whose limit is below this share of what it holds and has swapped is short of memory."""
FULL_RATIO: Final = 0.9
"""A group that fills this share of its limit may be short, too: file pages that it lacks are not
in swap."""
LEAST_BYTES: Final = 24 << 20
"""A group that holds less than this is not looked at: there is nothing to gain."""


@dataclass(frozen=True, kw_only=True)
class ThrashingThresholds:
    """From when on a group counts as thrashing, and for how long."""

    thrash_stall_share: float = tuned(
        0.3, "stall of a group on memory and disk that is thrashing, share of the time", 0.05, 1.0
    )
    thrash_refaults_per_s: float = tuned(
        1000.0, "refaults of a group that are thrashing, pages/s", 50.0, 50e3, logarithmic=True
    )
    thrash_notice_s: float = tuned(
        2.0, "how long a group must lack memory before it counts as thrashing, s", 0.5, 30.0,
        logarithmic=True,
    )  # fmt: skip
    thrash_remember_s: float = tuned(
        120.0, "how long a group that thrashed gets the whole or nothing, s", 5.0, 3600.0,
        logarithmic=True,
    )  # fmt: skip


class Thrashing:
    """Watches one group.

    Args:
        thresholds: From when on it counts as thrashing.
    """

    def __init__(self, thresholds: ThrashingThresholds) -> None:
        self._thresholds = thresholds
        self._before: tuple[int, int] | None = None
        self._short_s = 0.0
        self._seen_s = -math.inf
        self.stall_share = 0.0
        """Its stall, averaged."""
        self.refaults_per_s = 0.0
        """Its refaults, averaged."""

    def update(
        self, group: GroupSample, state: SlotState, time_s: float, elapsed_s: float
    ) -> bool:
        """Take one more sample of the group.

        A paused group shows nothing: then the last finding stays as it is.

        Args:
            group: Its counters.
            state: Its pause and its limit.
            time_s: The time of the sample.
            elapsed_s: The time since the sample before.

        Returns:
            Whether the group thrashes unless it gets all that it needs.
        """
        stalled_us, refaulted = _stalled_us(group), group.refaulted_pages
        if stalled_us is None or refaulted is None:
            self._before = None
            return self._remembered(time_s)
        before, self._before = self._before, (stalled_us, refaulted)
        if before is None or state.paused or elapsed_s <= 0.0:
            return self._remembered(time_s)
        weight = 1.0 - math.exp(-elapsed_s / SMOOTHING_S)
        stall_share = min(max(stalled_us - before[0], 0) / (1e6 * elapsed_s), 1.0)
        refaults_per_s = max(refaulted - before[1], 0) / elapsed_s
        self.stall_share += weight * (stall_share - self.stall_share)
        self.refaults_per_s += weight * (refaults_per_s - self.refaults_per_s)
        held = held_bytes(group)
        limit = state.limit_bytes
        short = limit is not None and held >= LEAST_BYTES and _is_short(group, held, limit)
        self._short_s = self._short_s + elapsed_s if short else 0.0
        thresholds = self._thresholds
        if (
            self._short_s >= thresholds.thrash_notice_s
            and self.stall_share >= thresholds.thrash_stall_share
            and self.refaults_per_s >= thresholds.thrash_refaults_per_s
        ):
            self._seen_s = time_s
        return self._remembered(time_s)

    def _remembered(self, time_s: float) -> bool:
        return time_s - self._seen_s <= self._thresholds.thrash_remember_s


def _is_short(group: GroupSample, held: int, limit: int) -> bool:
    return limit < SHORT_RATIO * held or (group.memory_usage_bytes or 0) > FULL_RATIO * limit


def _stalled_us(group: GroupSample) -> int | None:
    """The stall on memory and disk of all processes at once; of any where only that is known."""
    psi = group.psi
    memory_us = psi.memory_some_us if psi.memory_full_us is None else psi.memory_full_us
    io_us = psi.io_some_us if psi.io_full_us is None else psi.io_full_us
    if memory_us is None and io_us is None:
        return None
    return (memory_us or 0) + (io_us or 0)
