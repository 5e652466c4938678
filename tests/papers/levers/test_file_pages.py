"""The lever on file pages: the right victim, the right pages, and nobody else's."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stallward.actuator.errors import GroupError
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.memory.mappings import mappings
from stallward.actuator.levers.base.plugin import ProcessSource, levers_of
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.controller import Need
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.file_pages import FilePages, Victim
from stallward.papers.levers.file_cache import (
    PAGE_BYTES,
    cached_pages,
    why_no_cachestat,
    write_back,
)
from stallward.papers.levers.file_page_parts import (
    why_no_file_pages,
    why_not,
)
from stallward.papers.levers.file_pages import (
    FLUSH_PAGES,
    FilePagesLever,
)
from stallward.papers.levers.file_ranges import file_ranges
from stallward.papers.levers.file_victims import Candidate, choose, read_candidate
from stallward.papers.levers.reader.reader import Reader

PROC = Path("/proc")
PAGES = 512
REFERENCED, ACTIVE = 2, 6
"""Bits of /proc/kpageflags (linux/kernel-page-flags.h)."""
_LACKS = why_no_file_pages(PROC)
needs_all = pytest.mark.skipif(bool(_LACKS), reason="; ".join(_LACKS.values()) or "has all")

# Maps a file below everything else, so that it is the first mapping, and reads or writes it
# whenever it is told to.
PROGRAM = """
import ctypes, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
size = os.fstat(fd).st_size
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
MAP_SHARED_FIXED = 0x11
at = libc.mmap(ctypes.c_void_p(0x100000), ctypes.c_size_t(size), 3, MAP_SHARED_FIXED, fd,
               ctypes.c_long(0))
assert at == 0x100000, (at, ctypes.get_errno())
pages = (ctypes.c_char * size).from_address(at)
others = bytearray(32 << 20)
print(flush=True)
for line in sys.stdin:
    sum(others[::4096])  # the processor forgets which pages it has marked as referenced
    for one in range(0, size, 4096):
        if line == "write\\n":
            pages[one] = 65
        else:
            pages[one]
    print(flush=True)
