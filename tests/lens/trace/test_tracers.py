"""What each tracer reads of an invented /proc."""

from __future__ import annotations

import errno
from dataclasses import fields
from pathlib import Path

import pytest
from invented_lens import ROLLUP, InventedProc, hierarchy

from stallward.actuator.errors import NodeError
from stallward.actuator.kernel.bpf import BpfRefusedError
from stallward.actuator.kernel.files import failure, read_bytes
from stallward.actuator.sensors.page_cache.counters import PageCacheCount, PageCacheReading
from stallward.agent.sample import NodeSample, PsiTotals
from stallward.lens.errors import LensError
from stallward.lens.trace.block_io.counters import BlockCount, Origin
from stallward.lens.trace.columns import Value
from stallward.lens.trace.kinds import Key
from stallward.lens.trace.page_cache import PageCacheLens
from stallward.lens.trace.process_reader import ROLLUP as ROLLUP_NAME
from stallward.lens.trace.process_reader import check_readable
from stallward.lens.trace.tables import TABLES, table_of
from stallward.lens.trace.targets import AllProcesses, OneProcess
from stallward.lens.trace.tick import Layout, Tick
from stallward.lens.trace.tracers.blockio import BlockIoTracer
from stallward.lens.trace.tracers.largest import LargestTracer
from stallward.lens.trace.tracers.node import NodeTracer
from stallward.lens.trace.tracers.pagecache import PageCacheTracer
from stallward.lens.trace.tracers.pagetype import PageTypeTracer
from stallward.lens.trace.tracers.process import ProcessTracer
from stallward.lens.trace.tracers.psi import PsiTracer
from stallward.lens.trace.tracers.tracer import Tracer

KIB = 1024


class InventedLookups:
    """Page-cache counters whose numbers a test sets."""

    def __init__(self) -> None:
        self.counts: dict[int, tuple[int, int]] = {}
        self.fails = False
        self.closed = False

    def read(self) -> PageCacheReading:
        if self.fails:
            raise BpfRefusedError.of("reading a map", errno.EPERM)
        hits, misses = map(sum, zip(*self.counts.values(), strict=True)) if self.counts else (0, 0)
        return PageCacheReading(node=PageCacheCount(hits=hits, misses=misses), groups=())

    def process(self, pid: int) -> PageCacheCount:
        hits, misses = self.counts.get(pid, (0, 0))
        return PageCacheCount(hits=hits, misses=misses)

    def pids(self) -> frozenset[int]:
        return frozenset(self.counts)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def proc(tmp_path: Path) -> InventedProc:
    return InventedProc(tmp_path / "proc")


def absent(sys: Path = Path("/nowhere")) -> PageCacheLens:
    return PageCacheLens(sys, open_=lambda _sys: "not in this test")


def thesis_line(tracer: Tracer) -> list[Value]:
    """What is written in the thesis's columns, without count and time."""
    tick = Tick(number=1, time_us=0, wall_us=0, rows=tracer.read())
    (line,) = Layout(table=tracer.table, thesis=True).lines(tick)
    return line[2:]


def test_process_has_the_columns_of_appendix_b(proc: InventedProc) -> None:
    proc.process(7)
    tracer = ProcessTracer(proc.path, OneProcess(proc.path, 7), page_cache=absent())
    # Name, Pss, Sum, Rss, Private, Shared1, Shared = Pss - Private, Swap, SwapPss
    assert thesis_line(tracer) == ["yolo (v3), x", 700, 700, 2280, 640, 1640, 60, 60, 30]
    names = [column.name for column in tracer.table.thesis]
    assert " ".join(names) == "Name Pss Sum Rss Private Shared1 Shared Swap SwapPss"


