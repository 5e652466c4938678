"""All signals: what they mean, where they come from on each kind of node, and what a read costs.

docs/reference/signals.md is made from this table, and ``missing.py`` looks up in it why a signal
is absent. A test fails when a field of a sample is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TICK: Final = "tick"
"""The signal is read every tick."""
NEAR: Final = "near"
"""The signal is read every tick where a policy sees it, else in turn; see ``EveryTick``."""
TURN: Final = "turn"
"""The signal is read in turn: of each group once in ten ticks."""
SECOND: Final = "second"
"""The signal is read once a second."""
PROCESS: Final = "process"
"""The signal is read process by process, in turn."""
THREAD: Final = "thread"
"""A separate thread reads the signal, with 0.1 % of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One field of a sample."""

    name: str
    """The field's name; the fields of ``PsiTotals`` are prefixed with ``psi.``."""
    unit: str
    """The unit of its value."""
    meaning: str
    """The meaning, in one clause."""
    v2: str = ""
    """The file on a cgroup v2 node; empty if there is none."""
    hybrid: str = ""
    """The file on a node with the v1 memory controller."""
    none: str = ""
    """The file on a node without cgroups."""
    when: str = NEAR
    """How often the signal is read: one of this module's constants."""
    zone: bool = True
    """Whether the zone has the signal, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The measured cost of reading and parsing one file."""

    file: str
    cost_us: float
    note: str = ""


MEASURED_ON: Final = "Linux 6.18, hybrid, Python 3.11, a virtual machine with 2 CPUs"
_SUMMED: Final = "; of all processes of the group, also of those that have ended"
EBPF: Final = "eBPF"


def _stat(name: str, unit: str, meaning: str, none: str = "") -> Signal:
    file = "memory.stat"
    return Signal(name=name, unit=unit, meaning=meaning, v2=file, hybrid=file, none=none)


def _psi(resource: str, line: str, meaning: str, *, when: str) -> Signal:
    return Signal(
        name=f"psi.{resource}_{line}_us",
        unit="us",
        meaning=meaning,
        v2=f"{resource}.pressure",
        hybrid=f"{resource}.pressure",
        when=when,
    )


