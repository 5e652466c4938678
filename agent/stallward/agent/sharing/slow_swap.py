"""Pauses in place of limits where swap is slow. Pure.

A limit moves pages to swap. Where reading one back takes half a millisecond, a program of 350 MiB
needs most of a minute for that. Until then it does no work, and the application's own reads wait
behind its pages. A pause moves nothing. So while swap is slow, nothing is limited as long as pauses
alone keep the target, and the background is paused while the application is near it.

How slow swap is can only be seen once something is swapped. So the first limits come in small
steps. An application that lacks memory needs limits all the same: if it waits for memory, or misses
its target, they are used, and the next trial of pauses is later, by a time that doubles with every
failure. (Measured in docs/lab/disk-and-cpu.md.)
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.desired import MIB
from stallward.agent.sample import GroupSample, Sample
from stallward.agent.sharing.trial import TrialWait, newest_ratio

MEASURED_PAGES: Final = 300.0
"""So many pages give one measurement."""
MEASUREMENTS: Final = 200
"""The last counts, of which the lower quartile counts. A slow disk is slow from the first page on; a
fast one that is kept busy is slow for a while, so the median of fewer counts took it for slow. Some
pages are still in memory when they come back, so the least count says nothing."""

FIRST_STEP_BYTES: Final = 8 * MIB
"""The first limit of a group takes as much of what it holds; each further step twice as much."""
STEP_S: Final = 2.0
"""The time between two steps, without pauses."""
STEPS_S: Final = 10.0
"""After as much time without a measurement limits are as they would be otherwise."""

NEAR_RATIO: Final = 0.9
"""The background is paused while the application's p95 is above this share of the target, or"""
STALL_SHARE: Final = 0.1
"""while it waits for memory for this share of the time."""
PAUSE_S: Final = 2.0
"""A pause is longer than the one before by this; the first one lasts for twice this."""
LONGEST_PAUSE_S: Final = 6.0
"""The longest pause. In calm pauses become shorter again."""

WINDOW_S: Final = 60.0
"""The time for which pauses are judged."""
LACKING_SHARE: Final = 0.3
"""An application that waits for memory for a larger share of the time lacks it, and pauses give it
none. (In a second of pauses Dovecot waited for 0.25 at most, OpenLDAP for 0.7 to 1.)"""
MOST_LACKING_S: Final = 1.0
"""Pauses are not enough where it has waited so for this time, in a window,"""
MOST_MISSED_SHARE: Final = 0.5
"""or where it has missed its target for more of a window than this,"""
READ_BACK_S: Final = 60.0
"""apart from the beginning, while the background reads back what was swapped before."""
FIRST_WAIT_S: Final = 600.0
"""The time after the first failure until the next trial."""


@dataclass(frozen=True, kw_only=True)
class SlowSwapThresholds:
    """From when on swap is slow."""

    slow_swap_us: float = tuned(
        150.0, "time that a page takes to come back from swap that is slow, us", 20.0, 1e6,
        logarithmic=True,
    )  # fmt: skip
    """With a fast disk the median was 6 to 60 us in eight scenarios, with a slow one 218 to 580 in
    two."""


