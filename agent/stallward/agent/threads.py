"""The threads of the protected application: what was read of them, and what is wanted of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ThreadRef:
    """One thread, identified by its number and start time: a reused number is never acted on."""

    tid: int
    start_time_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSample:
    """One thread of the protected application, from /proc/PID/task/TID and sched_getattr(2)."""

    pid: int
    """The process that it belongs to."""
    tid: int
    start_time_ticks: int
    """Field 22 of /proc/PID/task/TID/stat; with the number it identifies the thread for good."""
    state: str
    """The state as one letter: ``R`` is running or ready to run, ``S`` and ``D`` are asleep."""
    cpu: int
    """The CPU that it ran on last."""
    run_us: int
    """Time that it has run (schedstat)."""
    wait_us: int
    """Time that it has waited for a CPU while ready to run (schedstat)."""
    voluntary_switches: int
    """How often it gave up the CPU to sleep."""
    involuntary_switches: int
    """How often it lost the CPU while it wanted to run on."""
    nice: int
    slice_us: int | None = None
    """Its timeslice; ``None`` where the kernel does not tell (before Linux 6.12)."""
    cpus: tuple[int, ...] = ()
    """The CPUs that it may run on."""

    @property
    def ref(self) -> ThreadRef:
        """What identifies the thread."""
        return ThreadRef(tid=self.tid, start_time_ticks=self.start_time_ticks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadDesire:
    """What is wanted of one thread; ``None`` and an empty tuple leave the thread's own value."""

    thread: ThreadRef
    slice_us: int | None = None
    """The timeslice. A shorter one lets the thread run sooner once it is ready, for a shorter time
    at once; its share of the CPU stays (the virtual deadline of EEVDF, Linux 6.6 and later)."""
    nice: int | None = None
    """-20..19. It sets the thread's share of the CPU among the threads of its CPU group."""
    cpus: tuple[int, ...] = ()
    """The CPUs that the thread may run on."""