GROUP_SIGNALS: Final = (
    _psi("memory", "some", "stall: at least one task waited for memory", when=TICK),
    _psi("memory", "full", "stall: all tasks waited for memory at once", when=TICK),
    _psi("io", "some", "stall: at least one task waited for a disk", when=NEAR),
    _psi("io", "full", "stall: all tasks waited for a disk at once", when=NEAR),
    _psi("cpu", "some", "stall: at least one task waited for a CPU", when=NEAR),
    _psi("cpu", "full", "stall: all tasks waited for a CPU at once", when=NEAR),
    Signal(
        name="memory_usage_bytes",
        unit="bytes",
        meaning="memory charged to the group and all below it",
        v2="memory.current",
        hybrid="memory.usage_in_bytes",
        none="/proc/PID/status",
        when=TICK,
    ),
    Signal(
        name="memory_limit_bytes",
        unit="bytes",
        meaning="the lowest of its limits; absent: none",
        v2="memory.max, memory.high",
        hybrid="memory.limit_in_bytes",
    ),
    _stat(
        "anon_bytes",
        "bytes",
        "anonymous and shared memory: reclaiming it needs swap",
        "/proc/PID/status",
    ),
    _stat("file_bytes", "bytes", "page cache without shared memory", "/proc/PID/status"),
    _stat("inactive_file_bytes", "bytes", "page cache that is reclaimed first"),
    Signal(
        name="swap_bytes",
        unit="bytes",
        meaning="its memory in swap; on v2 less what zswap takes for it, which is part of its usage",
        v2="memory.swap.current",
        hybrid="memory.stat",
        none="/proc/PID/status",
    ),
    _stat("dirty_bytes", "bytes", "page cache that has yet to be written"),
    _stat("writeback_bytes", "bytes", "page cache being written"),
    _stat("refault_file_pages", "pages", "file pages read again after eviction"),
    _stat("refault_anon_pages", "pages", "anonymous pages read again after eviction"),
    _stat("major_faults", "faults", "page faults that waited for a disk", "/proc/PID/stat"),
    Signal(
        name="cpu_usage_us",
        unit="us",
        meaning="CPU time used",
        v2="cpu.stat",
        hybrid="cpu.stat",
        none="/proc/PID/stat",
    ),
    Signal(
        name="cpu_user_us",
        unit="us",
        meaning="CPU time used outside the kernel: not for page faults and reclaim",
        v2="cpu.stat",
        hybrid="cpu.stat",
    ),
    Signal(
        name="oom_kills",
        unit="kills",
        meaning="processes that the kernel killed for lack of memory",
        v2="memory.events",
        hybrid="memory.oom_control",
        when=TURN,
    ),
    Signal(
        name="frozen",
        unit="yes or no",
        meaning="whether every process of it is frozen",
        v2="cgroup.events",
        hybrid="cgroup.events",
        none="/proc/PID/stat",
        when=TICK,
    ),
    Signal(
        name="working_set_bytes",
        unit="bytes",
        meaning="memory that it needs so as not to refault, estimated; absent without refaults",
        v2="memory.stat, memory.current",
        hybrid="memory.stat, memory.usage_in_bytes, /proc/PID/io",
    ),
    Signal(
        name="high_events",
        unit="times",
        meaning="memory.high throttled the group",
        v2="memory.events",
        when=TURN,
    ),
    Signal(
        name="max_events",
        unit="times",
        meaning="usage was about to exceed the limit",
        v2="memory.events",
        hybrid="memory.failcnt",
        when=TURN,
    ),
    Signal(
        name="cpu_throttled_us",
        unit="us",
        meaning="time for which a CPU limit throttled the group",
        v2="cpu.stat",
        hybrid="cpu/cpu.stat",
        when=TURN,
    ),
    Signal(
        name="io_read_bytes",
        unit="bytes",
        meaning="read from block devices" + _SUMMED,
        v2="io.stat",
        hybrid="/proc/PID/io",
        none="/proc/PID/io",
        when=TURN,
        zone=False,
    ),
    Signal(
        name="io_written_bytes",
        unit="bytes",
        meaning="written to block devices" + _SUMMED,
        v2="io.stat",
        hybrid="/proc/PID/io",
        none="/proc/PID/io",
        when=TURN,
        zone=False,
    ),
    Signal(
        name="run_delay_us",
        unit="us",
        meaning="time that threads waited for a CPU" + _SUMMED,
        v2="/proc/PID/schedstat",
        hybrid="/proc/PID/schedstat",
        none="/proc/PID/schedstat",
        when=PROCESS,
        zone=False,
    ),
    Signal(
        name="pss_bytes",
        unit="bytes",
        meaning="proportional share of resident memory, summed over processes",
        v2="/proc/PID/smaps_rollup",
        hybrid="/proc/PID/smaps_rollup",
        when=THREAD,
        zone=False,
    ),
    Signal(
        name="page_cache_hits",
        unit="lookups",
        meaning="page-cache lookups that found the page",
        v2=EBPF,
        hybrid=EBPF,
        none=EBPF,
        when=SECOND,
    ),
    Signal(
        name="page_cache_misses",
        unit="lookups",
        meaning="page-cache lookups that did not find the page",
        v2=EBPF,
        hybrid=EBPF,
        none=EBPF,
        when=SECOND,
    ),
    Signal(
        name="scanned_pages",
        unit="pages",
        meaning="looked at by reclaim",
        v2="memory.stat",
    ),
    Signal(
        name="swap_room_bytes",
        unit="bytes",
        meaning="may still go to swap, by limits of the group, around it and inside; absent: none",
        v2="memory.swap.max, .current",
        when=TURN,
    ),
    Signal(
        name="turn_read_s",
        unit="s",
        meaning="when the signals that are read in turn were read (CLOCK_MONOTONIC)",
        v2="the clock",
        hybrid="the clock",
        when=TURN,
    ),
)


def _node(name: str, unit: str, meaning: str, file: str, when: str = TICK) -> Signal:
    return Signal(
        name=name, unit=unit, meaning=meaning, v2=file, hybrid=file, none=file, when=when
    )


