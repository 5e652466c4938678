"""All signals: what they mean, and where they come from on each kind of node.

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


@dataclass(frozen=True, slots=True)
class Signal:
    """One field of a sample."""

    name: str
    """The field's name; the fields of ``PsiTotals`` are prefixed with ``psi.``."""
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


_SUMMED: Final = ", also of processes that have ended"
EBPF: Final = "eBPF"


def _file(
    name: str, meaning: str, file: str, *, none: str = "", when: str = NEAR, zone: bool = True
) -> Signal:
    """A signal that is in the same file wherever there are cgroups."""
    return Signal(name, meaning, v2=file, hybrid=file, none=none, when=when, zone=zone)


def _psi(resource: str, line: str, meaning: str, *, when: str) -> Signal:
    return _file(f"psi.{resource}_{line}_us", meaning, f"{resource}.pressure", when=when)


GROUP_SIGNALS: Final = (
    _psi("memory", "some", "stall: at least one task waited for memory", when=TICK),
    _psi("memory", "full", "stall: all tasks waited for memory at once", when=TICK),
    _psi("io", "some", "stall: at least one task waited for a disk", when=NEAR),
    _psi("io", "full", "stall: all tasks waited for a disk at once", when=NEAR),
    _psi("cpu", "some", "stall: at least one task waited for a CPU", when=NEAR),
    _psi("cpu", "full", "stall: all tasks waited for a CPU at once", when=NEAR),
    Signal(
        "memory_usage_bytes",
        "memory charged to the group and all below it",
        v2="memory.current",
        hybrid="memory.usage_in_bytes",
        none="/proc/PID/status",
        when=TICK,
    ),
    Signal(
        "memory_limit_bytes",
        "the lowest of its limits; absent: none",
        v2="memory.max, memory.high",
        hybrid="memory.limit_in_bytes",
    ),
    _file(
        "anon_bytes",
        "anonymous and shared memory: reclaiming it needs swap",
        "memory.stat",
        none="/proc/PID/status",
    ),
    _file(
        "file_bytes", "page cache without shared memory", "memory.stat", none="/proc/PID/status"
    ),
    _file("inactive_file_bytes", "page cache that is reclaimed first", "memory.stat"),
    Signal(
        "swap_bytes",
        "its memory in swap; on v2 less what zswap takes for it, which is part of its usage",
        v2="memory.swap.current",
        hybrid="memory.stat",
        none="/proc/PID/status",
    ),
    _file("dirty_bytes", "page cache that has yet to be written", "memory.stat"),
    _file("writeback_bytes", "page cache being written", "memory.stat"),
    _file("refault_file_pages", "file pages read again after eviction", "memory.stat"),
    _file("refault_anon_pages", "anonymous pages read again after eviction", "memory.stat"),
    _file(
        "major_faults", "page faults that waited for a disk", "memory.stat", none="/proc/PID/stat"
    ),
    _file("cpu_usage_us", "CPU time used", "cpu.stat", none="/proc/PID/stat"),
    _file(
        "cpu_user_us",
        "CPU time used outside the kernel: not for page faults and reclaim",
        "cpu.stat",
    ),
    Signal(
        "oom_kills",
        "processes that the kernel killed for lack of memory",
        v2="memory.events",
        hybrid="memory.oom_control",
        when=TURN,
    ),
    _file(
        "frozen",
        "whether every process of it is frozen",
        "cgroup.events",
        none="/proc/PID/stat",
        when=TICK,
    ),
    Signal(
        "working_set_bytes",
        "memory that it needs so as not to refault, estimated; absent without refaults",
        v2="memory.stat, memory.current",
        hybrid="memory.stat, memory.usage_in_bytes, /proc/PID/io",
    ),
    Signal("high_events", "memory.high throttled the group", v2="memory.events", when=TURN),
    Signal(
        "max_events",
        "usage was about to exceed the limit",
        v2="memory.events",
        hybrid="memory.failcnt",
        when=TURN,
    ),
    Signal(
        "cpu_throttled_us",
        "time for which a CPU limit throttled the group",
        v2="cpu.stat",
        hybrid="cpu/cpu.stat",
        when=TURN,
    ),
    Signal(
        "io_read_bytes",
        "read from block devices" + _SUMMED,
        v2="io.stat",
        hybrid="/proc/PID/io",
        none="/proc/PID/io",
        when=TURN,
        zone=False,
    ),
    Signal(
        "io_written_bytes",
        "written to block devices" + _SUMMED,
        v2="io.stat",
        hybrid="/proc/PID/io",
        none="/proc/PID/io",
        when=TURN,
        zone=False,
    ),
    _file(
        "run_delay_us",
        "time that threads waited for a CPU" + _SUMMED,
        "/proc/PID/schedstat",
        none="/proc/PID/schedstat",
        when=PROCESS,
        zone=False,
    ),
    _file(
        "pss_bytes",
        "proportional share of resident memory, summed over processes",
        "/proc/PID/smaps_rollup",
        when=THREAD,
        zone=False,
    ),
    _file(
        "page_cache_hits", "page-cache lookups that found the page", EBPF, none=EBPF, when=SECOND
    ),
    _file(
        "page_cache_misses",
        "page-cache lookups that did not find the page",
        EBPF,
        none=EBPF,
        when=SECOND,
    ),
    Signal("scanned_pages", "looked at by reclaim", v2="memory.stat"),
    Signal(
        "swap_room_bytes",
        "may still go to swap, by limits of the group, around it and inside; absent: none",
        v2="memory.swap.max, .current",
        when=TURN,
    ),
    _file(
        "turn_read_s",
        "when the signals that are read in turn were read (CLOCK_MONOTONIC)",
        "the clock",
        when=TURN,
    ),
)


