"""What each thread did in one period, from two samples of it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.water_filling import water_fill
from stallward.agent.threads import ThreadRef, ThreadSample, nice_weight

NEARLY_RATIO: Final = 0.9
"""This share of a time is nearly all of it: a period is read to the nearest tick of many threads,
one after the other."""
LATE_RATIO: Final = 0.01
"""A thread that waits for this share of the period has waited: 1 ms in 0.1 s."""
_READY: Final = "R"
_OTHERS_NICE: Final = 0
"""The nice value of other programs' threads, which are not read."""


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
    timeslice_us: float
    """Its part of the period on its CPU, by the weights of all who wanted to run there, but no
    more than it wanted."""
    period_us: int
    """How long the period was."""

    @property
    def demand_us(self) -> int:
        """The time that it wanted to run: it ran, or it waited for a CPU."""
        return self.run_us + self.wait_us

    @property
    def active(self) -> bool:
        """Whether it had anything to do."""
        return self.ready or self.demand_us > 0

    @property
    def waited(self) -> bool:
        """Whether it waited for a CPU for longer than it takes to be chosen."""
        return self.wait_us >= LATE_RATIO * self.period_us

    @property
    def used_up_timeslice(self) -> bool:
        """Whether it ran for its part of the period."""
        return self.run_us >= NEARLY_RATIO * self.timeslice_us


def thread_periods(
    before: Iterable[ThreadSample], now: Iterable[ThreadSample], period_us: int
) -> tuple[ThreadPeriod, ...]:
    """What each thread did between two samples; a thread that is not in both has no period.

    Args:
        before: The threads at the start of the period.
        now: The threads at its end, in whose order the periods are returned.
        period_us: The time between the two.
    """
    starts = {thread.ref: thread for thread in before}
    ends = [thread for thread in now if thread.ref in starts]
    ran = [max(end.run_us - starts[end.ref].run_us, 0) for end in ends]
    waited = [max(end.wait_us - starts[end.ref].wait_us, 0) for end in ends]
    timeslices = _timeslices([starts[end.ref] for end in ends], ends, ran, waited, period_us)
    return tuple(
        ThreadPeriod(
            thread=end.ref,
            ready=end.state == _READY,
            cpu=end.cpu,
            run_us=ran[i],
            wait_us=waited[i],
            preemptions=max(end.involuntary_switches - starts[end.ref].involuntary_switches, 0),
            timeslice_us=timeslices[i],
            period_us=period_us,
        )
        for i, end in enumerate(ends)
    )


def _timeslices(
    starts: Sequence[ThreadSample],
    ends: Sequence[ThreadSample],
    ran: Sequence[int],
    waited: Sequence[int],
    period_us: int,
) -> list[float]:
    """The part of each thread in the period, as the weights on its CPU divide that.

    Threads of other programs are not read. They cannot have run for longer than the application's
    threads left, and count as one thread that wanted as much.
    """
    on_cpu: dict[int, list[int]] = defaultdict(list)
    for i, end in enumerate(ends):
        on_cpu[end.cpu].append(i)
    parts = [0.0] * len(ends)
    for there in on_cpu.values():
        others_us = max(period_us - sum(ran[i] for i in there), 0)
        wants = [*(float(ran[i] + waited[i]) for i in there), float(others_us)]
        weights = [
            *(float(nice_weight(starts[i].nice)) for i in there),
            float(nice_weight(_OTHERS_NICE)),
        ]
        divided, _ = water_fill(period_us, wants, [0.0] * len(wants), weights)
        for i, part in zip(there, divided, strict=False):
            parts[i] = part
    return parts