def test_process_has_more(proc: InventedProc) -> None:
    proc.process(7)
    lookups = InventedLookups()
    lookups.counts = {7: (30, 10)}
    lens = PageCacheLens(Path("/sys"), open_=lambda _sys: lookups)
    tracer = ProcessTracer(proc.path, OneProcess(proc.path, 7), page_cache=lens)
    (row,) = tracer.read()
    expected = {
        "anon_bytes": 108 * KIB,
        "file_bytes": 1800 * KIB,
        "pss_file_bytes": 592 * KIB,
        "minor_faults": 21,
        "major_faults": 22,
        "cpu_usage_us": 530_000,
        "io_read_bytes": 4096,
        "io_written_bytes": 8192,
        "virtual_bytes": 8192000,
        "threads": 4,
        "state": "S",
        "oom_score": 667,
        "page_cache_hits": 30,
        "page_cache_misses": 10,
    }
    assert {name: row[name] for name in expected} == expected
    tracer.close()
    assert lookups.closed


def test_without_smaps_rollup_the_cheap_columns_are_left(proc: InventedProc) -> None:
    proc.process(7)
    target = OneProcess(proc.path, 7)
    (row,) = ProcessTracer(proc.path, target, maps_every=0, page_cache=absent()).read()
    assert (row["rss_bytes"], row["swap_bytes"]) == (2280 * KIB, 60 * KIB)
    assert row["pss_bytes"] is row["private_bytes"] is row["swap_pss_bytes"] is None


def test_smaps_rollup_is_read_at_some_ticks_only(proc: InventedProc) -> None:
    proc.process(7)
    target = OneProcess(proc.path, 7)
    tracer = ProcessTracer(proc.path, target, maps_every=3, page_cache=absent())
    sizes = [tracer.read()[0]["pss_bytes"] for _ in range(5)]
    assert sizes == [700 * KIB, None, None, 700 * KIB, None]


