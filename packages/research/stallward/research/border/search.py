"""Which loan of the application's memory is held: found by trying one after another. Pure.

How much an application can do without differs from one to the next, from a twentieth of its memory
to more than half, and nothing tells it beforehand. So a larger loan is tried while latencies are
far below the target and a group is held back. It is *held*: each move of the border is paid for by
swap traffic, and a loan that followed the latencies would move all the time.

A loan under which the target is nearly missed too often is ended at once. One that lets the
background get on no better than a smaller one is ended, too: where no program fits into what it
has then, a loan only makes the disk busy. Both are remembered, and tried again after a time that
doubles with every failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.observation.average import moved
from stallward.agent.sample import GroupSample, Sample, SlotState
from stallward.agent.sharing.trial import newest_ratio

# ---------- How well the background groups get on: the share of their time that is their own work.
# A group that lacks memory spends its time in page faults, waiting for pages, or paused. What is left
# is the processor time outside the kernel, and for programs that compute it follows their work closely
# (docs/lab/border.md). It is taken as a share of the time in which the group was
# active, so that a group that comes and goes can be compared with itself.

LEAST_ACTIVE_SHARE: Final = 0.02
"""A group that was active for less of the time says nothing."""
LEAST_PROGRESS: Final = 1e-3
"""Less is taken for this, so that one group that stands still does not hide all others."""


@dataclass(slots=True)
class _Counted:
    """What the counters of one group said."""

    cpu_us: int
    user_us: int
    stalled_us: int


class Progress:
    """Adds up the time of all groups, from one look to the next."""

    def __init__(self) -> None:
        self._before: list[_Counted | None] = []
        self.restart()

    def restart(self) -> None:
        """Begin again with the sums; what was seen last stays the beginning."""
        self.seconds = 0.0
        """How long they were looked at."""
        self._own_s: list[float] = [0.0] * len(self._before)
        self._lost_s: list[float] = [0.0] * len(self._before)

    def update(self, sample: Sample, elapsed_s: float) -> None:
        """Take one more sample; after no time, it only shows where the counters are."""
        while len(self._before) < len(sample.slots):
            self._before.append(None)
            self._own_s.append(0.0)
            self._lost_s.append(0.0)
        self.seconds += elapsed_s
        for i, (group, state) in enumerate(zip(sample.slots, sample.slot_states, strict=True)):
            self._take(i, group, state, elapsed_s)

    def _take(self, i: int, group: GroupSample, state: SlotState, elapsed_s: float) -> None:
        before, now = self._before[i], _counted(group)
        self._before[i] = now
        if state.paused:
            self._lost_s[i] += elapsed_s
        if before is None or now is None or elapsed_s <= 0.0:
            return
        cpu_s = 1e-6 * max(now.cpu_us - before.cpu_us, 0)
        own_s = min(1e-6 * max(now.user_us - before.user_us, 0), cpu_s)
        stalled_s = 1e-6 * max(now.stalled_us - before.stalled_us, 0)
        self._own_s[i] += own_s
        self._lost_s[i] += cpu_s - own_s + (0.0 if state.paused else min(stalled_s, elapsed_s))

    def shares(self) -> tuple[float, ...]:
        """The share of its time that was its own work, for each group; NaN where it was idle."""
        least_s = LEAST_ACTIVE_SHARE * self.seconds
        return tuple(
            own_s / (own_s + lost_s) if own_s + lost_s > least_s else math.nan
            for own_s, lost_s in zip(self._own_s, self._lost_s, strict=True)
        )


def gain(now: Sequence[float], before: Sequence[float]) -> float:
    """By how much groups get on better than before: the geometric mean of the ratios.

    Groups that were idle at one of the two times are left out; 1 where that leaves none.
    """
    logs = [
        math.log(max(one, LEAST_PROGRESS) / max(other, LEAST_PROGRESS))
        for one, other in zip(now, before, strict=False)
        if not (math.isnan(one) or math.isnan(other))
    ]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _counted(group: GroupSample) -> _Counted | None:
    """The counters; ``None`` where its processor time is not known.

    Where only all of its processor time is known, that counts as its own.
    """
    if group.cpu_usage_us is None:
        return None
    psi = group.psi
    return _Counted(
        cpu_us=group.cpu_usage_us,
        user_us=group.cpu_usage_us if group.cpu_user_us is None else group.cpu_user_us,
        stalled_us=(psi.memory_some_us or 0) + (psi.io_some_us or 0),
    )


SETTLE_S: Final = 5.0
"""Memory takes this long to follow the limits, so the start of each hold says nothing about the
background."""
USUAL_S: Final = 8.0
"""The time constant of the average of the latencies."""
BASE_S: Final = 120.0
"""Over this time it is averaged how often the target is nearly missed without a loan."""
NO_LIMITS_RATIO: Final = 0.5
"""No limits are tried only at this share of the latency at which a loan is."""
HELPLESS_SHARE: Final = 0.05
"""If the target is nearly missed for more of the time without a loan, no limits are tried anyway."""
GAIN_RATIO: Final = 1.1
"""By how much the background must get on better for a larger loan to be the better one."""
FORGET_S: Final = 600.0
"""What came of a level is not compared with others after this time."""


@dataclass(frozen=True, kw_only=True)
class BorderThresholds:
    """When a larger loan is tried, and when it is ended."""

    try_below: float = tuned(
        0.6, "p95 over the target below which a larger loan is tried", 0.1, 1.0
    )
    near_ratio: float = tuned(0.9, "p95 over the target that is a near miss", 0.3, 1.5)
    tolerated_s: float = tuned(
        1.0, "near misses that a trial may cost, s", 0.1, 30.0, logarithmic=True
    )
    tolerated_share: float = tuned(
        0.01, "share of the time with near misses that a loan may add after that", 0.0, 0.2
    )
    hold_s: float = tuned(
        15.0, "least time for which a loan is held, s", 6.0, 120.0, logarithmic=True
    )
    first_wait_s: float = tuned(
        120.0, "time after which a loan that failed is tried again at first, s", 10.0, 3600.0,
        logarithmic=True,
    )  # fmt: skip
    longest_wait_s: float = tuned(3600.0, "longest such time, s", 60.0, 86400.0, logarithmic=True)


Fitting = Callable[[], Sequence[int]]
"""Returns how many groups would have all the memory that they want at each level."""


@dataclass(slots=True)
class Outcome:
    """What came of one level."""

    retry_s: float
    """For how long it is not tried after the next failure."""
    barred_until_s: float = -math.inf
    """Until when it is not tried."""
    progress: tuple[float, ...] = ()
    """How well the groups got on when it was last held."""
    seen_s: float = -math.inf
    """When that was."""


class BorderSearch:
    """Chooses among the levels of the border, from the least to the most that is lent.

    Args:
        thresholds: When a larger loan is tried, and when it is ended.
        levels: How many levels there are. The first one is always allowed, and at the last one
            there are no limits.
        slo_ms: The latency target.
    """

    def __init__(self, thresholds: BorderThresholds, levels: int, slo_ms: float) -> None:
        self._thresholds = thresholds
        self._slo_ms = slo_ms
        self.outcomes = [Outcome(retry_s=thresholds.first_wait_s) for _ in range(levels)]
        """What came of each level."""
        self.level = 0
        """The level that is held."""
        self.held_s = 0.0
        """For how long it has been held."""
        self._near_s = 0.0
        self._base_near_share = 0.0
        self._usual_ratio: float | None = None
        self._progress = Progress()

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target: what came of the levels says nothing about it."""
        self._slo_ms = slo_ms
        self._usual_ratio = None
        self._near_s = self._base_near_share = 0.0
        for outcome in self.outcomes:
            outcome.barred_until_s, outcome.retry_s = -math.inf, self._thresholds.first_wait_s

    def update(self, sample: Sample, elapsed_s: float, *, fitting: Fitting, stalled: bool) -> int:
        """Take one more sample, and say which level is held now.

        Args:
            sample: The sample.
            elapsed_s: The time since the one before.
            fitting: Says how many groups would have all the memory that they want.
            stalled: Whether the application stands and waits for memory.
        """
        time_s = sample.time_s
        self.held_s += elapsed_s
        self._progress.update(sample, elapsed_s)
        if self.held_s <= SETTLE_S:
            self._progress.restart()
        ratio = self._ratio(sample, elapsed_s)
        if ratio is None:
            self._go(0)
        elif self._fails(ratio, elapsed_s) or (self.level and stalled):
            last = len(self.outcomes) - 1
            # A larger loan would fail, too. No limits may not: they make less swap traffic.
            self._bar(range(self.level, max(last, self.level + 1)), time_s)
            self._go(self._best(time_s, below=self.level))
        elif self.held_s >= self._thresholds.hold_s:
            self._note(time_s)
            larger = self._larger(time_s, fitting())
            if larger is not None:
                self._go(larger)
            else:
                self._settle(time_s)
        return self.level

    def _ratio(self, sample: Sample, elapsed_s: float) -> float | None:
        """The newest p95 over the target; ``None`` where the application reports none."""
        latency = sample.latency
        if latency is None or latency.last_completion_age_s is None:
            self._usual_ratio = None
            return None
        ratio = newest_ratio(sample, self._slo_ms, trial_s=math.inf if self.level > 0 else None)
        if ratio is None:
            return self._usual_ratio
        if self._usual_ratio is None:
            self._usual_ratio = ratio
        self._usual_ratio = moved(self._usual_ratio, ratio, elapsed_s, USUAL_S)
        return ratio

    def _fails(self, ratio: float, elapsed_s: float) -> bool:
        """Whether the target is nearly missed more often than a loan may cause."""
        thresholds = self._thresholds
        near = ratio > thresholds.near_ratio
        if self.level == 0:
            self._base_near_share = moved(self._base_near_share, near, elapsed_s, BASE_S)
            return False
        self._near_s += elapsed_s * near
        share = self._base_near_share + thresholds.tolerated_share
        return self._near_s > thresholds.tolerated_s + share * self.held_s

    def _note(self, time_s: float) -> None:
        outcome = self.outcomes[self.level]
        outcome.progress, outcome.seen_s = self._progress.shares(), time_s

    def _larger(self, time_s: float, fitting: Sequence[int]) -> int | None:
        """The level that is tried next: one at which one more group fits, else the next one."""
        usual, below = self._usual_ratio or 0.0, self._thresholds.try_below
        last = len(self.outcomes) - 1
        if fitting[self.level] == fitting[last]:
            return None
        # Where limits themselves make it miss the target, it may do better without.
        no_limits = usual < NO_LIMITS_RATIO * below or self._base_near_share > HELPLESS_SHARE
        free = [
            level
            for level in range(self.level + 1, last + 1)
            if self.outcomes[level].barred_until_s <= time_s
            and (no_limits if level == last else usual < below)
        ]
        # That they fit without any limits says nothing about how much they take.
        more = [level for level in free if level < last and fitting[level] > fitting[self.level]]
        return min(more or free, default=None)

    def _settle(self, time_s: float) -> None:
        """Go back to a smaller loan under which the background gets on as well."""
        best = self._best(time_s, below=self.level + 1)
        if best < self.level:
            self._bar(range(self.level, best, -1), time_s)
            self._go(best)

    def _best(self, time_s: float, *, below: int) -> int:
        """The level under which the background gets on best; of similar ones the smallest."""
        best = 0
        for level in range(1, below):
            outcome = self.outcomes[level]
            barred = outcome.barred_until_s > time_s
            if barred or time_s - outcome.seen_s > FORGET_S:
                continue
            if gain(outcome.progress, self.outcomes[best].progress) >= GAIN_RATIO:
                best = level
        return best

    def _bar(self, levels: range, time_s: float) -> None:
        """Try levels no more for a while: twice as long as when the first of them failed last."""
        failed = self.outcomes[levels[0]]
        for level in levels:
            outcome = self.outcomes[level]
            outcome.barred_until_s = max(outcome.barred_until_s, time_s + failed.retry_s)
        failed.retry_s = min(2.0 * failed.retry_s, self._thresholds.longest_wait_s)

    def _go(self, level: int) -> None:
        if level != self.level:
            self.level, self.held_s, self._near_s = level, 0.0, 0.0
            self._progress.restart()