"""


class Mapper:
    """A process behind whose first mapping is a file of :data:`PAGES` pages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(os.urandom(PAGES * PAGE_BYTES))
        with path.open("rb") as file:
            os.fsync(file.fileno())
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._wait()

    def _wait(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "\n"

    def do(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        self._wait()

    @property
    def pid(self) -> int:
        return self.process.pid

    def cached(self) -> int:
        with self.path.open("rb") as file:
            return cached_pages(file.fileno()).cached

    def dirty(self) -> int:
        with self.path.open("rb") as file:
            return cached_pages(file.fileno()).dirty

    def of_mapping(self, key: str) -> int:
        """A size of the first mapping in pages, from /proc/PID/smaps."""
        lines = Path(f"/proc/{self.pid}/smaps").read_text().splitlines()
        value = next(line for line in lines if line.startswith(f"{key}:"))
        return int(value.split()[1]) * 1024 // PAGE_BYTES

    def flagged(self, bit: int) -> int:
        """How many pages of the first mapping have a flag of the kernel (/proc/kpageflags)."""
        with Path(f"/proc/{self.pid}/pagemap").open("rb", buffering=0) as file:
            entries = struct.unpack(
                f"={PAGES}Q", os.pread(file.fileno(), 8 * PAGES, 8 * (0x100000 // PAGE_BYTES))
            )
        with Path("/proc/kpageflags").open("rb", buffering=0) as file:
            flags = (
                struct.unpack("=Q", os.pread(file.fileno(), 8, 8 * (entry & ((1 << 55) - 1))))[0]
                for entry in entries
                if entry >> 63
            )
            return sum(one >> bit & 1 for one in flags)

    def in_use(self) -> bool:
        """Whether most pages are referenced."""
        return self.of_mapping("Referenced") > PAGES // 2

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def mapper(tmp_path: Path) -> Iterator[Mapper]:
    made = Mapper(tmp_path / "data")
    yield made
    made.close()


def source(*pids: int, check: Callable[[], None] = lambda: None) -> ProcessSource:
    return ProcessSource(members=lambda: pids, holds=lambda pid: pid in pids, check=check)


READERS: list[Reader] = []


@pytest.fixture(autouse=True)
def _no_reader_is_left() -> Iterator[None]:
    yield
    while READERS:
        READERS.pop().close()


def lever_on(*slots: ProcessSource, protected: ProcessSource | None = None) -> FilePagesLever:
    READERS.append(Reader(Hierarchy(), PROC))
    return FilePagesLever(slots, protected or source(), PROC, READERS[-1])


def settle(lever: FilePagesLever, wish: FilePages | None) -> list[LeverResult]:
    """Let the lever act once, or say why it does not."""
    state = RELEASED if wish is None else DesiredState(file_pages=wish)
    results = list(lever.apply(state, time.monotonic()))
    deadline_s = time.monotonic() + 30.0
    while lever._worker.busy and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return results + list(lever.poll(time.monotonic()))


def wish(action: str, victim: Victim = "largest-size", **others: object) -> FilePages:
    return FilePages(action=action, victim=victim, **others)  # type: ignore[arg-type]


# ------------------------------------------------------------------ what is done


@needs_all
def test_clearing_takes_the_pages_for_unreferenced_until_they_are_used(mapper: Mapper) -> None:
    lever = lever_on(source(mapper.pid))
    mapper.do("read")
    assert mapper.in_use()
    (result,) = settle(lever, wish("clear", "largest-file"))
    assert result.ok, result
    assert str(mapper.pid) in result.value
    assert mapper.of_mapping("Referenced") == 0
    assert mapper.of_mapping("Rss") == PAGES, "they stay in memory"
    mapper.do("read")
    assert mapper.in_use(), "nothing needs to be undone"


@needs_all
def test_what_is_wanted_is_done_again_at_every_tick_until_it_is_not(mapper: Mapper) -> None:
    lever = lever_on(source(mapper.pid))
    for _ in range(3):
        mapper.do("read")
        (result,) = settle(lever, wish("clear"))
        assert result.ok
        assert mapper.of_mapping("Referenced") == 0
        assert not lever.idle
    assert settle(lever, None) == []
    assert lever.idle
    assert not lever.held
    mapper.do("read")
    assert mapper.in_use()


@needs_all
@pytest.mark.parametrize("grab", [16, 256, 512])
def test_paging_out_drops_pages_that_come_back_as_they_are_used(mapper: Mapper, grab: int) -> None:
    mapper.do("read")
    (result,) = settle(lever_on(source(mapper.pid)), wish("pageout", grab_pages=grab))
    assert result.ok, result
    assert mapper.of_mapping("Rss") == 0
    mapper.do("read")
    assert mapper.of_mapping("Rss") == PAGES


@needs_all
def test_deactivated_pages_are_unreferenced_and_stay(mapper: Mapper) -> None:
    mapper.do("read")
    (result,) = settle(lever_on(source(mapper.pid)), wish("cold"))
    assert result.ok, result
    assert result.value.startswith(f"cold {PAGES} pages")
    assert mapper.of_mapping("Referenced") == 0
    assert mapper.cached() == PAGES


@needs_all
def test_marked_pages_are_referenced_without_their_process(mapper: Mapper) -> None:
    lever = lever_on(source(mapper.pid))
    mapper.do("read")
    settle(lever, wish("clear"))
    assert mapper.of_mapping("Referenced") == 0
    (result,) = settle(lever, wish("mark"))
    assert result.ok, result
    assert result.value.startswith(f"mark {PAGES} pages")
    assert mapper.flagged(REFERENCED) == PAGES
    assert mapper.flagged(ACTIVE) == 0, "one use of a folio counts once, however large it is"


@needs_all
def test_activated_pages_are_active_and_marked_ones_referenced_as_well(mapper: Mapper) -> None:
    """The second use of a page activates it, and its first use there marks it again."""
    lever = lever_on(source(mapper.pid))
    mapper.do("read")
    settle(lever, wish("clear"))
    assert mapper.flagged(ACTIVE) == 0
    (result,) = settle(lever, wish("activate"))
    assert result.ok, result
    # The kernel moves small folios between its lists in batches: the last one may be waiting.
    assert mapper.flagged(ACTIVE) > PAGES // 2
    assert mapper.flagged(REFERENCED) < PAGES // 2
    settle(lever, wish("activate-mark"))
    assert mapper.flagged(ACTIVE) > PAGES // 2
    assert mapper.flagged(REFERENCED) > PAGES // 2


@needs_all
@pytest.mark.parametrize("action", ["mark", "activate", "activate-mark"])
def test_what_is_not_in_memory_is_not_read_to_be_marked(mapper: Mapper, action: str) -> None:
    with mapper.path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(file.fileno(), 1, PAGES // 2 * PAGE_BYTES)
    time.sleep(0.2)  # the kernel reads ahead
    cached = mapper.cached()
    assert 0 < cached < PAGES
    lever = lever_on(protected=source(mapper.pid))
    (result,) = settle(lever, wish(action, "protected"))
    assert result.ok, result
    time.sleep(0.2)
    assert mapper.cached() == cached


@needs_all
@pytest.mark.parametrize("action", ["mark", "activate-mark"])
def test_the_kernel_does_not_read_ahead_where_pages_are_marked(
    mapper: Mapper, action: str
) -> None:
    """A page in memory bears the mark at which the kernel reads the next ones."""
    with mapper.path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for page in range(4):
            os.pread(file.fileno(), PAGE_BYTES, page * PAGE_BYTES)
    time.sleep(0.2)  # the kernel reads ahead
    cached = mapper.cached()
    assert 4 < cached < PAGES
    (result,) = settle(lever_on(source(mapper.pid)), wish(action))
    assert result.value.startswith(f"{action} {cached} pages"), result
    time.sleep(0.2)
    assert mapper.cached() == cached


@needs_all
def test_of_a_file_that_became_shorter_what_is_left_is_marked(mapper: Mapper) -> None:
    lever = lever_on(source(mapper.pid))
    mapper.do("read")
    os.truncate(mapper.path, PAGES // 2 * PAGE_BYTES)
    (result,) = settle(lever, wish("mark"))
    assert result.ok, result
    assert result.value.startswith(f"mark {PAGES // 2} pages")
    os.truncate(mapper.path, 0)
    (result,) = settle(lever, wish("mark"))
    assert result.value.startswith("mark 0 pages")


@needs_all
def test_the_pages_of_the_application_can_be_read_in(mapper: Mapper) -> None:
    with mapper.path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert mapper.cached() == 0
    lever = lever_on(protected=source(mapper.pid))
    (result,) = settle(lever, wish("willneed", "protected"))
    assert result.ok, result
    deadline_s = time.monotonic() + 20.0
    while mapper.cached() < PAGES and time.monotonic() < deadline_s:
        time.sleep(0.01)  # the kernel reads ahead
    assert mapper.cached() == PAGES


@needs_all
def test_a_flush_writes_some_dirty_pages_of_the_first_file(mapper: Mapper) -> None:
    mapper.do("write")
    before = mapper.dirty()
    if not before:
        pytest.skip("the temporary folder is no file system that writes back")
    (result,) = settle(lever_on(source(mapper.pid)), wish("flush", "largest-file"))
    assert result.ok, result
    assert result.value.startswith("flush ")
    # A large folio is written whole, so that it may be more than was asked for.
    assert mapper.dirty() <= before - FLUSH_PAGES


@needs_all
def test_with_writeback_dirty_pages_are_written_before_bits_are_cleared(mapper: Mapper) -> None:
    lever = lever_on(source(mapper.pid))
    for attempt in range(10):  # the kernel writes dirty pages back by itself whenever it likes
        mapper.do("write")
        before = mapper.dirty()
        if not before and attempt == 0:
            pytest.skip("the temporary folder is no file system that writes back")
        settle(lever, wish("clear", writeback=False))
        if before and mapper.dirty() == before:
            break
    else:
        pytest.fail("pages were written although no writeback was asked for, ten times of ten")
    settle(lever, wish("clear", writeback=True))
    assert mapper.dirty() <= before - FLUSH_PAGES
    assert mapper.of_mapping("Referenced") == 0


# ------------------------------------------------------------------ to whom


@needs_all
@pytest.mark.parametrize("action", ["flush", "clear", "cold", "pageout"])
@pytest.mark.parametrize("victim", ["largest-file", "largest-size", "next", "most-run"])
def test_pages_of_the_application_are_never_taken(
    mapper: Mapper, action: str, victim: Victim
) -> None:
    mapper.do("read")
    lever = lever_on(source(), protected=source(mapper.pid))
    (result,) = settle(lever, wish(action, victim))
    assert result.value.endswith("pid none")
    assert mapper.in_use()


@needs_all
def test_a_slot_that_is_not_to_be_changed_is_left_alone(mapper: Mapper) -> None:
    def refuse() -> None:
        raise GroupError("Process 1 in it is protected.")

    mapper.do("read")
    (result,) = settle(lever_on(source(mapper.pid, check=refuse)), wish("clear"))
    assert not result.ok
    assert "protected" in result.error
    assert mapper.in_use()


@needs_all
def test_a_process_that_left_its_slot_is_left_alone(mapper: Mapper) -> None:
    mapper.do("read")
    gone = ProcessSource(members=lambda: (mapper.pid,), holds=lambda _pid: False)
    settle(lever_on(gone), wish("clear"))
    assert mapper.in_use()


@needs_all
def test_a_process_that_has_ended_is_no_victim(mapper: Mapper) -> None:
    mapper.close()
    (result,) = settle(lever_on(source(mapper.pid)), wish("clear"))
    assert (result.ok, result.value) == (True, "clear 0 pages of pid none")
    assert read_candidate(PROC, mapper.pid, with_file=True) is None


@needs_all
def test_a_candidate_is_what_proc_says(mapper: Mapper) -> None:
    mapper.do("read")
    found = read_candidate(PROC, mapper.pid, with_file=True)
    assert found is not None
    status = mapper.path.stat()
    assert found.file is not None
    assert found.file[1] == status.st_ino
    assert found.cached_pages == PAGES
    assert found.size_bytes > PAGES * PAGE_BYTES
    # The line that it answered with came before it slept again: on a busy machine it is still on
    # its way to the next one.
    deadline = time.monotonic() + 30
    while found is not None and found.runnable and time.monotonic() < deadline:
        time.sleep(0.01)
        found = read_candidate(PROC, mapper.pid, with_file=False)
    assert found is not None
    assert not found.runnable, "it waits for a line"


def candidate(pid: int, **others: object) -> Candidate:
    known = {"start_time_ticks": pid, "size_bytes": 1, "cpu_ticks": 0, "runnable": True}
    return Candidate(pid=pid, **{**known, **others})  # type: ignore[arg-type]


def chosen(candidates: list[Candidate], victim: Victim, count: int = 1) -> list[int]:
    return [one.pid for one in choose(candidates, victim, count)]


def test_the_largest_file_counts_by_its_cached_pages_and_once() -> None:
    def mapped(pid: int, inode: int, pages: int) -> Candidate:
        return candidate(pid, file=(b"fe:00", inode), cached_pages=pages, size_bytes=100 - pid)

    processes = [mapped(1, 7, 10), mapped(2, 8, 90), mapped(3, 8, 90), candidate(4)]
    assert chosen(processes, "largest-file") == [2], "the older one of two with the same file"
    assert chosen(processes, "largest-file", 2) == [2, 1], "two files, not one twice"
    assert chosen([candidate(4)], "largest-file") == []


def test_the_largest_size_needs_no_file() -> None:
    processes = [candidate(1, size_bytes=10), candidate(2, size_bytes=30), candidate(3)]
    assert chosen(processes, "largest-size") == [2]
    assert chosen(processes, "largest-size", 2) == [2, 1]


def test_next_and_most_run_are_of_those_that_want_a_processor() -> None:
    processes = [
        candidate(1, cpu_ticks=50),
        candidate(2, cpu_ticks=5),
        candidate(3, cpu_ticks=900, runnable=False),
        candidate(4, cpu_ticks=0, runnable=False),
    ]
    assert chosen(processes, "next") == [2]
    assert chosen(processes, "most-run") == [1]
    assert chosen(processes, "protected") == [1, 2, 3, 4], "all of the application"


# ------------------------------------------------------------------ which pages

MAPS = b"""\
00100000-00300000 r--p 00000000 fe:00 77                 /bin/program
00300000-00310000 rw-p 00200000 fe:00 77                 /bin/program
00400000-00500000 r-xs 00000000 fe:00 78                 /data/with a space
00600000-00700000 rw-s 00000000 00:01 79                 /memfd:shared (deleted)
00800000-00900000 rw-p 00000000 00:00 0                  [heap]
00900000-00910000 rw-s 00000000 fe:00 80                 /data/written
not a mapping
"""


def test_file_pages_are_those_of_the_first_file_or_of_all() -> None:
    found = list(mappings(MAPS))
    grab = 0x100000
    first = file_ranges(found, "first", grab)
    assert first == [(0x100000, grab), (0x200000, grab)], "without its own, written pages"
    assert file_ranges(found, "all", grab) == [*first, (0x400000, grab), (0x900000, 0x10000)]
    assert file_ranges([], "first", grab) == []


def test_where_the_first_mapping_is_no_file_there_is_no_first_file() -> None:
    found = list(mappings(MAPS))[4:]
    assert file_ranges(found, "first", 4096) == []
    assert len(file_ranges(found, "all", 4096)) == 0x10


@pytest.mark.skipif(bool(why_no_cachestat()), reason=why_no_cachestat() or "has it")
def test_dirty_pages_are_found_wherever_they_are_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("w+b") as file:
        file.truncate(1 << 30)
        with mmap.mmap(file.fileno(), 0) as view:
            view[(1 << 30) - 1] = 1
            view[700 << 20] = 1
        if cached_pages(file.fileno()).dirty != 2:
            pytest.skip("the temporary folder is no file system that writes back")
        assert write_back(file.fileno(), 256) == 2
        assert cached_pages(file.fileno()).dirty == 0


# ------------------------------------------------------------------ what a node lacks


def test_a_wish_needs_only_its_own_parts() -> None:
    lacks = {Need.FILE_CACHE: "no cachestat", Need.FILE_ADVICE: "no advice"}
    assert why_not(wish("clear", "largest-file"), lacks) == "no cachestat"
    assert why_not(wish("clear", writeback=True), lacks) == "no cachestat"
    assert why_not(wish("clear"), lacks) == ""
    assert why_not(wish("cold"), lacks) == "no advice"
    others = {Need.REFERENCED_BITS: "no clear_refs", Need.FILE_ADVICE: "none"}
    assert why_not(wish("flush"), others) == ""


def test_a_missing_part_is_said_once_and_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "stallward.papers.levers.file_page_parts.why_no_cachestat", lambda: "too old"
    )
    lever = lever_on(source(os.getpid()))
    assert "file_pages: too old" in lever.missing
    (result,) = settle(lever, wish("flush"))
    assert (result.ok, result.error) == (False, "too old")
    assert settle(lever, wish("flush")) == []
    assert lever.plan(DesiredState(file_pages=wish("flush"))) == ()


@pytest.mark.parametrize("arm", ["ws-flush", "ws-pressure", "ws-deactivate:at=min", "ws-promote"])
def test_a_controller_that_acts_on_file_pages_brings_the_lever(arm: str) -> None:
    assert [entry.name for entry in levers_of(arm)] == ["file_pages"]
