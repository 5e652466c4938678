"""What was read from the node at one tick.

Every value that could not be read is ``None``: absence is a value, never zero. Counters are
cumulative as the kernel gives them; rates are computed later, from two samples and their
monotonic times, because the averages in PSI files move only every two seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PsiTotals:
    """Stall totals of one group or of the node, in microseconds (Documentation/accounting/psi)."""

    memory_some_us: int | None = None
    memory_full_us: int | None = None
    io_some_us: int | None = None
    io_full_us: int | None = None
    cpu_some_us: int | None = None
    cpu_full_us: int | None = None


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
    oom_kills: int | None = None
    frozen: bool | None = None
    working_set_bytes: int | None = None
    """What the group needs so as not to refault, estimated from its refaults."""
    high_events: int | None = None
    """How often memory.high throttled the group (v2 memory.events)."""
    max_events: int | None = None
    """How often usage was about to exceed the limit (v2 memory.events, v1 memory.failcnt)."""
    cpu_throttled_us: int | None = None
    """Time for which cpu.max held the group back."""
    io_read_bytes: int | None = None
    io_written_bytes: int | None = None
    run_delay_us: int | None = None
    """Time that its processes waited for a CPU (/proc/PID/schedstat), summed."""
    pss_bytes: int | None = None
    """Proportional share of resident memory (/proc/PID/smaps_rollup), summed."""
    page_cache_hits: int | None = None
    """Page-cache lookups by its processes that found the page (eBPF)."""
    page_cache_misses: int | None = None
    turn_read_s: float | None = None
    """CLOCK_MONOTONIC when what is not read every tick was read (docs/reference/signals.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    """Counters of the whole machine, from /proc."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySample:
    """Requests of the protected application that completed in the last window (1 s)."""

    window_s: float = 1.0
    completed: int = 0
    """Requests completed inside the window; the quantiles are ``None`` when it is 0."""
    completed_total: int = 0
    mean_ms: float | None = None
    p95_ms: float | None = None
    max_ms: float | None = None
    last_completion_age_s: float | None = None
    """Seconds since the last completion that was seen; ``None`` before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """One process of a background group, or of the protected application."""

    pid: int
    start_time_ticks: int
    """Field 22 of /proc/PID/stat: with the pid it names a process for good."""
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
    """CLOCK_MONOTONIC when this was read: processes are read in turn, not all in one tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverState:
    """One lever that is not at its original value now, or that somebody else has taken over."""

    lever: str
    """E.g. ``cpu_weight:hog0``."""
    value: str
    """What is in force, as it was written."""
    held_for_s: float = 0.0
    foreign: bool = False
    """Somebody else changed it: the daemon stepped aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState:
    """What the levers of one slot have been doing, kept by the loop."""

    paused: bool = False
    paused_for_s: float = 0.0
    """How long the present pause has lasted; 0 when running."""
    since_thaw_s: float = 1e6
    """How long the slot has been running; large if it was never paused."""
    paused_share: float = 0.0
    """Share of the last minute spent paused."""
    limit_bytes: int | None = None
    reference_bytes: int | None = None
    """What the group wants when nothing holds it back; the limit table multiplies this.

    The most that it has held in memory and swap while running; what is larger than now is
    forgotten with a time constant of 60 s, but only while it runs unlimited. ``None`` until it
    has held 4 MiB: an empty group is not limited. A limit taken while a group starts grows with
    what it swaps; one that only reads files shows its wish again when it is unlimited.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All raw signals of one tick.

    ``zone`` is what the protected application and the background share: the sandbox's parent
    group, or the whole machine. ``slots[i]`` and ``slot_states[i]`` belong together.
    """

    sequence: int
    time_s: float
    """CLOCK_MONOTONIC at the start of the read."""
    node: NodeSample
    zone: GroupSample
    protected: GroupSample
    slots: tuple[GroupSample, ...] = ()
    slot_states: tuple[SlotState, ...] = ()
    latency: LatencySample | None = None
    processes: tuple[ProcessSample, ...] | None = None
    """Processes of the protected and the background groups; ``None`` when nobody asked for them.

    Those of the protected application have slot -1: they are never acted on."""
    profile: str = "default"
    """The tuning profile in force when the sample was read."""
    levers: tuple[LeverState, ...] = ()
    """Every lever that is moved, other than the pauses and limits of ``slot_states``."""
