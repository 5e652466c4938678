"""Page-cache counters against reads whose numbers are known, where the kernel allows eBPF."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.kernel.bpf import (
    R0,
    R1,
    TRACEPOINT,
    Assembler,
    BpfRefusedError,
    BpfSyscall,
    Btf,
)
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.sensors.page_cache import counters as page_cache
from stallward.actuator.sensors.page_cache.counters import (
    BTF,
    PageCacheAbsent,
    PageCacheCount,
    PageCacheCounters,
    open_page_cache,
)

pytestmark = pytest.mark.live

SYS = Paths().sys
PAGES = 1024
PAGE = 4096
ROOTS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
ROOT = next((root for root in ROOTS if (root / "cgroup.procs").exists()), None)

READER = """
import mmap, os, sys
kind, path, group = sys.argv[1:]
if group:
    with open(group + "/cgroup.procs", "w") as procs:
        procs.write(str(os.getpid()))
fd = os.open(path, os.O_RDONLY)
mapped = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
mapped.madvise(mmap.MADV_RANDOM)
def work():
    if kind == "read":
        os.lseek(fd, 0, os.SEEK_SET)
        while os.read(fd, 16384): pass
    elif kind == "send":
        at = 0
        while sent := os.sendfile(null, fd, at, 65536): at += sent
    elif kind == "write":
        os.pwrite(out, bytes(4096 * 1024), 0)
    else:
        for i in range(1024): mapped[i * 4096]
out = os.open(path + ".out", os.O_RDWR | os.O_CREAT)
null = os.open("/dev/null", os.O_WRONLY)
print("ready", flush=True)
for line in sys.stdin:
    work()
    print("done", flush=True)
"""


class Reader:
    """A process that reads the file once for every line it is sent."""

    def __init__(self, kind: str, path: Path, group: Path | None = None) -> None:
        self.path = path
        command = [sys.executable, "-c", textwrap.dedent(READER), kind, str(path)]
        self.process = subprocess.Popen(
            [*command, str(group or "")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def go(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def close(self) -> None:
        self.process.communicate()


def drop(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(PAGES * PAGE))
    drop(path)
    return path


def opened(groups: tuple[Path | None, ...] = ()) -> PageCacheCounters:
    page_cache = open_page_cache(sys=SYS, groups=groups, cgroup_root=ROOT)
    if isinstance(page_cache, PageCacheAbsent):
        pytest.skip(f"eBPF: {page_cache.reason}")
    return page_cache


@pytest.fixture
def counters() -> Iterator[PageCacheCounters]:
    page_cache = opened()
    yield page_cache
    page_cache.close()


def less(after: PageCacheCount, before: PageCacheCount) -> tuple[int, int]:
    return after.hits - before.hits, after.misses - before.misses


def counted(counters: PageCacheCounters, reader: Reader) -> tuple[int, int]:
    counters.read()
    before = counters.process(reader.process.pid)
    reader.go()
    counters.read()
    return less(counters.process(reader.process.pid), before)


@pytest.mark.parametrize("kind", ["read", "map"])
def test_cold_is_misses_and_warm_is_hits(
    counters: PageCacheCounters, file: Path, kind: str
) -> None:
    reader = Reader(kind, file)
    try:
        hits, misses = counted(counters, reader)
        assert misses == pytest.approx(PAGES, rel=0.02)
        assert hits < 0.02 * PAGES + 16  # a few of the interpreter's own
        if kind == "read":
            hits, misses = counted(counters, reader)
            assert hits == pytest.approx(PAGES, rel=0.02)
            assert misses < 0.02 * PAGES
    finally:
        reader.close()


def test_writing_a_new_file_is_neither_hit_nor_miss(
    counters: PageCacheCounters, file: Path
) -> None:
    reader = Reader("write", file)
    try:
        hits, misses = counted(counters, reader)
        assert misses < 16
        assert hits < 64
    finally:
        reader.close()


@pytest.fixture
def group() -> Iterator[Path]:
    if ROOT is None:
        pytest.skip("no cgroup v2 hierarchy")
    top = ROOT / f"stallward-pagecache-{os.getpid()}"
    (top / "below").mkdir(parents=True)
    (top / "other").mkdir()
    yield top
    for path in (top / "below", top / "other", top):
        path.rmdir()


def test_a_group_counts_what_is_below_it_and_nothing_else(group: Path, file: Path) -> None:
    counters = opened((group, group / "below", group / "other", None))
    reader = Reader("read", file, group / "below")
    try:
        reader.go()
        before = counters.read()
        reader.go()
        after = counters.read()
        for new, old in zip(after.groups[:2], before.groups[:2], strict=True):
            assert new is not None
            assert old is not None
            hits, misses = less(new, old)
            assert hits == pytest.approx(PAGES, rel=0.02)
            assert misses < 0.02 * PAGES
        assert after.groups[2] == PageCacheCount(hits=0, misses=0)
        assert after.groups[3] is None
        assert less(after.node, before.node)[0] >= 0.98 * PAGES
    finally:
        reader.close()
        counters.close()


def test_processes_without_room_in_the_map_still_count_for_the_node(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    monkeypatch.setattr(page_cache, "_ENTRIES", 1)
    counters = opened()
    first, second = Reader("read", file), Reader("read", file)
    try:
        counters.read()
        before = counters.read()
        for reader in (first, second, first, second):
            reader.go()
        after = counters.read()
        assert sum(less(after.node, before.node)) >= 4 * 0.98 * PAGES
        named = [
            sum(less(counters.process(r.process.pid), PageCacheCount())) for r in (first, second)
        ]
        assert sum(named) < 4 * 0.98 * PAGES
    finally:
        first.close()
        second.close()
        counters.close()


def bpf_ids(pid: int | str = "self") -> dict[str, list[int]]:
    """The kernel's ids of the eBPF programs and links that a process holds."""
    ids: dict[str, list[int]] = {"prog_id": [], "link_id": []}
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            lines = info.read_text().splitlines()
        except FileNotFoundError:
            continue
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        key = "link_id" if "link_id" in fields else "prog_id"
        if key in fields:
            ids[key].append(int(fields[key]))
    return ids