class SwapDelay:
    """How long a background page takes to come back from swap.

    Args:
        slow_us: The time from which on that is long.
    """

    def __init__(self, slow_us: float) -> None:
        self._slow_us = slow_us
        self.slow: bool | None = None
        """Whether that is long; ``None`` while too few came back."""
        self.readable = False
        """Whether the counters are there from which it is taken, for every group."""
        self._before: dict[int, tuple[int, int, int]] = {}
        self._pages = self._waited_us = 0.0
        self._measured: deque[float] = deque(maxlen=MEASUREMENTS)

    def update(self, sample: Sample) -> None:
        """Take one more sample; what cannot be read in it says nothing."""
        self.readable = True
        for index, group in enumerate(sample.slots):
            before = self._before.pop(index, None)
            now = _counters(group)
            if now is None:
                self.readable = self.readable and not group.bound
                continue
            self._before[index] = now
            if before is None or sample.slot_states[index].paused:
                continue
            pages, of_files, waited_us = (new - old for new, old in zip(now, before, strict=True))
            if pages <= 0 or waited_us < 0 or of_files > pages:
                continue
            self._pages += pages
            self._waited_us += waited_us
            if self._pages >= MEASURED_PAGES:
                self._measured.append(self._waited_us / self._pages)
                self._pages = self._waited_us = 0.0
                lower_quartile = sorted(self._measured)[len(self._measured) // 4]
                self.slow = lower_quartile >= self._slow_us


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tick:
    time_s: float
    lacking_s: float
    missed_s: float


class Way(enum.Enum):
    """How the background is held back."""

    LIMITS = enum.auto()
    STEPS = enum.auto()
    PAUSES = enum.auto()


class SlowSwap:
    """How the background of one node is held back, and whether it is paused for that.

    Args:
        thresholds: From when on swap is slow.
    """

    def __init__(self, thresholds: SlowSwapThresholds) -> None:
        self.way = Way.LIMITS
        """How it is."""
        self.paused = False
        """Whether it is paused now, unless ``way`` is by limits."""
        self._delay = SwapDelay(thresholds.slow_swap_us)
        self._stepped = False
        self._since_s = self._ran_s = 0.0
        self._pause_s = PAUSE_S
        self._left_s = 0.0
        self._ticks: deque[_Tick] = deque()
        self._wait = TrialWait(FIRST_WAIT_S)

    @property
    def slow(self) -> bool:
        """Whether swap is known to be slow."""
        return bool(self._delay.slow)

    @property
    def step_bytes(self) -> float:
        """How much of what a group holds its limit may take now."""
        return FIRST_STEP_BYTES * (2.0 ** (1 + int(self._ran_s / STEP_S)) - 1.0)

    def retarget(self) -> None:
        """Go on with another latency target, about which failures say nothing."""
        self._ticks.clear()
        self._wait.reset()

    def update(
        self, sample: Sample, elapsed_s: float, *, slo_ms: float, stall_share: float, limits: bool
    ) -> None:
        """Take one more sample.

        Args:
            sample: The sample.
            elapsed_s: The time since the sample before.
            slo_ms: The target.
            stall_share: How much of the time the application waits for memory.
            limits: Whether anything would be limited now.
        """
        self._delay.update(sample)
        self._wait.elapse(elapsed_s)
        # An application without requests is silent as well, so silence alone says nothing.
        ratio = newest_ratio(sample, slo_ms, trial_s=None) or 0.0
        self._hold(near=ratio >= NEAR_RATIO or stall_share >= STALL_SHARE, by=elapsed_s)
        self._since_s += elapsed_s
        self._ran_s += 0.0 if self.paused else elapsed_s
        way = self._choose(limits=limits and sample.latency is not None and self._delay.readable)
        if way is not self.way:
            self.way, self._since_s, self._ran_s = way, 0.0, 0.0
            self._ticks.clear()
        if self.way is Way.PAUSES:
            self._judge(sample.time_s, elapsed_s, ratio, stall_share)

    def _choose(self, *, limits: bool) -> Way:
        if not limits or self._wait.left_s:
            return Way.LIMITS
        if self._delay.slow is not None:
            return Way.PAUSES if self._delay.slow else Way.LIMITS
        self._stepped = self._stepped or (self.way is Way.STEPS and self._ran_s > STEPS_S)
        return Way.LIMITS if self._stepped else Way.STEPS

    def _hold(self, *, near: bool, by: float) -> None:
        """Begin, continue or end a pause, as ``psi-hold`` does (whose first is half as long)."""
        if near and not self.paused:
            self._pause_s = min(self._pause_s + PAUSE_S, LONGEST_PAUSE_S)
        elif not near and not self.paused:
            shrunk_s = self._pause_s * 0.5 ** (by / self._pause_s)
            self._pause_s = max(shrunk_s, PAUSE_S)
        self._left_s = self._pause_s if near else max(self._left_s - by, 0.0)
        self.paused = self._left_s > 0.0

    def _judge(self, time_s: float, elapsed_s: float, ratio: float, stall_share: float) -> None:
        """End a trial of pauses that are not enough for the application."""
        lacking_s = elapsed_s * stall_share if stall_share >= LACKING_SHARE else 0.0
        missed_s = elapsed_s if ratio > 1.0 and self._since_s > READ_BACK_S else 0.0
        self._ticks.append(_Tick(time_s=time_s, lacking_s=lacking_s, missed_s=missed_s))
        while self._ticks[0].time_s < time_s - WINDOW_S:
            self._ticks.popleft()
        if (
            sum(tick.lacking_s for tick in self._ticks) > MOST_LACKING_S
            or sum(tick.missed_s for tick in self._ticks) > MOST_MISSED_SHARE * WINDOW_S
        ):
            self._wait.fail()


def _counters(group: GroupSample) -> tuple[int, int, int] | None:
    """Anonymous and file pages that came back, and the time that the group waited for a disk."""
    anon, waited_us = group.refault_anon_pages, group.psi.io_some_us
    if anon is None or waited_us is None:
        return None
    return anon, group.refault_file_pages or 0, waited_us
