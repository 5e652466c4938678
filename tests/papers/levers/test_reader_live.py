"""What is read in for a group is on its account, and the process that asks is left nowhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stallward.actuator.errors import LeverError
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.memory.mappings import ADVICE_NUMBERS, process_madvise
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base.plugin import load_levers
from stallward.actuator.levers.lever_set import LeverOptions, LeverSet
from stallward.actuator.levers.process.page_advice import advise_ranges, private_ranges
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.sensors.processes.members import GroupMembers
from stallward.agent.desired import MIB, RELEASED, DesiredState
from stallward.agent.file_pages import FilePages
from stallward.papers.levers.file_cache import PAGE_BYTES, cached_pages, why_no_cachestat
from stallward.papers.levers.reader.reader import Reader

PROC = Paths().proc
SIZE = 40 * MIB
PATIENCE_S = 30.0
WILLNEED = ADVICE_NUMBERS["willneed"]
READ_IN = DesiredState(
    file_pages=FilePages(action="willneed", victim="largest-size", scope="all", grab_pages=512)
)

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(bool(why_no_cachestat()), reason=why_no_cachestat() or "has it"),
]

# Maps a file, and touches none of it.
MAPPER = """
import mmap, sys, time
with open(sys.argv[1], "rb") as file:
    view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(flush=True)
time.sleep(600)
"""
HOLDER = f"""
import mmap, time
held = mmap.mmap(-1, {SIZE}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, {SIZE}, 4096):
    held[at:at + 8] = at.to_bytes(8)
print(flush=True)
time.sleep(600)
"""
# Stands for a daemon: its reader is in the group whose pages it is to read in.
DAEMON = """
import sys, time
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import Paths
from stallward.papers.levers.reader.reader import Reader
reader = Reader(require(Paths()), Paths().proc)
with reader.within(int(sys.argv[1]), lambda: False):
    print(reader.pid, flush=True)
    time.sleep(600)
"""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not reaped yet does not."""
    status = PROC / str(pid) / "status"
    try:
        return "State:\tZ" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class Site:
    """A slot with its own memory limit, an application, and a file that is not in the cache."""

    def __init__(self, folder: Path) -> None:
        self.hierarchy: Hierarchy = require(Paths())
        self.zone = self.hierarchy.group(f"stallward-test-{os.getpid()}/read")
        self.app, self.slot = self.zone.child("app"), self.zone.child("bg")
        for group in (self.zone, self.app, self.slot):
            group.create()
        self.v2 = self.hierarchy.kind == "v2"
        self.path = folder / "data"
        self.path.write_bytes(os.urandom(SIZE))
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, code: str, *arguments: str) -> int:
        """Run Python code in the slot; returns its pid when it has printed a line."""
        entries = [str(folder / "cgroup.procs") for folder in self.slot.member_dirs]
        enter = f"for e in {entries!r}: open(e, 'w').write('0')"
        process = self.run(f"{enter}\n{code}", *arguments)
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        return process.pid

    def run(self, code: str, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE
        )
        self.processes.append(process)
        return process

    def map_file(self) -> int:
        """Start a process that maps the file, with none of it in the page cache."""
        pid = self.start(MAPPER, str(self.path))
        self.evict()
        return pid

    def evict(self) -> None:
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert cached_pages(file.fileno()).cached == 0

    def cached_bytes(self) -> int:
        with self.path.open("rb") as file:
            return cached_pages(file.fileno()).cached * PAGE_BYTES

    def file(self, name_v1: str, name_v2: str, group: Cgroup | None = None) -> Path:
        folder = (group or self.slot).memory_dir
        assert folder is not None
        return folder / (name_v2 if self.v2 else name_v1)

    def usage(self) -> int:
        return int(self.file("memory.usage_in_bytes", "memory.current").read_text())

    def listed(self) -> set[int]:
        """The processes that the kernel lists in the slot."""
        folders = self.slot.dirs
        return {int(pid) for one in folders for pid in (one / "cgroup.procs").read_text().split()}

    def limit(self, size: int | None) -> None:
        unlimited = "max" if self.v2 else "-1"
        value = unlimited if size is None else str(size)
        self.file("memory.limit_in_bytes", "memory.max").write_text(value)

    def close(self) -> None:
        self.zone.kill()
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.zone.remove()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    made = Reader(site.hierarchy, PROC)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def levers(site: Site) -> Iterator[LeverSet]:
    made = LeverSet(
        Paths(),
        site.hierarchy,
        site.zone,
        (site.app,),
        (site.slot,),
        400 * MIB,
        lambda *_: None,
        options=LeverOptions(plugins=load_levers(["file_pages"])),
    )
    try:
        yield made
    finally:
        made.restore()
        made.close()