def _node(name: str, meaning: str, file: str, when: str = TICK) -> Signal:
    return _file(name, meaning, file, none=file, when=when)


_MEMINFO: Final = "/proc/meminfo"
_VMSTAT: Final = "/proc/vmstat"
_STAT: Final = "/proc/stat"

NODE_SIGNALS: Final = (
    *(
        _node(
            signal.name,
            signal.meaning,
            f"/proc/pressure/{signal.name.partition('.')[2].partition('_')[0]}",
            TICK if signal.when == TICK else TURN,
        )
        for signal in GROUP_SIGNALS[:5]
    ),
    Signal(
        "psi.cpu_full_us",
        "always absent: not defined for a whole machine, where the kernel writes 0",
    ),
    _node("memory_total_bytes", "memory of the machine", _MEMINFO),
    _node("memory_available_bytes", "memory available without swapping", _MEMINFO),
    _node("dirty_bytes", "page cache that has yet to be written", _MEMINFO),
    _node("writeback_bytes", "page cache being written", _MEMINFO),
    _node("swap_total_bytes", "size of all swap", _MEMINFO),
    _node("swap_free_bytes", "swap not in use", _MEMINFO),
    _node("swap_in_pages", "read from swap", _VMSTAT),
    _node("swap_out_pages", "written to swap", _VMSTAT),
    _node("major_faults", "page faults that waited for a disk", _VMSTAT),
    _node("refault_file_pages", "file pages read again after eviction", _VMSTAT),
    _node("refault_anon_pages", "anonymous pages read again after eviction", _VMSTAT),
    _node("scan_kswapd_pages", "scanned by kswapd", _VMSTAT),
    _node("scan_direct_pages", "scanned by tasks that needed memory", _VMSTAT),
    _node("steal_kswapd_pages", "reclaimed by kswapd", _VMSTAT),
    _node("steal_direct_pages", "reclaimed by tasks that needed memory", _VMSTAT),
    _node("allocation_stalls", "a task had to reclaim memory before it got some", _VMSTAT),
    _node("page_cache_hits", "page-cache lookups that found the page", EBPF, SECOND),
    _node("page_cache_misses", "page-cache lookups that did not find the page", EBPF, SECOND),
    _node("cpu_time_us", "time of all CPUs, whatever they did in it", _STAT, TURN),
    _node("cpu_idle_us", "the part of it with nothing to run", _STAT, TURN),
)


def _of_process(name: str, meaning: str, file: str, when: str = PROCESS) -> Signal:
    return _node(name, meaning, file if file == EBPF else f"/proc/PID/{file}", when)


PROCESS_SIGNALS: Final = (
    _of_process("pid", "the process", "stat"),
    _of_process(
        "start_time_ticks", "when it started; with the pid it identifies the process", "stat"
    ),
    _of_process(
        "slot", "its slot; -1 is the protected application, which is never acted on", "stat"
    ),
    _of_process("oom_score", "the kernel's out-of-memory score", "oom_score"),
    _of_process("stopped", "whether it is stopped (SIGSTOP)", "status"),
    _of_process("rss_bytes", "resident memory", "status"),
    _of_process("pss_bytes", "proportional share of it", "smaps_rollup", THREAD),
    _of_process("anon_bytes", "resident anonymous and shared memory", "status"),
    _of_process("file_bytes", "resident file pages", "status"),
    _of_process("swap_bytes", "its memory in swap", "status"),
    _of_process("run_delay_us", "time that its threads waited for a CPU", "schedstat"),
    _of_process("page_cache_hits", "page-cache lookups that found the page", EBPF),
    _of_process("page_cache_misses", "page-cache lookups that did not find the page", EBPF),
    _of_process("read_s", "when it was read (CLOCK_MONOTONIC)", "stat"),
)


def _of_thread(name: str, meaning: str, file: str) -> Signal:
    return _node(name, meaning, file if file.endswith(")") else f"/proc/PID/task/TID/{file}")


PROTECTED_THREAD_SIGNALS: Final = (
    _of_thread("pid", "the process that it belongs to", "stat"),
    _of_thread("tid", "the thread", "stat"),
    _of_thread("start_time_ticks", "when it started; with the number it identifies it", "stat"),
    _of_thread("state", "R: running or ready to run; S and D: asleep", "stat"),
    _of_thread("cpu", "the CPU that it ran on last", "stat"),
    _of_thread("run_us", "time that it has run", "schedstat"),
    _of_thread("wait_us", "time that it was ready and waited for a CPU", "schedstat"),
    _of_thread("voluntary_switches", "gave up the CPU to sleep", "status"),
    _of_thread("involuntary_switches", "lost the CPU while it had work", "status"),
    _of_thread("nice", "its nice value", "stat"),
    _of_thread("slice_us", "its timeslice, from Linux 6.12 on", "sched_getattr(2)"),
    _of_thread("cpus", "the CPUs that it may run on", "sched_getaffinity(2)"),
    _of_thread("application", "the number of its application, from 0", "cgroup.procs (its group)"),
)
LATENCY_SIGNALS: Final = (
    Signal("window_s", "length of the window"),
    Signal("completed", "completed in the window"),
    Signal("completed_total", "completed since the start"),
    Signal("mean_ms", "mean latency in the window"),
    Signal("p95_ms", "95th percentile in the window"),
    Signal("max_ms", "longest in the window"),
    Signal("last_completion_age_s", "since the last completion seen"),
    Signal("new_requests", "those since the last tick, by latency"),
)