def refusing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let a file of every process be one that may not be read."""

    def refuse(path: Path | str) -> bytes | None:
        if str(path).endswith(f"/{name}"):
            raise failure(path, PermissionError(errno.EACCES, "no"), "read")
        return read_bytes(path)

    monkeypatch.setattr("stallward.lens.trace.process_reader.read_bytes", refuse)


def test_a_process_that_may_not_be_read_is_refused_with_its_pid_and_what_to_do(
    proc: InventedProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(7)
    refusing(monkeypatch, "smaps_rollup")
    with pytest.raises(
        LensError, match=r"Process 7 .*smaps_rollup.*Permission.*(Run as root|Root is refused)"
    ):
        check_readable(proc.path, 7, ROLLUP_NAME)
    # Among others it is traced as far as it may be, and the reason is told.
    tracer = ProcessTracer(proc.path, AllProcesses(proc.path), page_cache=absent())
    (row,) = tracer.read()
    assert row["pss_bytes"] is None
    assert row["rss_bytes"] == 2280 * KIB
    assert any("smaps_rollup: cannot read (Permission denied)" in why for why in tracer.missing)


def test_a_kernel_without_smaps_rollup_is_named(proc: InventedProc) -> None:
    (proc.process(7) / "smaps_rollup").unlink()
    with pytest.raises(LensError, match=r"Process 7 .*there is no .*smaps_rollup.*4\.14"):
        check_readable(proc.path, 7, ROLLUP_NAME)


def test_psi_has_the_twenty_values_of_appendix_e(proc: InventedProc) -> None:
    line = thesis_line(PsiTracer(proc.path))
    memory = ["1.25", "1.01", "1.50", "1.02", "1.75", "1.03", 11000, 12000]
    cpu = ["2.25", "2.50", "2.75", 21000]
    io = ["3.25", "3.01", "3.50", "3.02", "3.75", "3.03", 31000, 32000]
    assert line == [*memory, *cpu, *io]


def test_psi_of_a_group_stands_beside_the_nodes(proc: InventedProc, tmp_path: Path) -> None:
    group = hierarchy(tmp_path / "cgroup", "app", ()).group("app")
    (row,) = PsiTracer(proc.path, group).read()
    assert row["node_psi_memory_some_us"] == 11000
    assert row["node_psi_cpu_full_us"] is None, "the kernel does not define it"
    assert row["group_psi_memory_some_us"] == 41000
    assert row["group_psi_cpu_full_avg10_percent"] == 5.01


def test_a_kernel_without_psi_is_named_with_what_to_do(proc: InventedProc, tmp_path: Path) -> None:
    group = hierarchy(tmp_path / "cgroup", "app", ()).group("app")
    (tmp_path / "cgroup/app/memory.pressure").unlink()
    with pytest.raises(LensError, match="cgroup app has no pressure"):
        PsiTracer(proc.path, group)
    (proc.path / "pressure/memory").unlink()
    with pytest.raises(LensError, match=r"no pressure stall information.*boot with psi=1"):
        PsiTracer(proc.path)


def test_node_has_the_columns_of_appendix_d(proc: InventedProc) -> None:
    tracer = NodeTracer(proc.path, page_cache=absent())
    assert thesis_line(tracer) == [
        *(16000, 4000, "25.00"),
        *(6000, "37.50"),  # 16000 - 4000 free - 400 buffers - 5600 cache
        *(9000, "56.25"),
        *(320, "2.00"),
        *(400, "2.50"),
        *(5600, "35.00"),  # with what the kernel can give up
        *(8000, 2000, 6000, "25.00"),
    ]


def test_node_names_what_a_recording_has_alike(proc: InventedProc, tmp_path: Path) -> None:
    group = hierarchy(tmp_path / "cgroup", "app", ()).group("app")
    (row,) = NodeTracer(proc.path, page_cache=absent(), group=group).read()
    assert row["node_memory_total_bytes"] == 16000 * KIB
    assert row["node_dirty_bytes"] == 40 * KIB
    assert row["node_swap_in_pages"] == 11
    assert row["node_allocation_stalls"] == 2
    assert row["node_psi_io_full_us"] == 32000
    assert row["group_memory_usage_bytes"] == 40960
    assert row["group_memory_limit_bytes"] is None
    assert row["group_psi_memory_full_us"] == 42000
    assert set(row) == set(table_of(next(t for t in TABLES if t.kind == "node").names).names[3:])  # type: ignore[union-attr]


def test_node_has_all_that_a_recording_has_of_it() -> None:
    (table,) = (table for table in TABLES if table.kind == "node")
    recorded = {f"node_{field.name}" for field in fields(NodeSample)} - {"node_psi"}
    recorded |= {f"node_psi_{field.name}" for field in fields(PsiTotals)}
    assert recorded <= set(table.names), "add a row in lens/trace/tracers/node.py"


def test_node_without_psi_says_so(proc: InventedProc) -> None:
    (proc.path / "pressure/memory").unlink()
    tracer = NodeTracer(proc.path, page_cache=absent())
    assert tracer.read()[0]["node_psi_memory_some_us"] is None
    assert any("pressure stall information: no " in why for why in tracer.missing)


def test_pagetype_has_the_columns_of_appendix_f(proc: InventedProc) -> None:
    proc.process(7)
    tracer = PageTypeTracer(proc.path, OneProcess(proc.path, 7))
    assert thesis_line(tracer) == [16 + 64, 8 + 16 + 64 + 128 + 12, 8 + 128 + 12]


def test_pagetype_tells_mappings_and_pages_apart(proc: InventedProc) -> None:
    proc.process(7)
    (row,) = PageTypeTracer(proc.path, OneProcess(proc.path, 7)).read()
    expected = {
        "anon_mapping_bytes": 80,
        "heap_bytes": 16,
        "stack_bytes": 12,
        "file_mapping_bytes": 8,
        "shmem_mapping_bytes": 128,
        "anonymous_bytes": 92,
        "private_dirty_bytes": 152,
        "swap_bytes": 24,
        "anon_bytes": 108,
    }
    assert {name: row[name] for name in expected} == {n: v * KIB for n, v in expected.items()}
    assert row["mappings"] == 5


def test_pagecache_has_a_row_for_the_node_and_for_who_looked_pages_up(proc: InventedProc) -> None:
    proc.process(7)
    lookups = InventedLookups()
    lookups.counts = {7: (30, 10), 8: (5, 0)}
    lens = PageCacheLens(Path("/sys"), open_=lambda _sys: lookups)
    tracer = PageCacheTracer(proc.path, page_cache=lens, target=None)
    node, seven, eight = tracer.read()
    assert (node["pid"], node["name"], node["hit_ratio"]) == (None, "(node)", 0.7778)
    assert node["memory_cached_bytes"] == 5000 * KIB
    assert node["dirtied_pages"] == 77
    assert (seven["name"], seven["page_cache_misses"], seven["hit_ratio"]) == (
        "yolo (v3), x",
        10,
        0.75,
    )
    assert eight["name"] is None, "it has ended"
    lookups.counts[7] = (30, 30)
    node, seven = tracer.read()
    assert (node["hit_ratio"], seven["hit_ratio"]) == (0.0, 0.0)
    lookups.fails = True
    with pytest.raises(LensError, match="stopped counting: reading a map"):
        tracer.read()


def test_pagecache_takes_a_pid_that_is_used_again_for_another_process(proc: InventedProc) -> None:
    proc.process(7, name="sort")
    lookups = InventedLookups()
    lookups.counts = {7: (30, 10)}
    lens = PageCacheLens(Path("/sys"), open_=lambda _sys: lookups)
    tracer = PageCacheTracer(proc.path, page_cache=lens, target=None)
    tracer.read()
    proc.process(7, start=2000, name="python")
    lookups.counts[7] = (36, 12)
    row = tracer.read()[1]
    assert (row["name"], row["page_cache_hits"], row["page_cache_misses"]) == ("python", 6, 2)
    assert row["hit_ratio"] == 0.75
    proc.end(7)
    lookups.counts[7] = (37, 12)
    row = tracer.read()[1]
    assert (row["name"], row["page_cache_hits"]) == ("python", 7), "what it did at last"
    proc.process(7, start=3000, name="bash")
    lookups.counts[7] = (39, 12)
    row = tracer.read()[1]
    assert (row["name"], row["page_cache_hits"]) == ("bash", 2)


def test_pagecache_has_no_substitute(proc: InventedProc) -> None:
    with pytest.raises(LensError, match=r"not in this test.*takes eBPF"):
        PageCacheTracer(proc.path, page_cache=absent(), target=None)


class InventedRequests:
    """Counters of block I/O whose numbers a test sets."""

    def __init__(self) -> None:
        self.changed: dict[Origin, BlockCount] = {}

    def read(self) -> dict[Origin, BlockCount]:
        return self.changed

    def close(self) -> None:
        pass


def test_blockio_has_disks_and_who_made_the_requests(proc: InventedProc) -> None:
    requests = InventedRequests()
    origin = Origin(pid=7, name="yolo", major=254, minor=1, direction="R")
    requests.changed[origin] = BlockCount(requests=3, bytes=12288, time_ns=4_500_000)
    tracer = BlockIoTracer(
        proc.path,
        Path("/sys"),
        target=None,
        every=AllProcesses(proc.path),
        open_=lambda _sys: requests,
    )
    *disks, process = tracer.read()
    assert [(d["disk"], d["direction"], d["requests"]) for d in disks] == [
        ("vda", "R", 636876),
        ("vda", "W", 48999),
        ("vda1", "R", 63),
        ("vda1", "W", 4),
    ]
    assert disks[0]["io_bytes"] == 59295336 * 512
    assert process == {
        "pid": 7,
        "name": "yolo",
        "direction": "R",
        "disk": "vda1",
        "major": 254,
        "minor": 1,
        "requests": 3,
        "io_bytes": 12288,
        "io_time_us": 4500,
        "source": "ebpf",
    }


def test_blockio_without_ebpf_says_so_and_where_its_rows_are_from(proc: InventedProc) -> None:
    proc.process(7)

    def refuse(_sys: Path) -> InventedRequests:
        raise NodeError("no such tracepoint")

    tracer = BlockIoTracer(
        proc.path, Path("/sys"), target=None, every=AllProcesses(proc.path), open_=refuse
    )
    assert tracer.missing == ("requests of processes by eBPF: no such tracepoint",)
    rows = [row for row in tracer.read() if row["source"] != "diskstats"]
    assert [(row["direction"], row["io_bytes"], row["source"]) for row in rows] == [
        ("R", 4096, "io"),
        ("W", 8192, "io"),
    ]
    assert "requests" not in rows[0], "it cannot be known"
    assert not [row for row in tracer.read() if row["source"] == "io"], "nothing has changed"


@pytest.mark.parametrize(("key", "order"), [(Key.RSS, [9, 7, 8]), (Key.CPU, [7, 9, 8])])
def test_largest_orders_by_memory_or_processor_time(
    proc: InventedProc, key: Key, order: list[int]
) -> None:
    proc.process(7, rss_kib=500, cpu_ticks=900)
    proc.process(8, rss_kib=100, cpu_ticks=1)
    proc.process(9, rss_kib=900, cpu_ticks=10)
    rows = LargestTracer(proc.path, AllProcesses(proc.path), key=key, count=2).read()
    assert [(row["rank"], row["pid"]) for row in rows] == list(enumerate(order[:2], start=1))
    everything = LargestTracer(proc.path, AllProcesses(proc.path), key=key, count=0).read()
    assert [row["pid"] for row in everything] == order


def test_a_process_without_a_pss_is_not_among_the_largest(
    proc: InventedProc,
) -> None:
    proc.process(7)
    (proc.process(8) / "smaps_rollup").write_text("")
    rows = LargestTracer(proc.path, AllProcesses(proc.path), key=Key.PSS, count=9).read()
    assert [row["pid"] for row in rows] == [7]


@pytest.mark.parametrize("key", [Key.RSS, Key.CPU])
def test_of_many_processes_only_the_largest_are_read_whole(proc: InventedProc, key: Key) -> None:
    for pid in range(10, 60):
        folder = proc.process(pid, rss_kib=pid, cpu_ticks=pid, rss_pages=pid)
        if pid < 30:
            (folder / "status").write_text("not to be read")
    tracer = LargestTracer(proc.path, AllProcesses(proc.path), key=key, count=3)
    assert [row["pid"] for row in tracer.read()] == [59, 58, 57]


def test_every_row_has_only_columns_of_its_table(proc: InventedProc) -> None:
    proc.process(7)
    target = OneProcess(proc.path, 7)
    tracers: list[Tracer] = [
        NodeTracer(proc.path, page_cache=absent()),
        PsiTracer(proc.path),
        ProcessTracer(proc.path, target, page_cache=absent()),
        PageTypeTracer(proc.path, target),
        LargestTracer(proc.path, target, key=Key.PSS, count=3),
    ]
    for tracer in tracers:
        for row in tracer.read():
            assert set(row) <= set(tracer.table.names), tracer.table.kind
        tracer.close()


def test_names_end_in_their_unit_and_are_unique() -> None:
    for table in TABLES:
        assert len(set(table.names)) == len(table.names)
        for column in table.columns:
            if "size" in column.meaning or column.source.startswith("meminfo"):
                assert column.name.endswith("_bytes"), column.name


def test_a_rollup_that_is_cut_short_is_no_value(proc: InventedProc) -> None:
    folder = proc.process(7)
    (folder / "smaps_rollup").write_text(ROLLUP[:200])
    tracer = ProcessTracer(proc.path, OneProcess(proc.path, 7), page_cache=absent())
    (row,) = tracer.read()
    assert row["pss_bytes"] is None
    assert any("smaps_rollup: cut short" in why for why in tracer.missing)
