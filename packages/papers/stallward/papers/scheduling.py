"""What each thread of the applications did in a period, what got in its way, and the answers. Pure.

Source: "Achieving Low Latency in Public Edges by Hiding Workloads Mutual Interference" (DASEC),
slides of the ACM Symposium on Cloud Computing, whose words are quoted.

*Critical path.* Each application has its own. The source defines it as the longest execution path from the start of a workload to
its end, and judges that a task is on it if "all the other tasks of the workload depend on the task
to make progress". It does not say how that is seen. Here it is seen in what /proc tells:

* One thread runs or is ready, and all others that had anything to do are asleep. None of them
  makes progress until this one does: it is the critical path.
* Several threads run or are ready, or none. None then holds up all the others, and the workload
  ends with its longest part. So the definition decides: the path is the thread that wanted to run
  for the longest, and those that wanted to for nearly as long.

*Layout.* "Adjust the layout of threads/processes on cores in a conservative way". Cores are shared,
so the threads of all applications are laid out together. Here conservative means:
only threads in a conflict are moved, one from each CPU in a period, the one that wants to run for
the shortest time, and only to a CPU where there is then less to share than where it was.

*Share.* "Keep total timeslice of the app fixed and allocate more time share to the
threads/processes on app's critical path". A thread's weight can only be set by its nice value, in
steps of a quarter. So the total never rises, and falls by less than the step of one thread. Only
threads that had something to do give anything: the weight of a thread that sleeps takes no time
from anyone, and would be no fair price.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.water_filling import water_fill
from stallward.agent.threads import (
    BEST_NICE,
    MOST_STEPS,
    WORST_NICE,
    ThreadRef,
    ThreadSample,
    nice_weight,
    total_weight,
)

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
    application: int = 0
    """The number of the application that it belongs to."""
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
            application=end.application,
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


# ---------- What gets in the way of a thread


def delayed(period: ThreadPeriod) -> bool:
    """Whether the thread starts late.

    "At the end of previous time period, a thread/process was in 'ready' or 'running' status and
    its timeslice was not used up." The source monitors "states and events": a wait within the
    period that has ended counts as well.
    """
    return (period.ready or period.waited) and not period.used_up_timeslice


def lacks_share(period: ThreadPeriod) -> bool:
    """Whether the thread has too little of the CPU.

    "Threads/processes were preempted due to depletion of timeslice in previous time period."
    """
    return period.preemptions > 0 and period.waited and period.used_up_timeslice


def loads(periods: Iterable[ThreadPeriod]) -> dict[int, int]:
    """How long the application's threads wanted to run on each CPU, microseconds."""
    load_us: dict[int, int] = defaultdict(int)
    for period in periods:
        load_us[period.cpu] += period.demand_us
    return dict(load_us)


def conflicts(
    low_latency: Iterable[ThreadPeriod], load_us: Mapping[int, int], period_us: int
) -> dict[int, tuple[ThreadPeriod, ...]]:
    """The CPUs on which threads with a low rescheduling latency interrupt one another.

    "Threads/processes with low rescheduling latencies are scheduled on the same core or their
    total timeslices exceed core's capacity." The timeslice that a thread needs in a period is the
    time for which it wanted to run in the last one.

    Args:
        low_latency: The threads with a low rescheduling latency.
        load_us: How long all of the application's threads wanted to run on each CPU.
        period_us: The length of the period, which is the capacity of a core.

    Returns:
        The CPUs with a conflict, ascending, and the threads on each.
    """
    on_cpu: dict[int, list[ThreadPeriod]] = defaultdict(list)
    for period in low_latency:
        on_cpu[period.cpu].append(period)
    return {
        cpu: tuple(threads)
        for cpu, threads in sorted(on_cpu.items())
        if len(threads) > 1 or load_us.get(cpu, 0) > period_us
    }


# ---------- The critical path


def critical_path(periods: Sequence[ThreadPeriod]) -> frozenset[ThreadRef]:
    """The threads on the critical paths; an application without anything to do has none.

    Args:
        periods: All threads of all applications in one period.
    """
    active: dict[int, list[ThreadPeriod]] = defaultdict(list)
    for period in periods:
        if period.active:
            active[period.application].append(period)
    return frozenset[ThreadRef]().union(*map(_path_of_one, active.values()))


