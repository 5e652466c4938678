"""Page-cache counters: every reason why a node may have none, and the cgroup of a process."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from stallward.actuator.errors import NodeError
from stallward.actuator.kernel.bpf import BpfRefusedError, BpfSyscall, possible_cpus
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.target import unbound
from stallward.actuator.sensors.group_reader import GroupReader
from stallward.actuator.sensors.node_reader import NodeReader
from stallward.actuator.sensors.page_cache import readings
from stallward.actuator.sensors.page_cache.counters import (
    BTF,
    CgroupIds,
    PageCacheAbsent,
    PageCacheCount,
    PageCacheCounters,
    PageCacheReading,
    open_page_cache,
)
from stallward.actuator.sensors.page_cache.readings import PageCacheSignal
from stallward.agent.sample import GroupSample, NodeSample, ProcessSample, Sample

SYS = Paths().sys
HAS_BTF = pytest.mark.skipif(
    not (SYS / BTF).exists(), reason="this kernel has no type information"
)
EMPTY_BTF = bytes.fromhex("9feb0100 18000000 00000000 00000000 00000000 01000000 00")


class RefusingBpf(BpfSyscall):
    """A kernel that refuses one command, and hands out descriptors for all others."""

    def __init__(self, command: int, number: int) -> None:
        super().__init__()
        self.command = command
        self.number = number
        self.handed_out: list[int] = []

    def call(self, command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
        if command == self.command:
            return -self.number
        fd = os.open("/dev/null", os.O_RDONLY)
        self.handed_out.append(fd)
        return fd


def reason(result: object) -> str:
    assert isinstance(result, PageCacheAbsent)
    return result.reason


def test_a_kernel_without_type_information(tmp_path: Path) -> None:
    why = reason(open_page_cache(sys=tmp_path))
    assert "CONFIG_DEBUG_INFO_BTF" in why
    assert str(tmp_path / BTF) in why


def test_type_information_that_cannot_be_read_or_understood(tmp_path: Path) -> None:
    place = tmp_path / BTF
    place.mkdir(parents=True)
    assert str(place) in reason(open_page_cache(sys=tmp_path))
    place.rmdir()
    place.write_bytes(b"ELF and so on, but no types at all")
    assert "not type information" in reason(open_page_cache(sys=tmp_path))


def test_a_kernel_without_the_tracepoints(tmp_path: Path) -> None:
    (tmp_path / BTF).parent.mkdir(parents=True)
    (tmp_path / BTF).write_bytes(EMPTY_BTF)
    write_possible(tmp_path, "0-3")
    bpf = RefusingBpf(command=-1, number=0)
    why = reason(open_page_cache(sys=tmp_path, bpf=bpf))
    assert "no tracepoint mm_filemap_add_to_page_cache" in why


@HAS_BTF
@pytest.mark.parametrize(("command", "what"), [(0, "map"), (5, "program"), (17, "attaching")])
def test_a_kernel_that_refuses_leaves_nothing_open(command: int, what: str) -> None:
    bpf = RefusingBpf(command, errno.EPERM)
    why = reason(open_page_cache(sys=SYS, bpf=bpf))
    if "tracepoint" in why and "this kernel" in why:
        pytest.skip(why)
    assert what in why
    assert "CAP_BPF and CAP_PERFMON" in why
    for fd in bpf.handed_out:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_the_verifiers_words_are_in_the_error() -> None:
    error = BpfRefusedError.of("program x", errno.EACCES, "R1 !read_ok")
    assert "R1 !read_ok" in str(error)
    assert "CAP_BPF" not in str(error)


def write_possible(sys: Path, text: str) -> None:
    place = sys / "devices/system/cpu/possible"
    place.parent.mkdir(parents=True)
    place.write_text(text)


@pytest.mark.parametrize(("text", "count"), [("0\n", 1), ("0-7\n", 8), ("0-3,8,10-11\n", 7)])
def test_possible_cpus(tmp_path: Path, text: str, count: int) -> None:
    write_possible(tmp_path, text)
    assert possible_cpus(tmp_path) == count


@pytest.mark.parametrize("text", [None, "", "many"])
def test_possible_cpus_unknown(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        write_possible(tmp_path, text)
    with pytest.raises(NodeError, match="possible"):
        possible_cpus(tmp_path)


def test_a_cgroup_that_is_gone_is_in_no_group(tmp_path: Path) -> None:
    assert CgroupIds(tmp_path, [tmp_path]).groups_of(1 << 40) == ()
    assert CgroupIds(None, [None]).groups_of(1) == ()
    assert CgroupIds(tmp_path / "not there", [tmp_path]).groups_of(1) == ()


PROCESS = ProcessSample(pid=os.getpid(), start_time_ticks=1, slot=0, oom_score=0, stopped=False)
SAMPLE = Sample(
    sequence=1,
    time_s=1.0,
    node=NodeSample(),
    zone=GroupSample(name="zone"),
    protected=GroupSample(name="app"),
    processes=(PROCESS,),
)
NODE = Hierarchy(kind="v2")
GROUPS = tuple(NODE.group(name) for name in ("zone", "zone/app", "zone/hog"))


class Readers:
    """The readers of a node without any file, to which a signal gives its counts."""

    def __init__(self, proc: Path) -> None:
        self.node = NodeReader(proc)
        self.groups = [GroupReader(group) for group in GROUPS]

    def step(self, signal: PageCacheSignal, now_s: float) -> None:
        signal.step(now_s, self.node, self.groups)

    @property
    def counts(self) -> list[tuple[int, int] | None]:
        """Hits and misses of the node, and of each group."""
        return [self.node.page_cache, *(group.page_cache for group in self.groups)]


class FakeCounters:
    """Counts one more hit at each read, until the kernel refuses."""

    def __init__(self) -> None:
        self.reads = 0
        self.refuses = False
        self.closed = False

    def read(self) -> PageCacheReading:
        if self.refuses:
            raise BpfRefusedError.of("batch", errno.EPERM)
        self.reads += 1
        count = PageCacheCount(hits=self.reads, misses=0)
        return PageCacheReading(node=count, groups=(count, None, count))

    def process(self, pid: int) -> PageCacheCount:
        return PageCacheCount(hits=self.reads, misses=pid)

    def close(self) -> None:
        self.closed = True


def signal_of(mode: str, sys: Path = SYS) -> PageCacheSignal:
    zone, protected, slot = GROUPS
    return PageCacheSignal(
        mode, hierarchy=NODE, zone=zone, protected=[protected], slots=[slot], sys=sys
    )


def test_an_unavailable_signal_says_why_and_counts_nothing(tmp_path: Path) -> None:
    signal, readers = signal_of("auto", tmp_path), Readers(tmp_path)
    readers.step(signal, 1.0)
    assert readers.counts == [None] * 4
    assert signal.absent is not None
    assert "CONFIG_DEBUG_INFO_BTF" in signal.absent
    assert signal.fill_processes(SAMPLE) is SAMPLE
    signal.close()
    with pytest.raises(NodeError, match="CONFIG_DEBUG_INFO_BTF"):
        signal_of("ebpf", tmp_path)


def test_counts_are_read_once_a_second_and_stay_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeCounters()
    monkeypatch.setattr(readings, "open_page_cache", lambda *_, **__: fake)
    signal, readers = signal_of("auto"), Readers(tmp_path)
    seen = []
    for tick in range(25):
        readers.step(signal, 100.0 + tick / 10)
        node = readers.node.read()
        seen.append(node.page_cache_hits)
    assert seen == [1] * 10 + [2] * 10 + [3] * 5
    assert readers.counts == [(3, 0), (3, 0), None, (3, 0)]
    (process,) = signal.fill_processes(SAMPLE).processes or ()
    assert (process.page_cache_hits, process.page_cache_misses) == (3, os.getpid())


def test_counts_are_absent_once_the_kernel_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeCounters()
    monkeypatch.setattr(readings, "open_page_cache", lambda *_, **__: fake)
    signal, readers = signal_of("auto"), Readers(tmp_path)
    readers.step(signal, 1.0)
    fake.refuses = True
    readers.step(signal, 2.0)
    assert fake.closed
    assert readers.counts == [None] * 4
    assert signal.absent is not None


class OneFolder(CgroupIds):
    """Finds the same directory by every number."""

    folder = ""

    def _path(self, number: int) -> str:
        return self.folder


class CountersWithoutKernel(PageCacheCounters):
    """Ten hits come from one cgroup before each read, whatever its number is."""

    def __init__(self, groups: Sequence[Path | None], root: Path) -> None:
        self._groups = [None if path is None else [0, 0] for path in groups]
        self._cgroups = self._one = OneFolder(root, groups)
        self._processes = {}

    def come_from(self, number: int, path: Path) -> None:
        """Say which cgroup the hits come from."""
        self.number = number
        self._one.folder = os.path.realpath(path)

    def read(self) -> PageCacheReading:
        for total in self._of(self.number):
            total[0] += 10
        counts = [None if t is None else PageCacheCount(hits=t[0]) for t in self._groups]
        return PageCacheReading(node=PageCacheCount(), groups=tuple(counts))

    def close(self) -> None:
        pass


def test_groups_have_no_counts_where_the_kernel_does_not_say_which_cgroup_is_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    counters = CountersWithoutKernel([tmp_path], tmp_path)
    assert counters._counts_of_groups() == (PageCacheCount(),)
    cgroups = counters._cgroups = CgroupIds(tmp_path, [tmp_path])
    monkeypatch.setattr(cgroups, "_open", refuse)
    assert counters._of(7) == []
    assert counters._counts_of_groups() == (None,), "absent, not 0"


def test_a_place_that_pods_have_in_turn_counts_each_of_them_from_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hierarchy = Hierarchy(kind="v2", unified_root=tmp_path, memory_root=tmp_path)
    zone, empty = hierarchy.group("zone"), unbound(hierarchy, "a")
    pods = [hierarchy.group(f"zone/{name}") for name in ("app", "first", "second")]
    made: list[CountersWithoutKernel] = []

    def opened(
        *, sys: Path, groups: Sequence[Path | None], cgroup_root: Path
    ) -> PageCacheCounters:
        made.append(CountersWithoutKernel(groups, cgroup_root))
        return made[0]

    monkeypatch.setattr(readings, "open_page_cache", opened)
    signal = PageCacheSignal(
        "auto", hierarchy=hierarchy, zone=zone, protected=[empty], slots=[empty], sys=tmp_path
    )
    node, readers = (
        NodeReader(tmp_path),
        [GroupReader(zone), GroupReader(empty), GroupReader(empty)],
    )

    def counts(now_s: float, place: int, group: Cgroup, active: int) -> list[int | None]:
        """The hits of the zone and both places after a second, with a group in one place."""
        if readers[place].group != group:
            readers[place] = GroupReader(group)
        path = pods[active].unified_dir
        assert path is not None
        made[0].come_from(active, path / "container")
        signal.step(now_s, node, readers)
        return [None if one.page_cache is None else one.page_cache[0] for one in readers]

    assert counts(1.0, 2, empty, 1) == [10, None, None]
    assert counts(2.0, 2, pods[1], 1) == [20, None, 10]
    assert counts(3.0, 1, pods[0], 0) == [30, 10, 10]
    assert counts(4.0, 2, pods[1], 1) == [40, 10, 20]
    assert counts(5.0, 2, pods[2], 1) == [50, 10, 0]
    assert counts(6.0, 2, pods[2], 2) == [60, 10, 10]
    assert counts(7.0, 1, empty, 0) == [70, None, 10]


def test_the_sample_of_a_group_has_the_counts_that_its_reader_was_given(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "memory.current").write_text("4096\n")
    hierarchy = Hierarchy(kind="v2", unified_root=tmp_path, memory_root=tmp_path)
    reader = GroupReader(hierarchy.group("app"))
    assert reader.read(1.0).page_cache_hits is None
    reader.page_cache = (7, 2)
    sample = reader.read(2.0)
    assert (sample.page_cache_hits, sample.page_cache_misses) == (7, 2)


@pytest.mark.live
def test_a_signal_gives_what_it_knows(tmp_path: Path) -> None:
    signal, readers = signal_of("auto"), Readers(tmp_path)
    if signal.absent is not None:
        pytest.skip(signal.absent)
    try:
        for path in (__file__, str(SYS / BTF), __file__):
            Path(path).read_bytes()
        readers.step(signal, 1.0)
        node, _, protected, _ = readers.counts
        assert node is not None
        assert node[0]
        assert protected is None
        (process,) = signal.fill_processes(SAMPLE).processes or ()
        assert process.page_cache_hits
    finally:
        signal.close()
    assert signal.fill_processes(SAMPLE) is SAMPLE
