"""Targets: files of more signals, and readers that remember the positions of lines."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz_reference as reference
from fresh_parsers import parse_cpu_stat, parse_stat_v2, parse_vmstat
from fuzz_target import Target, sound
from fuzz_targets_kernel import (
    FLAT_KEYS,
    PATH,
    Check,
    check_schedstat,
    flat_check,
    kernel,
    one_check,
    same_as,
    sample,
    size_lines,
)

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.sensors.files import process_files
from stallward.actuator.sensors.files.cpu import (
    parse_io_stat,
    parse_machine_cpu,
    parse_throttled_v1,
)
from stallward.actuator.sensors.files.memcg import (
    parse_events_v2,
    parse_oom_control_v1,
    stat_parser,
)
from stallward.actuator.sensors.files.meminfo import (
    FIELDS_OF_KEYS,
    MeminfoParser,
    parse_meminfo,
    vmstat_parser,
)
from stallward.actuator.sensors.processes.members import parse_pids
from stallward.actuator.sensors.processes.threads import parse_thread


def _value(parse: Callable[[bytes, Path], Any], content: bytes) -> Any:
    """What can be understood of a file."""
    try:
        return parse(content, PATH)
    except PartlyReadError as error:
        return error.value


def _twice(
    make: Callable[[], Callable[[bytes, Path], Any]],
    strict: Callable[[bytes, Path], Any],
    learned: bytes,
) -> tuple[Callable[[bytes, Path], Any], Check]:
    """A reader that remembers the positions of lines; it reads ``learned``, then the input twice.

    Its check compares with a reader that remembers nothing. That one may refuse an input for a
    line that is not wanted, and a line that ``learned`` does not have, or has once, may be missed.
    """

    def run(content: bytes, path: Path) -> Any:
        parser = make()
        parser(learned, path)
        first = _value(parser, content)
        assert _value(parser, content) == first, "it reads the same file in another way"
        return first

    def check(content: bytes, value: Any) -> None:
        sound(content, value)
        unseen: frozenset[str] = frozenset()
        try:
            fresh = strict(content, PATH)
        except PartlyReadError as error:
            fresh = error.value
            if "is there twice" in error.what:
                unseen = error.lost
        except SensorError:
            return
        before = strict(learned, PATH)
        for name in set(fresh.__slots__) - unseen:
            mine, other = getattr(value, name), getattr(fresh, name)
            known = getattr(before, name) is not None
            assert mine == other or not known, f"{name} is {other} when read afresh"

    return run, check


def _io(content: bytes, value: Any) -> None:
    assert (value.read_bytes, value.written_bytes) == reference.io_stat(content)


def _status(content: bytes, value: Any) -> None:
    size_lines({"rss_bytes": b"VmRSS", "swap_bytes": b"VmSwap"})(content, value)
    assert value.threads == reference.count(reference.keyed(content, b"Threads")[0])
    assert reference.keyed(content, b"State")[0][:1] == value.state


THREAD_STAT = (
    b"12 (a b) R) R 1 1 1 0 -1 0 1 2 3 4 5 6 0 0 20 -3 4 0 777 1 2 3 4 5 6 7 8 0 0 0 0 0 0 0 17 5 "
    b"0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)
SCHEDSTAT = b"1500000 7000 4\n"


def _thread_stat(content: bytes, value: Any) -> None:
    fields = content.rpartition(b")")[2].split()
    assert value.state.encode("ascii", "replace")[:1] in {fields[0][:1], b"?"}
    assert (value.nice, value.start_time_ticks) == (int(fields[16]), int(fields[19]))
    assert value.cpu == int(fields[36])


def _thread_status(content: bytes, value: Any) -> None:
    for key, number in (
        (b"voluntary_ctxt_switches", value.voluntary_switches),
        (b"nonvoluntary_ctxt_switches", value.involuntary_switches),
    ):
        assert str(number).encode() in {
            text.lstrip(b"0") or b"0" for text in reference.keyed(content, key)
        }


def _process_io(content: bytes, value: Any) -> None:
    for key, number in ((b"read_bytes", value.read_bytes), (b"write_bytes", value.written_bytes)):
        texts = reference.keyed(content, key)
        assert number == (reference.count(texts[0]) if texts else None)


def _machine_cpu(content: bytes, value: Any) -> None:
    first = reference.words(reference.whole_lines(content)[0][0])
    counts = [reference.count(word) for word in first[1:9]]
    assert first[0] == b"cpu"
    assert len(counts) == 8
    ticks = [count for count in counts if count is not None]
    assert len(ticks) == 8, "each is a counter"
    us_per_tick = 1_000_000 // os.sysconf("SC_CLK_TCK")
    assert (value.time_us, value.idle_us) == (
        sum(ticks) * us_per_tick,
        (ticks[3] + ticks[4]) * us_per_tick,
    )


def _meminfo(content: bytes, value: Any) -> None:
    sizes = reference.sizes(content, list(FIELDS_OF_KEYS))
    assert sizes is not None, "the reference refuses it"
    assert [getattr(value, name) for name in FIELDS_OF_KEYS.values()] == sizes


def targets() -> tuple[Target, ...]:
    """All targets of this file."""
    vmstat = sample("vmstat.txt")
    stat_v2 = sample("memory-stat-v2.txt", "memory-stat-v2-old.txt")
    meminfo = sample("meminfo.txt", "meminfo-container.txt")
    status = sample("status.txt")
    again_vmstat = _twice(vmstat_parser, parse_vmstat, vmstat[0])
    again_v2 = _twice(lambda: stat_parser(v2=True), parse_stat_v2, stat_v2[0])
    again_meminfo = _twice(MeminfoParser, parse_meminfo, meminfo[0])
    event_keys = {"oom_kills": "oom_kill", "high_events": "high", "max_events": "max"}
    cpu_keys = {
        "usage_us": "usage_usec",
        "user_us": "user_usec",
        "throttled_us": "throttled_usec",
    }
    return (
        kernel("meminfo", parse_meminfo, meminfo, _meminfo, (b"kB", b"MemTotal")),
        kernel("meminfo-again", again_meminfo[0], meminfo, again_meminfo[1]),
        kernel("vmstat-again", again_vmstat[0], vmstat, again_vmstat[1], (b"pswpin",)),
        kernel("memory-stat-v2-again", again_v2[0], stat_v2, again_v2[1], (b"anon",)),
        kernel(
            "memory-events-v2",
            parse_events_v2,
            sample("memory-events-v2.txt"),
            flat_check(event_keys),
            FLAT_KEYS,
        ),
        kernel(
            "oom-control-v1",
            parse_oom_control_v1,
            sample("oom-control-v1.txt"),
            one_check(b"oom_kill"),
            FLAT_KEYS,
        ),
        kernel(
            "io-stat",
            parse_io_stat,
            sample("io-stat-v2.txt", "io-stat-v2-loop.txt"),
            _io,
            (b"rbytes=1",),
        ),
        kernel(
            "cpu-stat-v2",
            parse_cpu_stat,
            sample("cpu-stat-v2.txt", "cpu-stat-v2-limited.txt"),
            flat_check(cpu_keys, reference.MACHINE),
        ),
        kernel(
            "cpu-stat-v1",
            parse_throttled_v1,
            sample("cpu-stat-v1.txt"),
            one_check(b"throttled_time", lambda value: value // 1000),
        ),
        kernel("machine-cpu", parse_machine_cpu, sample("proc-stat.txt"), _machine_cpu, (b"cpu",)),
        kernel("cgroup-procs", parse_pids, sample("cgroup-procs.txt"), same_as(reference.pids)),
        kernel("process-status", process_files.parse_status, status, _status, (b"kB",)),
        kernel(
            "schedstat", process_files.parse_schedstat, sample("schedstat.txt"), check_schedstat
        ),
        kernel(
            "thread-stat",
            lambda content, path: parse_thread(content, SCHEDSTAT, status[0], path),
            (THREAD_STAT,),
            _thread_stat,
        ),
        kernel(
            "thread-status",
            lambda content, path: parse_thread(THREAD_STAT, SCHEDSTAT, content, path),
            status,
            _thread_status,
        ),
        kernel(
            "process-io", process_files.parse_process_io, sample("process-io.txt"), _process_io
        ),
        kernel(
            "smaps-rollup",
            process_files.parse_pss,
            sample("smaps-rollup.txt"),
            size_lines({"": b"Pss"}),
            (b"kB",),
        ),
    )
