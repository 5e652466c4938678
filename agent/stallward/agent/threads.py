"""The threads of the protected application: what was read of them, and what is wanted of them.

Also what their nice values weigh, and what each of them has by itself, told from what a controller
gave it. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ThreadRef:
    """One thread, identified by its number and start time: a reused number is never acted on."""

    tid: int
    start_time_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSample:
    """One thread of a protected application, from /proc/PID/task/TID and sched_getattr(2)."""

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
    application: int = 0
    """The number of the protected application that it belongs to, from 0."""

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


NICE_WEIGHTS: Final = (
    88761, 71755, 56483, 46273, 36291,
    29154, 23254, 18705, 14949, 11916,
    9548, 7620, 6100, 4904, 3906,
    3121, 2501, 1991, 1586, 1277,
    1024, 820, 655, 526, 423,
    335, 272, 215, 172, 137,
    110, 87, 70, 56, 45,
    36, 29, 23, 18, 15,
)  # fmt: skip
"""The weight of each nice value from -20 to 19 (``sched_prio_to_weight`` in the kernel)."""
BEST_NICE: Final = -20
WORST_NICE: Final = 19
MOST_STEPS: Final = 5
"""How far a nice value may move from the thread's own: to about 3 times the share, or a third."""


def nice_weight(nice: int) -> int:
    """The kernel's weight of a nice value, which is -20..19."""
    return NICE_WEIGHTS[nice - BEST_NICE]


def total_weight(nices: Iterable[int]) -> int:
    """The sum of the weights of nice values."""
    return sum(nice_weight(nice) for nice in nices)


SETTLED_S: Final = 2.0
"""A thread of which nothing was wanted for so long has its own values again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnValues:
    """The values that a thread has by itself."""

    nice: int
    cpus: tuple[int, ...]
    changed_s: float
    """When anything was last wanted of the thread; minus infinity if nothing ever was."""


def remember_own(
    known: Mapping[ThreadRef, OwnValues],
    threads: Collection[ThreadSample],
    wanted: Collection[ThreadRef],
    time_s: float,
) -> dict[ThreadRef, OwnValues]:
    """The values of each thread in the sample by itself.

    A thread that nothing is wanted of has its own values. What a thread has while something is
    wanted of it, and shortly afterwards, is not its own: it keeps what was known of it.

    Args:
        known: The result for the last sample.
        threads: The threads now.
        wanted: The threads of which anything is wanted since the last sample.
        time_s: The time of the sample.
    """
    own = {}
    for thread in threads:
        before = known.get(thread.ref)
        changed_s = float("-inf") if before is None else before.changed_s
        if thread.ref in wanted:
            changed_s = time_s
        if before is None or time_s - changed_s >= SETTLED_S:
            own[thread.ref] = OwnValues(
                nice=thread.nice,
                cpus=thread.cpus,
                changed_s=changed_s,
            )
        else:
            own[thread.ref] = OwnValues(
                nice=before.nice,
                cpus=before.cpus,
                changed_s=changed_s,
            )
    return own