def read_in(levers: LeverSet, done: Callable[[], bool]) -> list[LeverResult]:
    results: list[LeverResult] = []

    def tick() -> bool:
        results.extend(levers.apply(READ_IN))
        assert all(result.ok for result in results), results
        return bool(results) and done()

    wait_until(tick, "the pages are read in")
    return results


def test_file_pages_of_a_slot_are_cleared_for_as_long_as_that_is_wanted(
    site: Site, levers: LeverSet
) -> None:
    pid = site.start("import time; print(flush=True); time.sleep(600)")
    state = DesiredState(file_pages=FilePages(action="clear", victim="largest-file"))
    results: list[LeverResult] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(results) < 3 and time.monotonic() < deadline:
        results += levers.apply(state)
        time.sleep(0.01)
    assert len(results) >= 3, "again at every tick"
    assert all(result.ok and result.value.endswith(f"pid {pid}") for result in results), results
    assert levers.held() == ()
    levers.apply(RELEASED)
    levers.restore()
    assert levers.apply(RELEASED) == ()


def test_what_is_read_in_is_on_the_account_of_the_victims_group(
    site: Site, levers: LeverSet
) -> None:
    pid = site.map_file()
    before = site.usage()
    results = read_in(levers, lambda: site.cached_bytes() >= SIZE)
    assert results[0].value.endswith(f"pid {pid}")
    assert site.usage() - before > 0.9 * SIZE
    wait_until(lambda: site.listed() == {pid}, "the reader has left the group")
    assert levers.held() == ()


def test_what_is_read_in_does_not_escape_the_limit_of_the_group(
    site: Site, levers: LeverSet
) -> None:
    site.map_file()
    limit = site.usage() + SIZE // 2
    site.limit(limit)
    results = read_in(levers, lambda: site.usage() > limit - 4 * MIB)
    assert results
    for _ in range(20):
        levers.apply(READ_IN)
        time.sleep(0.02)
    assert site.usage() <= limit
    assert site.cached_bytes() <= SIZE // 2 + 2 * MIB, "the rest does not fit"