_MEMINFO: Final = "/proc/meminfo"
_VMSTAT: Final = "/proc/vmstat"
_STAT: Final = "/proc/stat"
NODE_SIGNALS: Final = (
    *(
        _node(
            signal.name,
            signal.unit,
            signal.meaning,
            f"/proc/pressure/{signal.name.partition('.')[2].partition('_')[0]}",
            TICK if signal.when == TICK else TURN,
        )
        for signal in GROUP_SIGNALS[:5]
    ),
    Signal(
        name="psi.cpu_full_us",
        unit="us",
        meaning="always absent: not defined for a whole machine, where the kernel writes 0",
    ),
    _node("memory_total_bytes", "bytes", "memory of the machine", _MEMINFO),
    _node("memory_available_bytes", "bytes", "memory available without swapping", _MEMINFO),
    _node("dirty_bytes", "bytes", "page cache that has yet to be written", _MEMINFO),
    _node("writeback_bytes", "bytes", "page cache being written", _MEMINFO),
    _node("swap_total_bytes", "bytes", "size of all swap", _MEMINFO),
    _node("swap_free_bytes", "bytes", "swap not in use", _MEMINFO),
    _node("swap_in_pages", "pages", "read from swap", _VMSTAT),
    _node("swap_out_pages", "pages", "written to swap", _VMSTAT),
    _node("major_faults", "faults", "page faults that waited for a disk", _VMSTAT),
    _node("refault_file_pages", "pages", "file pages read again after eviction", _VMSTAT),
    _node("refault_anon_pages", "pages", "anonymous pages read again after eviction", _VMSTAT),
    _node("scan_kswapd_pages", "pages", "scanned by kswapd", _VMSTAT),
    _node("scan_direct_pages", "pages", "scanned by tasks that needed memory", _VMSTAT),
    _node("steal_kswapd_pages", "pages", "reclaimed by kswapd", _VMSTAT),
    _node("steal_direct_pages", "pages", "reclaimed by tasks that needed memory", _VMSTAT),
    _node(
        "allocation_stalls", "times", "a task had to reclaim memory before it got some", _VMSTAT
    ),
    _node("page_cache_hits", "lookups", "page-cache lookups that found the page", EBPF, SECOND),
    _node(
        "page_cache_misses",
        "lookups",
        "page-cache lookups that did not find the page",
        EBPF,
        SECOND,
    ),
    _node("cpu_time_us", "us", "time of all CPUs, whatever they did in it", _STAT, TURN),
    _node("cpu_idle_us", "us", "the part of it with nothing to run", _STAT, TURN),
)


def _of_process(name: str, unit: str, meaning: str, file: str, when: str = PROCESS) -> Signal:
    path = file if file == EBPF else f"/proc/PID/{file}"
    return Signal(
        name=name, unit=unit, meaning=meaning, v2=path, hybrid=path, none=path, when=when
    )


PROCESS_SIGNALS: Final = (
    _of_process("pid", "", "the process", "stat"),
    _of_process(
        "start_time_ticks",
        "ticks",
        "when it started; with the pid it identifies the process",
        "stat",
    ),
    _of_process(
        "slot", "", "its slot; -1 is the protected application, which is never acted on", "stat"
    ),
    _of_process("oom_score", "", "the kernel's out-of-memory score", "oom_score"),
    _of_process("stopped", "yes or no", "whether it is stopped (SIGSTOP)", "status"),
    _of_process("rss_bytes", "bytes", "resident memory", "status"),
    _of_process("pss_bytes", "bytes", "proportional share of it", "smaps_rollup", THREAD),
    _of_process("anon_bytes", "bytes", "resident anonymous and shared memory", "status"),
    _of_process("file_bytes", "bytes", "resident file pages", "status"),
    _of_process("swap_bytes", "bytes", "its memory in swap", "status"),
    _of_process("run_delay_us", "us", "time that its threads waited for a CPU", "schedstat"),
    _of_process("page_cache_hits", "lookups", "page-cache lookups that found the page", EBPF),
    _of_process(
        "page_cache_misses", "lookups", "page-cache lookups that did not find the page", EBPF
    ),
    _of_process("read_s", "s", "when it was read (CLOCK_MONOTONIC)", "stat"),
)


