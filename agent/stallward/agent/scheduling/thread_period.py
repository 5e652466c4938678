"""What each thread did in one period, from two samples of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stallward.agent.threads import ThreadRef, ThreadSample

USUAL_SLICE_US: Final = 2_800
"""The timeslice of Linux on eight processors or more (0.7 ms, once for each doubling and once
more: ``sysctl_sched_base_slice``), assumed where the kernel does not tell a thread's own."""
_READY: Final = "R"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPeriod:
    """One thread in the period between two samples."""

    thread: ThreadRef
    ready: bool
    """Whether it was running or ready to run at the end of the period."""
    cpu: int
    """The CPU that it ran on last."""
    run_us: int
    """How long it ran."""
    wait_us: int
    """How long it waited for a CPU."""
    preemptions: int
    """How often it lost the CPU while it wanted to run on."""
    slice_us: int
    """Its timeslice."""

    @property
    def demand_us(self) -> int:
        """The time that it wanted to run: it ran, or it waited for a CPU."""
        return self.run_us + self.wait_us

    @property
    def active(self) -> bool:
        """Whether it had anything to do."""
        return self.ready or self.demand_us > 0

    @property
    def used_up_slice(self) -> bool:
        """Whether it was preempted because its timeslice was used up.

        The kernel counts preemptions but not their causes. The thread ran long enough for each of
        them to have come at the end of a whole timeslice; one that is preempted earlier, by a
        thread with an earlier deadline, has run for less.
        """
        return self.preemptions > 0 and self.run_us >= self.preemptions * self.slice_us


def thread_periods(
    before: Iterable[ThreadSample], now: Iterable[ThreadSample]
) -> tuple[ThreadPeriod, ...]:
    """What each thread did between two samples; a thread that is not in both has no period.

    Args:
        before: The threads at the start of the period.
        now: The threads at its end, in whose order the periods are returned.
    """
    starts = {thread.ref: thread for thread in before}
    return tuple(_period(starts[thread.ref], thread) for thread in now if thread.ref in starts)


def _period(start: ThreadSample, end: ThreadSample) -> ThreadPeriod:
    return ThreadPeriod(
        thread=end.ref,
        ready=end.state == _READY,
        cpu=end.cpu,
        run_us=max(end.run_us - start.run_us, 0),
        wait_us=max(end.wait_us - start.wait_us, 0),
        preemptions=max(end.involuntary_switches - start.involuntary_switches, 0),
        slice_us=start.slice_us or USUAL_SLICE_US,
    )
