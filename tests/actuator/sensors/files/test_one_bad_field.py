"""One field of a kernel file that cannot be understood is absent, and takes no other one along."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fresh_parsers import parse_cpu_stat, parse_stat_v1, parse_stat_v2, parse_vmstat

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.sensors.files.cpu import CpuStat, IoBytes
from stallward.actuator.sensors.files.flat import MAX_COUNT, SignalFile, parse_partly
from stallward.actuator.sensors.files.memcg import (
    GroupMemory,
    MemoryEvents,
    parse_events_v2,
    stat_parser,
)
from stallward.actuator.sensors.files.meminfo import (
    MeminfoParser,
    MemoryInfo,
    VmStat,
    parse_meminfo,
    vmstat_parser,
)
from stallward.actuator.sensors.files.process_files import (
    ProcessStatus,
    parse_process_io,
    parse_status,
)
from stallward.actuator.sensors.files.psi import parse_psi

P = Path("/the/file")
NEGATIVE = 2**64 - 205_824
"""A negative number, printed without its sign."""
NEGATIVE_KB = 18446744073709346016
K = 1024


def partly(parse: Callable[[bytes, Path], object], content: bytes) -> PartlyReadError:
    with pytest.raises(PartlyReadError, match="/the/file") as caught:
        parse(content, P)
    return caught.value


MEMINFO = b"""MemTotal:       1000 kB
MemFree:          10 kB
MemAvailable:    600 kB
Buffers:           5 kB
Cached:          300 kB
Inactive(file):   90 kB
AnonPages:       200 kB
Shmem:            20 kB
SReclaimable:     30 kB
Dirty:             4 kB
Writeback:         0 kB
SwapTotal:       500 kB
SwapFree:        400 kB
"""
INFO: dict[str, Any] = {
    "total_bytes": 1000 * K,
    "free_bytes": 10 * K,
    "available_bytes": 600 * K,
    "buffer_bytes": 5 * K,
    "cached_bytes": 300 * K,
    "inactive_file_bytes": 90 * K,
    "anon_pages_bytes": 200 * K,
    "shared_bytes": 20 * K,
    "reclaimable_slab_bytes": 30 * K,
    "dirty_bytes": 4 * K,
    "writeback_bytes": 0,
    "swap_total_bytes": 500 * K,
    "swap_free_bytes": 400 * K,
}


def meminfo(**texts: object) -> bytes:
    lines = [line.split(b":") for line in MEMINFO.splitlines()]
    asked = {key.replace("_", "("): str(text).encode() for key, text in texts.items()}
    return b"".join(
        b"%s: %s kB\n" % (key, asked.get(key.decode(), rest.split()[0])) for key, rest in lines
    )


@pytest.mark.parametrize("parser", [parse_meminfo, MeminfoParser()])
def test_free_swap_without_swap_is_none_whatever_a_container_says(
    parser: Callable[[bytes, Path], MemoryInfo],
) -> None:
    content = meminfo(SwapTotal=0, SwapFree=NEGATIVE_KB)
    for _ in range(2):
        info = parser(content, P)
        assert info == MemoryInfo(**INFO | {"swap_total_bytes": 0, "swap_free_bytes": 0})


@pytest.mark.parametrize(
    ("key", "text", "lost"),
    [
        ("SwapFree", NEGATIVE_KB, {"swap_free_bytes"}),
        ("SwapFree", 501, {"swap_free_bytes"}),  # more than there is
        ("SwapFree", (2**64 - 4096) // K, {"swap_free_bytes"}),
        ("SwapTotal", NEGATIVE_KB, {"swap_total_bytes"}),
        ("MemAvailable", 1001, {"available_bytes"}),
        ("MemFree", "-3", {"free_bytes"}),
        ("Dirty", (2**64 - 4096) // K, {"dirty_bytes"}),
        ("AnonPages", 64_000_000, {"anon_pages_bytes"}),  # the machine's, in a container
        ("Shmem", "x", {"shared_bytes", "anon_pages_bytes", "cached_bytes"}),
        ("Buffers", NEGATIVE_KB, {"buffer_bytes", "cached_bytes"}),
        ("MemTotal", 0, {"total_bytes"}),
    ],
)
def test_an_impossible_size_of_meminfo_is_absent_alone(
    key: str, text: object, lost: set[str]
) -> None:
    error = partly(parse_meminfo, meminfo(**{key: text}))
    assert error.lost == lost
    assert error.value == MemoryInfo(**INFO | dict.fromkeys(lost))
    assert key in error.what
    learned = MeminfoParser()
    learned(MEMINFO, P)
    assert partly(learned, meminfo(**{key: text})).value == error.value
    assert learned(MEMINFO, P) == MemoryInfo(**INFO)


def test_derived_sizes_of_meminfo_are_absent_with_what_they_need() -> None:
    value = partly(parse_meminfo, meminfo(Shmem="x")).value
    assert (value.anon_bytes, value.file_bytes) == (None, None)


def test_a_faulty_meminfo_keeps_the_rest_and_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_bytes(meminfo(SwapFree=NEGATIVE_KB))
    signal = SignalFile(path, MeminfoParser(), MemoryInfo(), one_piece=True)
    for _ in range(2):  # the second time the same content is not parsed again
        assert signal.read() == MemoryInfo(**INFO | {"swap_free_bytes": None})
        assert f"{path}: more than any machine has: b'SwapFree:" in str(signal.fault)
    path.write_bytes(MEMINFO)
    assert signal.read() == MemoryInfo(**INFO)
    assert signal.fault is None
    signal.close()


V1 = {
    b"total_cache": 100,
    b"total_rss": 50,
    b"total_shmem": 30,
    b"total_dirty": 5,
    b"total_workingset_refault_file": 8,
    b"total_swap": 9,
    b"total_pgmajfault": 10,
}
V2 = {b"anon": 50, b"file": 100, b"shmem": 30, b"file_dirty": 5, b"pgsteal": 12, b"pgmajfault": 10}


def flat(table: dict[bytes, int], **changed: object) -> bytes:
    texts = {key: str(changed.get(key.decode(), value)) for key, value in table.items()}
    return b"".join(b"%s %s\n" % (key, text.encode()) for key, text in texts.items())


@pytest.mark.parametrize(
    ("key", "absent"),
    [
        (b"total_rss", {"anon_bytes"}),
        (b"total_cache", {"file_bytes"}),
        (b"total_shmem", {"anon_bytes", "file_bytes"}),
        (b"total_dirty", {"dirty_bytes"}),
        (b"total_swap", {"swap_bytes"}),
        (b"total_workingset_refault_file", {"refault_file_pages"}),
    ],
)
@pytest.mark.parametrize("text", [NEGATIVE, 2**63, 10**18, "-1", "", "1 2"])
def test_a_bad_counter_of_memory_stat_is_absent_alone(
    key: bytes, absent: set[str], text: object
) -> None:
    content, good = flat(V1, **{key.decode(): text}), parse_stat_v1(flat(V1), P)
    layout = stat_parser(v2=False)
    layout(flat(V1), P)
    for parser in (parse_stat_v1, layout):
        error = partly(parser, content)
        assert error.lost == absent
        for name in GroupMemory.__slots__:
            expected = None if name in absent else getattr(good, name)
            assert getattr(error.value, name) == expected
    assert layout(flat(V1), P) == good


def test_a_bad_counter_of_memory_stat_v2_is_absent_alone() -> None:
    error = partly(parse_stat_v2, flat(V2, pgsteal=NEGATIVE))
    assert error.value == GroupMemory(anon_bytes=80, file_bytes=70, dirty_bytes=5, major_faults=10)
    assert "pgsteal: not a counter" in error.what


def test_lines_that_nobody_asks_for_cost_nothing() -> None:
    odd = flat(V2) + b"vendor 1 2 3\n\nwhatever\nvendor 1\nvendor 2\n"
    assert parse_stat_v2(odd, P) == parse_stat_v2(flat(V2), P)


def test_a_bad_counter_of_vmstat_is_absent_alone() -> None:
    content = b"pswpin 3\nallocstall_dma 1\nallocstall_normal %d\npgmajfault 8\n" % NEGATIVE
    learned = vmstat_parser()
    learned(content.replace(b"%d" % NEGATIVE, b"1"), P)
    for parser in (parse_vmstat, learned):
        error = partly(parser, content)
        assert error.value == VmStat(swap_in_pages=3, major_faults=8)
        assert error.lost == {"allocation_stalls"}, "a part of a sum is no sum"


def test_a_file_of_which_only_parts_of_sums_are_known_tells_nothing() -> None:
    with pytest.raises(SensorError) as caught:
        parse_vmstat(b"allocstall_dma 1\nallocstall_normal -1\n", P)
    assert not isinstance(caught.value, PartlyReadError)


def test_what_precedes_a_cut_is_read_and_what_may_follow_is_absent() -> None:
    error = partly(parse_stat_v2, b"anon 50\nfile 100\nfile_dirty 5\npgste")
    assert error.value == GroupMemory(dirty_bytes=5), "shared memory may be in the lost part"
    assert {"anon_bytes", "file_bytes", "reclaimed_pages"} <= error.lost
    assert "cut short" in error.what
    info = partly(parse_meminfo, b"MemTotal: 9 kB\nDirty: 4 kB\nCached: 1").value
    assert info == MemoryInfo(total_bytes=9 * K, dirty_bytes=4 * K)
    psi = partly(parse_psi, b"some avg10=0.00 total=12\nfull avg10=0.00 total=3")
    assert psi.value == (12, None), "it may be 30"


def test_a_counter_that_is_there_twice_is_absent() -> None:
    assert partly(parse_stat_v2, flat(V2) + b"pgsteal 13\n").lost == {"reclaimed_pages"}
    assert partly(parse_meminfo, MEMINFO + b"Dirty: 5 kB\n").lost == {"dirty_bytes"}


def test_a_bad_counter_of_cpu_stat_and_memory_events_is_absent_alone() -> None:
    cpu = partly(parse_cpu_stat, b"usage_usec 7\nthrottled_usec %d\n" % NEGATIVE)
    assert cpu.value == CpuStat(usage_us=7)
    assert cpu.lost == {"throttled_us"}
    events = partly(parse_events_v2, b"low 0\nhigh -1\nmax 3\noom_kill 5\n")
    assert events.value == MemoryEvents(oom_kills=5, max_events=3)
    assert events.lost == {"high_events"}


def test_a_bad_line_of_pressure_is_absent_alone() -> None:
    some, full = b"some avg10=0.00 total=12\n", b"full avg10=0.00 total=3\n"
    assert parse_psi(some + b"later avg10=0.00 total=1\n" + full, P) == (12, 3)
    error = partly(parse_psi, some + full.replace(b"3\n", b"%d\n" % NEGATIVE))
    assert error.value == (12, None)
    assert error.lost == {"full_us"}
    error = partly(parse_psi, some.replace(b"12", b"1.5") + full)
    assert error.value == (None, 3)
    assert error.lost == {"some_us"}
    assert parse_psi(some.replace(b"12", b"%d" % MAX_COUNT), P) == (MAX_COUNT, None)


STATUS = (
    b"Name:\ta\nState:\tS (sleeping)\nVmRSS:\t 30 kB\nRssAnon:\t 10 kB\nRssFile:\t 15 kB\n"
    b"RssShmem:\t 5 kB\nVmSwap:\t 7 kB\nThreads:\t3\n"
)


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        (b"30 kB", b"%d kB" % NEGATIVE, "rss_bytes"),
        (b"10 kB", b"x kB", "anon_bytes"),
        (b"5 kB\nVm", b"-5 kB\nVm", "anon_bytes"),
        (b"15 kB", b"15 MB", "file_bytes"),
        (b"7 kB", b"kB", "swap_bytes"),
        (b"Threads:\t3", b"Threads:\tmany", "threads"),
    ],
)
def test_a_bad_size_of_a_process_is_absent_alone(old: bytes, new: bytes, lost: str) -> None:
    good = parse_status(STATUS, P)
    assert good == ProcessStatus(
        state=b"S",
        threads=3,
        rss_bytes=30 * K,
        anon_bytes=15 * K,
        file_bytes=15 * K,
        swap_bytes=7 * K,
    )
    assert old in STATUS
    error = partly(parse_status, STATUS.replace(old, new))
    assert error.lost == {lost}
    for name in ProcessStatus.__slots__:
        assert getattr(error.value, name) == (None if name == lost else getattr(good, name))


def test_a_bad_count_of_a_process_s_disk_use_is_absent_alone() -> None:
    error = partly(parse_process_io, b"rchar: 1\nread_bytes: %d\nwrite_bytes: 2\n" % NEGATIVE)
    assert error.value == IoBytes(written_bytes=2)
    assert error.lost == {"read_bytes"}
    error = partly(parse_process_io, b"rchar: 1\nread_bytes: 3\n")
    assert error.value == IoBytes(read_bytes=3)
    assert error.lost == {"written_bytes"}
    assert parse_partly(parse_process_io, b"rchar: 1\n", P)[0] is None
