"""``dasec``: dynamic asymmetric scheduling, which moves interference off the critical path.

Source: "Achieving Low Latency in Public Edges by Hiding Workloads Mutual Interference", slides of
the ACM Symposium on Cloud Computing (University of Rhode Island, NJIT, Hofstra University). Each
period it finds the threads on the application's critical path, and answers three kinds of
interference: what is delayed gets a lower rescheduling latency, what is interrupted another core,
and what lacks CPU share more weight at the cost of the application's other threads. Of several
protected applications each has a critical path and a total share of its own. The source
changes weights and the wakeup latency in CFS; here nice values and the timeslice of EEVDF do the
same. docs/explanation/thread-scheduling.md says what the source leaves open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import (
    Controller,
    Decision,
    Need,
    NodeContext,
    RetargetableController,
    require_needs,
)
from stallward.agent.controllers import partition
from stallward.agent.desired import RELEASED
from stallward.agent.errors import ControllerError
from stallward.agent.plugin import ControllerEntry, number
from stallward.agent.sample import Sample
from stallward.agent.threads import OwnValues, ThreadDesire, ThreadRef, ThreadSample, remember_own
from stallward.papers.scheduling import (
    ThreadPeriod,
    critical_path,
    delayed,
    give_back_share,
    lacks_share,
    moves,
    shift_share,
    thread_periods,
)

LATENCY: Final = "latency"
LAYOUT: Final = "layout"
SHARE: Final = "share"
ANSWERS: Final[Mapping[str, Need]] = {
    LATENCY: Need.THREAD_SLICE,
    LAYOUT: Need.THREAD_CPUS,
    SHARE: Need.THREAD_NICE,
}
"""Each answer, and the lever that gives it."""
DEFAULT_SLICE_US: Final = 100
"""The shortest timeslice that the kernel takes."""
DEFAULT_PERIOD_S: Final = 0.1
DEFAULT_HOLD_PERIODS: Final = 1
"""The source decides for the upcoming period alone."""
_JITTER_S: Final = 0.02
"""By how much a period may be too short: a tick that follows a late one comes early after it."""


class DasecController:
    """Answers interference with the threads on the critical path, period by period.

    Args:
        answers: Which of :data:`ANSWERS` are given.
        slice_us: The timeslice of a thread with a low rescheduling latency.
        period_s: The length of a period, at least but for jitter; it ends with a tick.
        hold_periods: For how many periods an answer to a delay holds.
        memory: Decides about everything but threads; ``None`` to leave that alone.
    """

    name = "dasec"
    needs_processes = False
    needs_threads = True

    def __init__(
        self,
        answers: Sequence[str] = tuple(ANSWERS),
        *,
        slice_us: int = DEFAULT_SLICE_US,
        period_s: float = DEFAULT_PERIOD_S,
        hold_periods: int = DEFAULT_HOLD_PERIODS,
        memory: Controller | None = None,
    ) -> None:
        self._answers = frozenset(answers)
        self._slice_us = slice_us
        self._period_s = period_s
        self._hold_periods = hold_periods
        self._memory = memory
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def check(self, context: NodeContext) -> None:
        """Check that a node counts what threads ran and waited, and can give the answers.

        Raises:
            ControllerError: If it lacks these counts, a lever on the threads, or the consent.
        """
        needs = [need for answer, need in ANSWERS.items() if answer in self._answers]
        require_needs(self.name, (*needs, Need.THREAD_TIMES), context)

    def reset(self, context: NodeContext) -> None:
        """Forget everything."""
        self._forget_threads()
        if self._memory is not None:
            self._memory.reset(context)

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target, which only the memory depends on."""
        if isinstance(self._memory, RetargetableController):
            self._memory.retarget(slo_ms)

    def _forget_threads(self) -> None:
        self._before: tuple[ThreadSample, ...] = ()
        self._before_s: float | None = None
        self._own: dict[ThreadRef, OwnValues] = {}
        self._low_periods: dict[ThreadRef, int] = {}
        """For how many more periods a thread has a low rescheduling latency."""
        self._cpu: dict[ThreadRef, int] = {}
        self._nice: dict[ThreadRef, int] = {}
        self._wanted: tuple[ThreadDesire, ...] = ()
        self._reason = "the first period has not ended"

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Judge the period that ends now; repeat the last decision within a period."""
        threads = sample.protected_threads
        if threads is None:
            self._forget_threads()
            self._reason = "the application's threads are not known"
        else:
            self._watch(threads, sample.time_s)
        if self._memory is None:
            desired, reason = RELEASED, self._reason
        else:
            beside = self._memory.decide(sample, observation)
            desired, reason = beside.desired, f"{self._reason}; {beside.reason}"
        return Decision(desired=replace(desired, protected_threads=self._wanted), reason=reason)

    def _watch(self, threads: tuple[ThreadSample, ...], time_s: float) -> None:
        wanted = {desire.thread for desire in self._wanted}
        self._own = remember_own(self._own, threads, wanted, time_s)
        if self._before_s is not None:
            passed_s = time_s - self._before_s
            if passed_s < self._period_s - min(_JITTER_S, self._period_s / 2):
                return
            self._judge(threads, int(passed_s * 1e6))
        self._before, self._before_s = threads, time_s

    def _judge(self, threads: tuple[ThreadSample, ...], period_us: int) -> None:
        """Decide for the next period."""
        periods = thread_periods(self._before, threads, period_us)
        path = critical_path(periods)
        critical = [period for period in periods if period.thread in path]
        late = [period for period in critical if delayed(period)]
        lacking = [period for period in critical if lacks_share(period)]
        self._note_low(late)
        moved = self._lay_out(periods, period_us)
        self._nice = self._share_out(threads, periods, lacking, path)
        self._reason = (
            f"{len(path)} of {len(periods)} threads critical: {len(late)} delayed, "
            f"{moved} interrupted, {len(lacking)} lack share"
        )
        self._wanted = tuple(
            desire for thread in threads if (desire := self._desire(thread.ref)) is not None
        )

    def _note_low(self, late: Sequence[ThreadPeriod]) -> None:
        """Note which threads have a low rescheduling latency in the next period."""
        self._low_periods = {
            thread: left - 1 for thread, left in self._low_periods.items() if left > 1
        }
        self._low_periods |= {period.thread: self._hold_periods for period in late}

    def _lay_out(self, periods: Sequence[ThreadPeriod], period_us: int) -> int:
        """Choose cores for low-latency threads; returns how many are moved now."""
        self._cpu = {ref: cpu for ref, cpu in self._cpu.items() if ref in self._low_periods}
        if LAYOUT not in self._answers:
            return 0
        placed = [
            replace(period, cpu=self._cpu.get(period.thread, period.cpu)) for period in periods
        ]
        low = [period for period in placed if period.thread in self._low_periods]
        new = moves(low, placed, period_us, {ref: own.cpus for ref, own in self._own.items()})
        self._cpu |= new
        return len(new)

    def _share_out(
        self,
        threads: Sequence[ThreadSample],
        periods: Sequence[ThreadPeriod],
        lacking: Sequence[ThreadPeriod],
        path: frozenset[ThreadRef],
    ) -> dict[ThreadRef, int]:
        """Choose the nice values of the next period; the total of each application stays."""
        if SHARE not in self._answers:
            return {}
        neediest = [
            period.thread for period in sorted(lacking, key=lambda one: (-one.wait_us, one.thread))
        ]
        donors = [
            period.thread
            for period in sorted(periods, key=lambda one: (one.demand_us, one.thread))
            if period.active and period.thread not in path
        ]
        applications: dict[int, list[ThreadRef]] = defaultdict(list)
        for thread in threads:
            applications[thread.application].append(thread.ref)
        nices: dict[ThreadRef, int] = {}
        for refs in applications.values():
            own = {ref: self._own[ref].nice for ref in refs}
            now = {ref: self._nice.get(ref, nice) for ref, nice in own.items()}
            now = give_back_share(own, now, keep=neediest)
            nices |= shift_share(
                own,
                now,
                [ref for ref in neediest if ref in own],
                [ref for ref in donors if ref in own],
            )
        return nices

    def _desire(self, thread: ThreadRef) -> ThreadDesire | None:
        own = self._own[thread]
        low = LATENCY in self._answers and thread in self._low_periods
        nice = self._nice.get(thread, own.nice)
        cpu = self._cpu.get(thread)
        desire = ThreadDesire(
            thread=thread,
            slice_us=self._slice_us if low else None,
            nice=nice if nice != own.nice else None,
            cpus=() if cpu is None else (cpu,),
        )
        return None if desire == ThreadDesire(thread=thread) else desire


def _make(arguments: Mapping[str, str]) -> DasecController:
    answers = tuple(arguments.get("answers", "+".join(ANSWERS)).split("+"))
    unknown = [answer for answer in answers if answer not in ANSWERS]
    if unknown:
        raise ControllerError(
            f"answers={arguments['answers']!r}: {unknown[0]!r} is none of {', '.join(ANSWERS)}.",
            next_step="Join those that are wanted with a plus sign, as answers=latency+share.",
        )
    memory = arguments.get("memory")
    if memory not in {None, partition.ENTRY.name}:
        raise ControllerError(
            f"memory={memory!r} is no controller that runs beside this one.",
            next_step=f"Write memory={partition.ENTRY.name}, or leave it out.",
        )
    return DasecController(
        answers,
        slice_us=int(number(arguments, "slice_us", DEFAULT_SLICE_US, low=100, high=100_000)),
        period_s=number(arguments, "period_s", DEFAULT_PERIOD_S, low=0.01, high=60.0),
        hold_periods=int(
            number(arguments, "hold_periods", DEFAULT_HOLD_PERIODS, low=1, high=1000)
        ),
        memory=None if memory is None else partition.ENTRY.make({}),
    )


ENTRY = ControllerEntry(
    name="dasec",
    summary="moves interference off the critical path of the application's own threads",
    make=_make,
    parameters={
        "answers": f"what it does, joined with +: {', '.join(ANSWERS)} (default: all)",
        "slice_us": f"timeslice of a delayed thread, microseconds (default {DEFAULT_SLICE_US})",
        "period_s": f"seconds between decisions, at least (default {DEFAULT_PERIOD_S})",
        "hold_periods": "periods for which a delayed thread has the short timeslice "
        f"(default {DEFAULT_HOLD_PERIODS})",
        "memory": "partition: share the memory, too (default: threads only)",
    },
)