def exists(command: int, number: int) -> bool:
    attributes = ctypes.create_string_buffer(struct.pack("<III", number, 0, 0), 12)
    fd = BpfSyscall().call(command, attributes)
    if fd >= 0:
        os.close(fd)
        return True
    assert fd == -errno.ENOENT
    return False


def wait_gone(ids: dict[str, list[int]]) -> None:
    deadline_s = time.monotonic() + 5
    places = [(13, number) for number in ids["prog_id"]]
    places += [(30, number) for number in ids["link_id"]]
    while any(exists(*place) for place in places):
        assert time.monotonic() < deadline_s, "still attached"
        time.sleep(0.01)


def test_closing_detaches(counters: PageCacheCounters) -> None:
    ids = bpf_ids()
    assert len(ids["prog_id"]) == len(ids["link_id"]) == 5
    assert all(exists(13, number) for number in ids["prog_id"])
    counters.close()
    counters.close()
    wait_gone(ids)


def test_nothing_stays_attached_after_kill_9(counters: PageCacheCounters) -> None:
    counters.close()
    script = (
        "from stallward.actuator.kernel.paths import Paths; "
        "from stallward.actuator.sensors.page_cache.counters import open_page_cache; "
        "c = open_page_cache(sys=Paths().sys); c.read(); print('open', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        ids = bpf_ids(child.pid)
        assert len(ids["link_id"]) == 5
        assert all(exists(30, number) for number in ids["link_id"])
        child.send_signal(signal.SIGKILL)
    wait_gone(ids)


def test_the_error_holds_the_reason_of_the_verifier(counters: PageCacheCounters) -> None:
    asm = Assembler()
    asm.load(R0, R1, 4096)
    asm.end()
    name = "btf_trace_mm_filemap_fault"
    place = Btf((SYS / BTF).read_bytes(), SYS / BTF, (name,)).tracepoint(name)
    assert place is not None
    with pytest.raises(BpfRefusedError, match=r"verifier says: .*ctx"):
        BpfSyscall().load_program(
            "sw_bad", asm.assemble(), attach_type=TRACEPOINT, attach_to=place.type_id
        )
