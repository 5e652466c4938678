"""Every kernel file that is read: valid, missing, malformed, and hostile."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from fresh_parsers import parse_cpu_stat, parse_stat_v1, parse_stat_v2, parse_vmstat

from stallward.actuator.errors import KernelFileError, SensorError
from stallward.actuator.kernel.files import OpenFile, read_bytes, read_text, write_text
from stallward.actuator.kernel.process_table import start_time_ticks, stat_fields
from stallward.actuator.sensors.files.cpu import (
    CpuStat,
    MachineCpu,
    parse_machine_cpu,
    parse_throttled_v1,
)
from stallward.actuator.sensors.files.flat import (
    MAX_COUNT,
    AnySignal,
    SignalFile,
    flat_counts,
    parse_count,
    parse_frozen,
    parse_single,
)
from stallward.actuator.sensors.files.memcg import (
    GroupMemory,
    MemoryEvents,
    MemoryReader,
    parse_events_v2,
    parse_limit_v1,
    parse_oom_control_v1,
)
from stallward.actuator.sensors.files.meminfo import MemoryInfo, VmStat, parse_meminfo
from stallward.actuator.sensors.files.psi import PsiReader, parse_psi
from stallward.agent.sample import PsiTotals

P = Path("/the/file")
AVG = b"avg10=0.00 avg60=1.50 avg300=99.00"
HUGE = 2**64 - 1
UNLIMITED_V1 = 9223372036854771712


def close(signals: Iterable[AnySignal]) -> None:
    for signal in signals:
        signal.close()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"some " + AVG + b" total=12\nfull " + AVG + b" total=3\n", (12, 3)),
        (b"some " + AVG + b" total=12\n", (12, None)),
        (b"full " + AVG + b" total=0\nsome " + AVG + b" total=1\n", (1, 0)),
        (b"some " + AVG + b" total=%d\n" % MAX_COUNT, (MAX_COUNT, None)),
    ],
)
def test_psi_valid(content: bytes, expected: tuple[int, int]) -> None:
    assert parse_psi(content, P) == expected


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"some\n",
        b"some " + AVG,
        b"some " + AVG + b" total=\n",
        b"some " + AVG + b" total=12",  # cut: perhaps 123
        b"some " + AVG + b" total=-1\n",
        b"some " + AVG + b" total=1_0\n",
        b"some " + AVG + b" total=1.5\n",
        b"most " + AVG + b" total=1\n",
        b"some " + AVG + b" total=1\nsome " + AVG + b" total=2\n",
        b"some " + AVG + b" total=%d\n" % HUGE,
        b"some " + AVG + b" total=%d\n" % 10**30,
        b"\x00\xff\n",
    ],
)
def test_psi_malformed(content: bytes) -> None:
    with pytest.raises(SensorError, match="/the/file"):
        parse_psi(content, P)


def test_psi_files_missing_are_absent_totals(tmp_path: Path) -> None:
    reader = PsiReader(tmp_path, ".pressure")
    assert reader.read() == PsiTotals()
    (tmp_path / "io.pressure").write_bytes(b"some " + AVG + b" total=7\n")
    assert reader.read() == PsiTotals(io_some_us=7)
    (tmp_path / "io.pressure").write_bytes(b"nonsense\n")
    (tmp_path / "memory.pressure").write_bytes(b"full " + AVG + b" total=8\n")
    assert reader.read() == PsiTotals(memory_full_us=8), "one bad file is one absent signal"
    (fault,) = [str(s.fault) for s in reader.signals if s.fault is not None]
    assert "io.pressure: not a pressure line" in fault
    (tmp_path / "io.pressure").write_bytes(b"some " + AVG + b" total=9\n")
    assert reader.read() == PsiTotals(io_some_us=9, memory_full_us=8)
    assert all(signal.fault is None for signal in reader.signals)
    close(reader.signals)


MEMINFO = b"""MemTotal:       1000 kB
MemFree:        10 kB
MemAvailable:   600 kB
Dirty:          4 kB
Writeback:      0 kB
WritebackTmp:   9 kB
SwapTotal:      0 kB
SwapFree:       0 kB
HugePages_Total:       5
"""


def test_meminfo_valid(tmp_path: Path) -> None:
    expected = MemoryInfo(
        total_bytes=1024000,
        free_bytes=10240,
        available_bytes=614400,
        dirty_bytes=4096,
        writeback_bytes=0,
        swap_total_bytes=0,
        swap_free_bytes=0,
    )
    assert parse_meminfo(MEMINFO, P) == expected
    signal = SignalFile(tmp_path / "meminfo", parse_meminfo, MemoryInfo())
    assert signal.read() == MemoryInfo()
    (tmp_path / "meminfo").write_bytes(MEMINFO)
    assert signal.read() == expected


def test_meminfo_without_a_line_has_that_value_absent() -> None:
    old = MEMINFO.replace(b"MemAvailable:   600 kB\n", b"")
    assert parse_meminfo(old, P).available_bytes is None


@pytest.mark.parametrize(
    "content",
    [
        MEMINFO[:-1],
        MEMINFO.replace(b"1000 kB", b"1000 MB"),
        MEMINFO.replace(b"1000 kB", b"1000"),
        MEMINFO.replace(b"1000 kB", b"-1 kB"),
        MEMINFO.replace(b"1000 kB", b"kB"),
        b"MemTotal:",
        b"",
    ],
)
def test_meminfo_malformed(content: bytes) -> None:
    with pytest.raises(SensorError):
        parse_meminfo(content, P)


VMSTAT = b"""nr_free_pages 5
workingset_refault_anon 1
workingset_refault_file 2
pswpin 3
pswpout 4
allocstall_dma32 5
allocstall_normal 6
allocstall_movable 7
pgmajfault 8
pgsteal_kswapd 9
pgsteal_direct 10
pgscan_kswapd 11
pgscan_direct 12
pgscan_direct_throttle 99
"""


def test_vmstat_valid() -> None:
    assert parse_vmstat(VMSTAT, P) == VmStat(
        swap_in_pages=3,
        swap_out_pages=4,
        major_faults=8,
        refault_file_pages=2,
        refault_anon_pages=1,
        scan_kswapd_pages=11,
        scan_direct_pages=12,
        steal_kswapd_pages=9,
        steal_direct_pages=10,
        allocation_stalls=18,
    )


def test_vmstat_of_other_kernels() -> None:
    assert parse_vmstat(b"nr_free_pages 5\n", P) == VmStat()
    old = parse_vmstat(b"workingset_refault 3\nallocstall 4\n", P)
    assert (old.refault_file_pages, old.refault_anon_pages, old.allocation_stalls) == (3, None, 4)


FLAT_READERS: list[Callable[[bytes, Path], object]] = [
    parse_vmstat,
    parse_stat_v1,
    parse_stat_v2,
    parse_cpu_stat,
    parse_throttled_v1,
    parse_frozen,
    parse_oom_control_v1,
    parse_events_v2,
]


@pytest.mark.parametrize("reader", FLAT_READERS)
@pytest.mark.parametrize(
    "content",
    [b"", b"a", b"a 1", b"a 1\nb", b"a 1\nb\n", b"a 1 2\n", b"a\n1\n", b"\n\n", b"a 1\n\n"],
)
def test_flat_files_malformed(reader: Callable[[bytes, Path], object], content: bytes) -> None:
    with pytest.raises(SensorError, match="/the/file"):
        reader(content, P)


@pytest.mark.parametrize(
    ("reader", "key"),
    [
        (parse_vmstat, b"pswpin"),
        (parse_stat_v1, b"total_rss"),
        (parse_stat_v2, b"anon"),
        (parse_cpu_stat, b"usage_usec"),
        (parse_cpu_stat, b"throttled_usec"),
        (parse_throttled_v1, b"throttled_time"),
        (parse_frozen, b"frozen"),
        (parse_oom_control_v1, b"oom_kill"),
        (parse_events_v2, b"high"),
        (parse_events_v2, b"max"),
    ],
)
@pytest.mark.parametrize(
    "value",
    [b"-1", b"1_0", b"0x1", b"max", b"1.0", b"nan", b"\xff", b"9" * 40, b"%d" % (HUGE + 1)],
)
def test_flat_values_malformed(
    reader: Callable[[bytes, Path], object], key: bytes, value: bytes
) -> None:
    with pytest.raises(SensorError, match="not a counter"):
        reader(b"other 1\n" + key + b" " + value + b"\n", P)


def test_sums_and_sizes_beyond_64_bits_are_malformed() -> None:
    with pytest.raises(SensorError, match="anon: not a counter"):
        parse_stat_v2(b"anon %d\nshmem 1\n" % HUGE, P)
    with pytest.raises(SensorError, match="allocstall_dma: not a counter"):
        parse_vmstat(b"allocstall_dma %d\nallocstall_normal 1\n" % HUGE, P)
    with pytest.raises(SensorError, match="more than any machine has"):
        parse_meminfo(b"MemTotal: %d kB\n" % (HUGE // 2), P)


def test_flat_files_without_our_keys_are_absent_values() -> None:
    assert parse_cpu_stat(b"system_usec 1\n", P) == CpuStat()
    assert parse_throttled_v1(b"nr_periods 1\n", P) is None
    assert parse_frozen(b"populated 1\n", P) is None
    assert parse_oom_control_v1(b"under_oom 0\n", P) is None
    assert parse_events_v2(b"low 0\n", P) == MemoryEvents()
    assert parse_stat_v1(b"cache 1\n", P) == GroupMemory()
    assert parse_stat_v2(b"pgfault 1\n", P) == GroupMemory()


def test_flat_values_valid() -> None:
    cpu = b"usage_usec %d\nuser_usec 2\nnr_throttled 1\nthrottled_usec 5\n" % (10**18 - 1)
    assert parse_cpu_stat(cpu, P) == CpuStat(usage_us=10**18 - 1, user_us=2, throttled_us=5)
    assert parse_throttled_v1(b"nr_periods 9\nnr_throttled 2\nthrottled_time 7999\n", P) == 7
    assert parse_frozen(b"populated 1\nfrozen 1\n", P) is True
    assert parse_frozen(b"populated 1\nfrozen 0\n", P) is False
    assert parse_oom_control_v1(b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", P) == 3
    events = b"low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n"
    assert parse_events_v2(events, P) == MemoryEvents(oom_kills=5, high_events=2, max_events=3)
    assert flat_counts(b"a 1\nb 2\nc x\n", (b"b", b"a", b"d"), P) == [2, 1, None]
    with pytest.raises(SensorError, match="neither"):
        parse_frozen(b"frozen 2\n", P)


STAT_V1 = (
    b"cache 1\nrss 2\nhierarchical_memory_limit %d\n"
    b"total_cache 100\ntotal_rss 50\ntotal_shmem 30\ntotal_dirty 5\ntotal_writeback 6\n"
    b"total_workingset_refault_anon 7\ntotal_workingset_refault_file 8\ntotal_swap 9\n"
    b"total_pgmajfault 10\ntotal_inactive_file 11\n" % UNLIMITED_V1
)
STAT_V2 = (
    b"pgsteal 12\nanon 50\nfile 100\nshmem 30\nfile_dirty 5\nfile_writeback 6\ninactive_file 11\n"
    b"workingset_refault_anon 7\nworkingset_refault_file 8\npgmajfault 10\npgscan 13\n"
)
STAT = GroupMemory(
    anon_bytes=80,
    file_bytes=70,
    inactive_file_bytes=11,
    dirty_bytes=5,
    writeback_bytes=6,
    refault_file_pages=8,
    refault_anon_pages=7,
    major_faults=10,
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"cpu  10 1 2 100 30 0 4 3 5 0\ncpu0 1 2\nintr 5\n", (150, 130)),
        (b"cpu 0 0 0 0 0 0 0 0\n", (0, 0)),
        (b"cpu 1 0 0 9 0 0 0 0 7 7 7\n", (10, 9)),
    ],
)
def test_the_time_of_all_cpus_leaves_out_that_of_guests_which_is_counted_already(
    content: bytes, expected: tuple[int, int]
) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    time_us, idle_us = (value * 1_000_000 // ticks for value in expected)
    assert parse_machine_cpu(content, P) == MachineCpu(time_us=time_us, idle_us=idle_us)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"cpu0 1 2 3 4 5 6 7 8\n",
        b"cpu 1 2 3 4 5 6 7\n",
        b"cpu 1 2 3 4 5 6 7 8",  # cut: perhaps 80
        b"cpu 1 2 3 -4 5 6 7 8\n",
        b"cpu 1 2 3 4_0 5 6 7 8\n",
        b"cpu 1 2 3 4 5 6 7 %d\n" % HUGE,
        b"intr 5\ncpu 1 2 3 4 5 6 7 8\n",
    ],
)
def test_the_time_of_all_cpus_malformed(content: bytes) -> None:
    with pytest.raises(SensorError, match="/the/file"):
        parse_machine_cpu(content, P)


def test_memory_stat_counts_the_whole_subtree() -> None:
    v1 = parse_stat_v1(STAT_V1, P)
    assert v1.swap_bytes == 9
    assert parse_stat_v2(STAT_V2, P) == replace(STAT, reclaimed_pages=12, scanned_pages=13)
    assert (v1.anon_bytes, v1.file_bytes, v1.refault_file_pages) == (80, 70, 8)
    raced = parse_stat_v2(b"file 10\nshmem 30\n", P)
    assert raced.file_bytes == 0


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        (b"4096\n", 4096),
        (b"0\n", 0),
        (b"%d\n" % UNLIMITED_V1, None),
        (b"%d\n" % HUGE, None),  # before kernel 3.19
    ],
)
def test_v1_limits(content: bytes, limit: int | None) -> None:
    assert parse_limit_v1(content, P) == limit


@pytest.mark.parametrize("content", [b"", b"12", b"-1\n", b"1 2\n", b"1\n2\n", b"MAX\n", b"1e3\n"])
def test_single_values_malformed(content: bytes) -> None:
    with pytest.raises(SensorError):
        parse_single(content, P)
    assert parse_single(b"max\n", P) is None
    assert parse_count(b"7", P) == 7


def test_a_v1_group_is_read_and_absent_when_gone(tmp_path: Path) -> None:
    reader = MemoryReader(tmp_path, v2=False)

    def read() -> tuple[object, ...]:
        values = (reader.stat.read(), reader.usage.read(), reader.read_limit_bytes())
        return (*values, reader.read_swap_bytes(), reader.read_events())

    assert read() == (GroupMemory(), None, None, None, MemoryEvents())
    (tmp_path / "memory.usage_in_bytes").write_bytes(b"1000\n")
    (tmp_path / "memory.limit_in_bytes").write_bytes(b"2000\n")
    (tmp_path / "memory.stat").write_bytes(STAT_V1)
    (tmp_path / "memory.oom_control").write_bytes(b"under_oom 0\noom_kill 3\n")
    (tmp_path / "memory.failcnt").write_bytes(b"4\n")
    stat = replace(STAT, swap_bytes=9)
    assert read() == (stat, 1000, 2000, 9, MemoryEvents(oom_kills=3, max_events=4))
    close(reader.signals)


def test_a_v2_group_is_read_and_absent_when_gone(tmp_path: Path) -> None:
    reader = MemoryReader(tmp_path, v2=True)
    assert (reader.usage.read(), reader.read_limit_bytes()) == (None, None)
    assert (reader.read_swap_bytes(), reader.read_events()) == (None, MemoryEvents())
    for name, text in (
        ("current", "1000"),
        ("max", "3000"),
        ("high", "max"),
        ("swap.current", "9"),
        ("events", "low 0\nhigh 7\noom_kill 3"),
    ):
        (tmp_path / f"memory.{name}").write_text(text + "\n")
    assert (reader.usage.read(), reader.read_limit_bytes()) == (1000, 3000)
    assert reader.read_swap_bytes() == 9
    assert reader.read_events() == MemoryEvents(oom_kills=3, high_events=7)
    (tmp_path / "memory.high").write_text("2500\n")
    assert reader.read_limit_bytes() == 2500
    (tmp_path / "memory.max").write_text("lots\n")
    assert reader.read_limit_bytes() == 2500
    assert "memory.max: not a counter" in str(reader.limits[0].fault)
    close(reader.signals)


def test_what_zswap_takes_is_no_memory_that_the_group_needs_twice(tmp_path: Path) -> None:
    """memory.current includes it, and memory.swap.current the pages that it stands for."""
    reader = MemoryReader(tmp_path, v2=True)
    for name, text in (
        ("current", "700"),
        ("swap.current", "400"),
        ("stat", "anon 600\nzswap 100\nzswapped 400"),
    ):
        (tmp_path / f"memory.{name}").write_text(text + "\n")
    reader.stat.read()
    assert (reader.usage.read() or 0) + (reader.read_swap_bytes() or 0) == 600 + 400
    close(reader.signals)


def stat_line(comm: bytes, state: bytes = b"S") -> bytes:
    numbers = b" ".join(b"%d" % i for i in range(4, 53))
    return b"42 (" + comm + b") " + state + b" " + numbers + b"\n"


@pytest.mark.parametrize(
    "comm",
    [b"sleep", b"foo) Z 1 2", b") T (", b"a b\nc", b"", b"((((", b"\xff\xfe", b"x) R 1 1 1"],
)
def test_names_cannot_fake_a_process_state(comm: bytes) -> None:
    fields = stat_fields(stat_line(comm), P)
    assert (fields[0], fields[19]) == (b"S", b"22")


@pytest.mark.parametrize(
    "stat",
    [
        b"",
        b"42 (a) S 1 2\n",
        b"42 a S" + b" 1" * 50,
        stat_line(b"a").replace(b" 22 ", b" -2 "),
    ],
)
def test_processes_malformed(stat: bytes) -> None:
    with pytest.raises(SensorError):
        stat_fields(stat, P, SensorError)


def test_start_times_missing_and_real(tmp_path: Path) -> None:
    assert start_time_ticks(tmp_path, 42) is None
    assert (start_time_ticks(Path("/proc"), os.getpid()) or 0) > 0


def test_absent_files_read_as_none_and_others_raise(tmp_path: Path) -> None:
    assert read_bytes(tmp_path / "gone" / "file") is None
    (tmp_path / "file").write_text(" a\n")
    assert read_text(tmp_path / "file") == "a"
    assert read_bytes(tmp_path / "file" / "below") is None
    with pytest.raises(KernelFileError) as caught:
        read_bytes(tmp_path)
    assert caught.value.number == errno.EISDIR
    with pytest.raises(KernelFileError) as caught:
        write_text(tmp_path / "gone", "1")
    assert caught.value.number == errno.ENOENT
    assert not (tmp_path / "gone").exists()
    with pytest.raises(SensorError):
        OpenFile(tmp_path, SensorError).read()


def test_files_longer_than_a_page_are_read_whole(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 200_000)
    assert len(read_bytes(tmp_path / "long") or b"") == 200_000


def test_an_open_file_follows_its_content_and_comes_back(tmp_path: Path) -> None:
    file = OpenFile(tmp_path / "file")
    assert file.read() is None
    (tmp_path / "file").write_text("1")
    assert file.read() == b"1"
    (tmp_path / "file").write_text("22")
    assert file.read() == b"22"
    file.close()
    file.close()
    assert file.read() == b"22"
    file.close()


@pytest.mark.parametrize("name", ["vmstat", "meminfo", "pressure/memory"])
def test_kernel_files_are_read_to_their_end_whatever_their_size(name: str) -> None:
    path = Path("/proc") / name
    if not path.exists():
        pytest.skip(f"no {path}")
    content = read_bytes(path)
    assert content is not None
    assert content.endswith(b"\n")
    keys = [line.split()[0] for line in path.read_bytes().splitlines()]
    assert [line.split()[0] for line in content.splitlines()] == keys