def _of_thread(name: str, unit: str, meaning: str, file: str) -> Signal:
    path = file if file.endswith(")") else f"/proc/PID/task/TID/{file}"
    return Signal(
        name=name, unit=unit, meaning=meaning, v2=path, hybrid=path, none=path, when=TICK
    )


PROTECTED_THREAD_SIGNALS: Final = (
    _of_thread("pid", "", "the process that it belongs to", "stat"),
    _of_thread("tid", "", "the thread", "stat"),
    _of_thread(
        "start_time_ticks", "ticks", "when it started; with the number it identifies it", "stat"
    ),
    _of_thread("state", "", "R: running or ready to run; S and D: asleep", "stat"),
    _of_thread("cpu", "", "the CPU that it ran on last", "stat"),
    _of_thread("run_us", "us", "time that it has run", "schedstat"),
    _of_thread("wait_us", "us", "time that it was ready and waited for a CPU", "schedstat"),
    _of_thread("voluntary_switches", "times", "gave up the CPU to sleep", "status"),
    _of_thread("involuntary_switches", "times", "lost the CPU while it had work", "status"),
    _of_thread("nice", "", "its nice value", "stat"),
    _of_thread("slice_us", "us", "its timeslice, from Linux 6.12 on", "sched_getattr(2)"),
    _of_thread("cpus", "", "the CPUs that it may run on", "sched_getaffinity(2)"),
    _of_thread(
        "application", "", "the number of its application, from 0", "cgroup.procs (its group)"
    ),
)
LATENCY_SIGNALS: Final = (
    Signal(name="window_s", unit="s", meaning="length of the window"),
    Signal(name="completed", unit="requests", meaning="completed in the window"),
    Signal(name="completed_total", unit="requests", meaning="completed since the start"),
    Signal(name="mean_ms", unit="ms", meaning="mean latency in the window"),
    Signal(name="p95_ms", unit="ms", meaning="95th percentile in the window"),
    Signal(name="max_ms", unit="ms", meaning="longest in the window"),
    Signal(name="last_completion_age_s", unit="s", meaning="since the last completion seen"),
    Signal(name="new_requests", unit="requests", meaning="those since the last tick, by latency"),
)
_UNCHANGED: Final = "about 1.5 us less while it has not changed"
COSTS: Final = (
    Cost(file="memory.pressure", cost_us=3.0, note="io.pressure and cpu.pressure alike"),
    Cost(file="memory.stat", cost_us=12.8, note="3 us less while it has not changed"),
    Cost(file="memory.usage_in_bytes", cost_us=1.6),
    Cost(file="memory.limit_in_bytes", cost_us=1.8),
    Cost(file="memory.failcnt", cost_us=1.6),
    Cost(file="memory.oom_control", cost_us=3.0, note=_UNCHANGED),
    Cost(file="cpu.stat", cost_us=4.1),
    Cost(file="cpu/cpu.stat", cost_us=3.3, note=_UNCHANGED),
    Cost(file="cgroup.events", cost_us=2.8, note=_UNCHANGED),
    Cost(file="cgroup.procs", cost_us=2.7, note="of one process"),
    Cost(file="/proc/pressure/memory", cost_us=3.1, note="io and cpu alike"),
    Cost(file="/proc/meminfo", cost_us=10.6),
    Cost(file="/proc/vmstat", cost_us=28.7, note="its first piece only; all of it costs 75"),
    Cost(file="/proc/stat", cost_us=6.9, note="its first piece only"),
    Cost(file="/proc/PID/status", cost_us=12.1, note="kept open; opening any adds 5"),
    Cost(file="/proc/PID/oom_score", cost_us=1.7),
    Cost(file="/proc/PID/schedstat", cost_us=1.8, note="of each thread"),
    Cost(file="/proc/PID/io", cost_us=3.9),
    Cost(file="/proc/PID/task/TID/stat", cost_us=7.2, note="of the application's threads"),
    Cost(file="/proc/PID/task/TID/status", cost_us=13.8, note="of the application's threads"),
    Cost(
        file="/proc/PID/smaps_rollup",
        cost_us=27.3,
        note="of the smallest process; 10 ms of one with a gigabyte",
    ),
)