def _path_of_one(active: Sequence[ThreadPeriod]) -> frozenset[ThreadRef]:
    """The critical path of one application, of whose threads these had something to do."""
    ready = [period for period in active if period.ready]
    if len(ready) == 1:
        return frozenset({ready[0].thread})
    longest_us = max(period.demand_us for period in active)
    return frozenset(
        period.thread for period in active if period.demand_us >= NEARLY_RATIO * longest_us
    )


# ---------- The answers: layout and share


def moves(
    low_latency: Iterable[ThreadPeriod],
    periods: Iterable[ThreadPeriod],
    period_us: int,
    cpus_of: Mapping[ThreadRef, tuple[int, ...]],
) -> dict[ThreadRef, int]:
    """The threads to move, and the CPU for each.

    Args:
        low_latency: The threads with a low rescheduling latency.
        periods: All threads of the application, these included.
        period_us: The length of a period.
        cpus_of: The CPUs that each thread may run on by itself.
    """
    load_us = loads(periods)
    moved: dict[ThreadRef, int] = {}
    for cpu, there in conflicts(low_latency, dict(load_us), period_us).items():
        thread = min(there, key=lambda one: (one.demand_us, one.thread))
        others = [other for other in cpus_of.get(thread.thread, ()) if other != cpu]
        target = min(others, key=lambda other: (load_us.get(other, 0), other), default=None)
        if target is None or load_us.get(target, 0) + thread.demand_us >= load_us[cpu]:
            continue
        moved[thread.thread] = target
        load_us[cpu] -= thread.demand_us
        load_us[target] = load_us.get(target, 0) + thread.demand_us
    return moved


def shift_share(
    own: Mapping[ThreadRef, int],
    now: Mapping[ThreadRef, int],
    lacking: Iterable[ThreadRef],
    donors: Collection[ThreadRef],
) -> dict[ThreadRef, int]:
    """Give each lacking thread one step more weight, taken from the donors.

    Args:
        own: The nice value that each thread has by itself.
        now: The nice values of the last period, for the same threads.
        lacking: The threads that lack share, the neediest first.
        donors: The threads that may give, those that miss it least first.

    Returns:
        The nice values for the next period. The sum of their weights is at most that of ``own``.
    """
    nices = dict(now)
    limit = total_weight(own.values())
    for thread in lacking:
        wanted = nices[thread] - 1
        if wanted < max(own[thread] - MOST_STEPS, BEST_NICE):
            continue
        tried = _paid({**nices, thread: wanted}, own, donors, limit, thread)
        if tried is not None:
            nices = tried
    return nices


def _paid(
    nices: dict[ThreadRef, int],
    own: Mapping[ThreadRef, int],
    donors: Collection[ThreadRef],
    limit: int,
    gaining: ThreadRef,
) -> dict[ThreadRef, int] | None:
    """Take weight from donors until the total is within the limit; ``None`` if it cannot be."""
    while total_weight(nices.values()) > limit:
        givers = [
            thread
            for thread in donors
            if thread != gaining and nices[thread] < min(own[thread] + MOST_STEPS, WORST_NICE)
        ]
        if not givers:
            return None
        least_taken = min(givers, key=lambda thread: nices[thread] - own[thread])
        nices[least_taken] += 1
    return nices


def give_back_share(
    own: Mapping[ThreadRef, int],
    now: Mapping[ThreadRef, int],
    keep: Collection[ThreadRef] = (),
) -> dict[ThreadRef, int]:
    """Bring the nice values one step nearer to the threads' own, but not those of ``keep``.

    Threads that gained give first; the donors get back as much as the total allows. Where a donor
    has ended, those that it gave to go back further, those of ``keep``, too: the total has shrunk.
    """
    nices = dict(now)
    for thread, nice in now.items():
        if nice < own[thread] and thread not in keep:
            nices[thread] = nice + 1
    limit = total_weight(own.values())
    while total_weight(nices.values()) > limit:
        most_gained = min(nices, key=lambda thread: (nices[thread] - own[thread], thread))
        nices[most_gained] += 1
    for thread in sorted(nices, key=lambda one: (own[one] - nices[one], one)):
        while nices[thread] > own[thread]:
            gain = nice_weight(nices[thread] - 1) - nice_weight(nices[thread])
            if total_weight(nices.values()) + gain > limit:
                break
            nices[thread] -= 1
    return nices
