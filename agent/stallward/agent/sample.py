"""What was read from the node at one tick.

Every value that could not be read is ``None``, never zero. Counters are cumulative, as the
kernel reports them. Rates are computed later from two samples and their monotonic times, because
the averages in PSI files are updated only every two seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from stallward.agent.latency_histogram import LatencyHistogram
from stallward.agent.threads import ThreadSample


@dataclass(frozen=True, slots=True, kw_only=True)
class PsiTotals:
    """Stall totals of one group or of the node, in microseconds (Documentation/accounting/psi)."""

    memory_some_us: int | None = None
    memory_full_us: int | None = None
    io_some_us: int | None = None
    io_full_us: int | None = None
    cpu_some_us: int | None = None
    cpu_full_us: int | None = None


UNBOUND: Final = "stallward-unbound/"
"""How the name of a group begins that stands for a pod that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSample:
    """The counters of one cgroup or process tree (see ``stallward.actuator.sensors``)."""

    name: str
    psi: PsiTotals = field(default_factory=PsiTotals)
    memory_usage_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """``None`` means no limit (v2 ``max``, v1 a page short of 2^63)."""
    anon_bytes: int | None = None
    file_bytes: int | None = None
    inactive_file_bytes: int | None = None
    swap_bytes: int | None = None
    dirty_bytes: int | None = None
    writeback_bytes: int | None = None
    refault_file_pages: int | None = None
    refault_anon_pages: int | None = None
    major_faults: int | None = None
    cpu_usage_us: int | None = None
    cpu_user_us: int | None = None
    """The part of ``cpu_usage_us`` outside the kernel, so without page faults and reclaim."""
    oom_kills: int | None = None
    frozen: bool | None = None
    working_set_bytes: int | None = None
    """Memory that the group needs in order not to refault, estimated from its refaults."""
    high_events: int | None = None
    """How often memory.high throttled the group (v2 memory.events)."""
    max_events: int | None = None
    """How often usage was about to exceed the limit (v2 memory.events, v1 memory.failcnt)."""
    cpu_throttled_us: int | None = None
    """Time for which cpu.max throttled the group."""
    io_read_bytes: int | None = None
    io_written_bytes: int | None = None
    run_delay_us: int | None = None
    """Time that its processes waited for a CPU, summed over them (/proc/PID/schedstat)."""
    pss_bytes: int | None = None
    """Proportional share of resident memory, summed over its processes
    (/proc/PID/smaps_rollup)."""
    page_cache_hits: int | None = None
    """Page-cache lookups by its processes that found the page (eBPF)."""
    page_cache_misses: int | None = None
    scanned_pages: int | None = None
    """Pages that reclaim looked at in the group (v2 memory.stat ``pgscan``)."""
    swap_room_bytes: int | None = None
    """How much of its memory may still go to swap, by the limits of the group, of those around it
    and of those inside (v2 memory.swap.max); ``None`` means no limit."""
    turn_read_s: float | None = None
    """CLOCK_MONOTONIC of the last read of the signals that are not read at every tick
    (docs/reference/signals.md)."""

    @property
    def bound(self) -> bool:
        """Whether there is a group; not while a pod that it was or will be is not there."""
        return not self.name.startswith(UNBOUND)

    @property
    def runs(self) -> bool:
        """Whether there is a group with memory; not while the service behind it has ended."""
        return self.bound and self.memory_usage_bytes is not None

    @property
    def refaulted_pages(self) -> int | None:
        """File and anonymous refaults; major faults where the kernel does not count refaults."""
        file, anon = self.refault_file_pages, self.refault_anon_pages
        if file is None and anon is None:
            return self.major_faults
        return (file or 0) + (anon or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    """The counters of the whole machine, from /proc."""

    psi: PsiTotals = field(default_factory=PsiTotals)
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    dirty_bytes: int | None = None
    writeback_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    swap_in_pages: int | None = None
    swap_out_pages: int | None = None
    major_faults: int | None = None
    refault_file_pages: int | None = None
    refault_anon_pages: int | None = None
    scan_kswapd_pages: int | None = None
    scan_direct_pages: int | None = None
    steal_kswapd_pages: int | None = None
    steal_direct_pages: int | None = None
    allocation_stalls: int | None = None
    page_cache_hits: int | None = None
    page_cache_misses: int | None = None
    cpu_time_us: int | None = None
    """Time of all CPUs together, whatever they did in it."""
    cpu_idle_us: int | None = None
    """The part of it in which they had nothing to run, waits for disks included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySample:
    """The requests of the protected application that completed in the last window."""

    window_s: float = 1.0
    completed: int = 0
    """Requests completed inside the window; the quantiles are ``None`` when it is 0."""
    completed_total: int = 0
    mean_ms: float | None = None
    p95_ms: float | None = None
    max_ms: float | None = None
    last_completion_age_s: float | None = None
    """Seconds since the last completion; ``None`` before the first."""
    new_requests: LatencyHistogram | None = None
    """The latencies of the requests that were seen since the last sample, each in exactly one
    sample; ``None`` where nobody counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationSample:
    """One of several protected applications."""

    name: str
    """Its name in the configuration."""
    slo_ms: float
    """Its own latency target."""
    group: GroupSample
    latency: LatencySample | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """One process of a background group, or of the protected application."""

    pid: int
    start_time_ticks: int
    """Field 22 of /proc/PID/stat; with the pid it identifies the process for good."""
    slot: int
    """The background slot; -1 for the protected application."""
    oom_score: int
    stopped: bool
    rss_bytes: int | None = None
    pss_bytes: int | None = None
    anon_bytes: int | None = None
    file_bytes: int | None = None
    swap_bytes: int | None = None
    run_delay_us: int | None = None
    page_cache_hits: int | None = None
    page_cache_misses: int | None = None
    read_s: float | None = None
    """CLOCK_MONOTONIC of this read: processes are read in turn, not all in one tick."""


class WorkSource(StrEnum):
    """Where the work of a slot is counted."""

    CPU = "cpu"
    """By the kernel, as the processor time of its group."""
    FILE = "file"
    PROMETHEUS = "prometheus"
    COMMAND = "command"


class WorkFault(StrEnum):
    """Why the work since the last reading is not known."""

    NONE = "none"
    """It is known."""
    NOT_READ = "not-read"
    """Nothing was read yet."""
    ABSENT = "absent"
    """There is no such file, line or series."""
    UNREADABLE = "unreadable"
    """It is there, or should be, and cannot be read."""
    NO_NUMBER = "no-number"
    NOT_FINITE = "not-finite"
    NEGATIVE = "negative"
    TOO_LARGE = "too-large"
    """Beyond 2^53, where not every whole number can be told from the next."""
    FELL = "fell"
    """The counter is lower than before: what it counts was started again, or it was set back."""
    CHANGED = "changed"
    """Other series than before are selected."""
    LATE = "late"
    """It was not read in time; the next reading makes up for it."""
    FAILED = "failed"
    """The command ended with an error."""
    SILENT = "silent"
    """The process that reads it says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSample:
    """The work that one slot has done, as a source of its own counts it.

    Its rate between two samples is the growth of ``units`` over that of ``known_s``. Both start
    at 0 again with the process that reads the source; what falls between two samples is no rate.
    """

    slot: int
    source: WorkSource
    unit: str
    """What it counts, as the configuration calls it."""
    units: float = 0.0
    """The work in all spans in which it was known."""
    known_s: float = 0.0
    """The length of these spans together."""
    read_s: float | None = None
    """CLOCK_MONOTONIC of the last reading; ``None`` before the first."""
    fault: WorkFault = WorkFault.NONE
    """Why the time since that reading is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverState:
    """One lever that is not at its original value, or that another program has changed."""

    lever: str
    """Kind and group, such as ``cpu_weight:hog0``."""
    value: str
    """The value in force, as it was written."""
    held_for_s: float = 0.0
    foreign: bool = False
    """Whether another program changed the setting, so that the daemon stepped aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState:
    """The pauses and the limit of one slot, as the loop keeps account of them."""

    paused: bool = False
    paused_for_s: float = 0.0
    """How long the present pause has lasted; 0 when running."""
    since_thaw_s: float = 1e6
    """How long the slot has been running since its last pause; large if it was never paused."""
    paused_share: float = 0.0
    """Share of the last minute spent paused."""
    limit_bytes: int | None = None
    """The limit in force; ``None`` for none."""
    reference_bytes: int | None = None
    """What the group uses when it is unlimited; limit levels are shares of it.

    It is the most that the group has held in memory and swap while running, and decays with a time
    constant of 60 s to what the group uses without a limit. It is ``None`` until the group has
    held 4 MiB. Under a limit it grows only with what the group swaps."""
    memory_waits: int = 0
    """How often its processes had to wait for memory under a limit, since the loop started. Only
    v1 groups wait, where the kernel would kill otherwise; v2 memory.high slows down instead."""
    longest_pause_s: float | None = None
    """The longest pause that its pod allows; ``None`` if it sets no bound."""
    shortest_run_s: float | None = None
    """How long it must run after each pause, for its pod."""
    least_limit_bytes: int | None = None
    """The least limit that the guard would let it run under; ``None`` where it sets no bound. Without
    swap a running v1 group can hardly be limited at all (``stallward.actuator.guard.workable``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All raw signals of one tick."""

    sequence: int
    """The number of the tick."""
    time_s: float
    """CLOCK_MONOTONIC at the start of the read."""
    node: NodeSample
    zone: GroupSample
    """What the protected application and the background share: the sandbox's parent group, or
    the whole machine."""
    protected: GroupSample
    """The protected application; where there are several, all of them as if they were one group."""
    slots: tuple[GroupSample, ...] = ()
    """The background groups, in the order of their slots."""
    slot_states: tuple[SlotState, ...] = ()
    """The state of each of ``slots``."""
    latency: LatencySample | None = None
    """The application's latencies; where there are several, those of the one that is farthest from
    its target, as if that were the node's (``stallward.agent.applications``)."""
    applications: tuple[ApplicationSample, ...] = ()
    """Each protected application, in the order of the configuration; empty where there is one."""
    processes: tuple[ProcessSample, ...] | None = None
    """The processes of the protected and the background groups; ``None`` when no controller needs
    them.

    The processes of the protected application have slot -1: they are never acted on."""
    protected_threads: tuple[ThreadSample, ...] | None = None
    """The threads of the protected application; ``None`` when no controller needs them, or they
    cannot be read."""
    profile: str = "default"
    """The tuning profile in force when the sample was read."""
    levers: tuple[LeverState, ...] = ()
    """Every lever that is not at its original value, apart from the pauses and limits in
    ``slot_states``."""
    work: tuple[WorkSample, ...] = ()
    """The work of the slots that have a source of their own; that of the others is their processor
    time."""


def or_nan(value: float | None) -> float:
    """The value as a float; NaN where it could not be read."""
    return math.nan if value is None else float(value)