def test_swapped_pages_go_back_to_the_group_that_they_are_of_whoever_asks(site: Site) -> None:
    swaps = (PROC / "swaps").read_text().splitlines()
    if len(swaps) < 2 or int((PROC / "sys/vm/swappiness").read_text()) == 0:
        pytest.skip("no swap is on")
    pid = site.start(HOLDER)
    full = site.usage()
    assert full > SIZE
    try:
        site.limit(full - SIZE // 2)
    except OSError:
        pytest.skip("the pages are not swapped out")
    swapped = site.usage()
    assert swapped < full - SIZE // 4
    site.limit(None)
    pidfd = os.pidfd_open(pid)
    try:
        ranges = list(private_ranges((PROC / str(pid) / "maps").read_bytes(), files=False))
        advise_ranges(process_madvise, pidfd, ranges, WILLNEED, lambda: False)
    finally:
        os.close(pidfd)
    wait_until(lambda: site.usage() > full - 2 * MIB, f"{site.usage()} of {full} are back")


def test_the_reader_is_no_member_of_the_group_that_it_is_in(site: Site, reader: Reader) -> None:
    pid = site.map_file()
    members = GroupMembers(site.slot)
    try:
        assert members.pids() == {pid}
        with reader.within(pid, lambda: False):
            assert site.listed() == {pid, reader.pid}
            assert site.slot.pids(recursive=True) == (pid,)
            assert members.pids() == {pid}
        assert site.listed() == {pid}
        assert alive(reader.pid or 0), "the next request does not start another"
    finally:
        members.close()


def test_the_same_reader_serves_every_request_until_it_is_closed(
    site: Site, reader: Reader
) -> None:
    pid = site.map_file()
    seen = set()
    for _ in range(3):
        with reader.within(pid, lambda: False):
            seen.add(reader.pid)
    (process,) = seen
    reader.close()
    assert process is not None
    assert not alive(process)
    assert site.hierarchy.guests.pids == frozenset()


def test_a_reader_that_is_killed_is_said_and_replaced(site: Site, reader: Reader) -> None:
    pid = site.map_file()
    pidfd = os.pidfd_open(pid)
    try:
        with reader.within(pid, lambda: False) as inside:
            killed = reader.pid
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            with pytest.raises(LeverError, match="killed"):
                inside.advise(pidfd, [], WILLNEED)
        with reader.within(pid, lambda: False) as inside:
            assert reader.pid not in {None, killed}
            assert inside.advise(pidfd, [], WILLNEED) == 0
    finally:
        os.close(pidfd)
    assert site.listed() == {pid}


def test_a_killed_daemon_leaves_no_reader_behind(site: Site) -> None:
    pid = site.map_file()
    daemon = site.run(DAEMON, str(pid))
    assert daemon.stdout is not None
    left = int(daemon.stdout.readline())
    assert site.listed() == {pid, left}
    daemon.kill()
    daemon.wait()
    wait_until(lambda: not alive(left), "it ends with its daemon")
    wait_until(lambda: site.listed() == {pid}, "only the victim is left")


def test_a_frozen_reader_ends_with_its_daemon(site: Site) -> None:
    if not site.v2:
        pytest.skip("on v1 the reader enters the memory hierarchy only, which freezes nothing")
    pid = site.map_file()
    daemon = site.run(DAEMON, str(pid))
    assert daemon.stdout is not None
    left = int(daemon.stdout.readline())
    assert site.slot.unified_dir is not None
    (site.slot.unified_dir / "cgroup.freeze").write_text("1")
    daemon.kill()
    daemon.wait()
    wait_until(lambda: not alive(left), "it ends although it is frozen")
    (site.slot.unified_dir / "cgroup.freeze").write_text("0")
    assert alive(pid)


def test_a_group_that_is_frozen_while_pages_are_asked_for_keeps_nothing(
    site: Site, reader: Reader
) -> None:
    if not site.v2:
        pytest.skip("on v1 the reader enters the memory hierarchy only, which freezes nothing")
    pid = site.map_file()
    assert site.slot.unified_dir is not None
    freeze = site.slot.unified_dir / "cgroup.freeze"
    pidfd = os.pidfd_open(pid)
    try:
        with reader.within(pid, lambda: True) as inside:
            freeze.write_text("1")
            with pytest.raises(LeverError, match="in time"):
                inside.advise(pidfd, [], WILLNEED)
        wait_until(lambda: site.listed() == {pid}, "the reader has left")
        with pytest.raises(LeverError, match="paused"), reader.within(pid, lambda: False):
            pass
    finally:
        freeze.write_text("0")
        os.close(pidfd)
    with reader.within(pid, lambda: False):
        assert reader.pid is not None


def test_pages_are_marked_from_within_the_group_unless_it_is_paused(
    site: Site, reader: Reader
) -> None:
    pid = site.map_file()
    with site.path.open("rb") as file:
        os.pread(file.fileno(), PAGE_BYTES, 0)
        cached = cached_pages(file.fileno()).cached
        with reader.within(pid, lambda: False, reads=False) as inside:
            assert site.listed() == {pid, reader.pid}
            assert inside.mark(file.fileno(), 0, SIZE) == cached
        if not site.v2:
            return
        assert site.slot.unified_dir is not None
        freeze = site.slot.unified_dir / "cgroup.freeze"
        freeze.write_text("1")
        try:
            with reader.within(pid, lambda: False, reads=False) as inside:
                assert site.listed() == {pid}
                assert inside.mark(file.fileno(), 0, SIZE) == cached
        finally:
            freeze.write_text("0")


def test_a_reader_that_touches_what_is_cut_off_ends_alone(site: Site, reader: Reader) -> None:
    """A file that becomes shorter is a bus error for who touches its pages at that moment."""
    pid = site.map_file()
    with site.path.open("rb") as file, reader.within(pid, lambda: False, reads=False) as inside:
        assert reader.pid is not None
        os.kill(reader.pid, signal.SIGBUS)
        with pytest.raises(LeverError, match="killed"):
            inside.mark(file.fileno(), 0, SIZE)
    assert site.listed() == {pid}
