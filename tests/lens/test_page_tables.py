"""The pages of a process: from invented files, and from real processes."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.errors import ProcessEndedError, ProcessError, SensorError
from stallward.lens import page_tables
from stallward.lens.page_tables import (
    FILE,
    PAGE_BYTES,
    PRESENT,
    REFERENCED,
    RSS,
    SWAPPED,
    MappingPages,
    PageRuns,
    ProcessPages,
    parse_smaps,
    runs_of,
)

PROC = Path("/proc")
PID = 321
STAT = "321 (a) b) S 1 321 321 0 -1 4194304 " + "0 " * 12 + "7777 " + "0 " * 30 + "\n"
FIRST = 0x400000 // PAGE_BYTES
MAPS = f"""\
{FIRST * PAGE_BYTES:08x}-{(FIRST + 4) * PAGE_BYTES:08x} r-xp 00000000 08:01 55 /usr/bin/a
{(FIRST + 4) * PAGE_BYTES:08x}-{(FIRST + 9) * PAGE_BYTES:08x} rw-p 00000000 00:00 0 [heap]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
"""
# Two pages of the file; of the heap one present, two in swap, one shared, and one without entry.
ENTRIES = [(1 << 63) | (1 << 61)] * 2 + [0, 0] + [1 << 63, 1 << 62, 1 << 62]
ENTRIES += [(1 << 63) | (1 << 61), 0]


def smaps(rss_kb: int, referenced_kb: int) -> str:
    heap = MAPS.splitlines()[1]
    return f"{heap}\nSize: 20 kB\nRss: {rss_kb} kB\nReferenced: {referenced_kb} kB\nSwap: 8 kB\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / str(PID)
    folder.mkdir()
    (folder / "stat").write_text(STAT)
    (folder / "maps").write_text(MAPS)
    (folder / "smaps").write_text(smaps(8, 4))
    (folder / "clear_refs").touch()
    with (folder / "pagemap").open("wb") as file:
        file.seek(8 * FIRST)
        file.write(np.array(ENTRIES, dtype=np.uint64).tobytes())
    return tmp_path


def counts(pages: MappingPages) -> tuple[int, int, int, int]:
    return pages.present, pages.file, pages.swapped, pages.reserved


def test_the_pages_of_each_mapping_are_counted_by_reading_pagemap(proc: Path) -> None:
    pages = ProcessPages(proc, PID)
    reading = pages.read()
    assert pages.method == "read"  # an invented file has no PAGEMAP_SCAN
    assert [counts(one) for one in reading.mappings] == [(2, 2, 0, 2), (2, 1, 2, 1)]
    assert [one.referenced for one in reading.mappings] == [None, None]


def test_after_clearing_the_referenced_bits_a_reading_says_what_was_touched(proc: Path) -> None:
    pages = ProcessPages(proc, PID)
    pages.clear_referenced()
    assert (proc / str(PID) / "clear_refs").read_text() == "1"
    reading = pages.read()
    assert [one.referenced for one in reading.mappings] == [0, 4096 // PAGE_BYTES]
    assert reading.cleared_s is not None


def test_a_mapping_of_terabytes_is_not_read_page_by_page(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_tables, "MOST_READ_BYTES", 4 * PAGE_BYTES)
    monkeypatch.setattr("stallward.lens.page_tables.MOST_READ_BYTES", 4 * PAGE_BYTES)
    reading = ProcessPages(proc, PID).read()
    assert counts(reading.mappings[0]) == (2, 2, 0, 2)
    assert counts(reading.mappings[1])[::2] == (8192 // PAGE_BYTES, 8192 // PAGE_BYTES)


def test_a_process_that_has_ended_is_named(proc: Path) -> None:
    with pytest.raises(ProcessEndedError, match="no process 99"):
        ProcessPages(proc, 99)
    pages = ProcessPages(proc, PID)
    (proc / str(PID) / "stat").write_text(STAT.replace("7777", "8888"))
    with pytest.raises(ProcessEndedError, match="Process 321 has ended"):  # another one is there
        pages.read()
    (proc / str(PID) / "maps").write_text("")
    (proc / str(PID) / "stat").write_text(STAT.replace(" S ", " Z "))
    with pytest.raises(ProcessEndedError, match="Process 321 has ended"):
        pages.read()


def test_a_thread_of_the_kernel_has_no_memory_of_its_own(proc: Path) -> None:
    (proc / str(PID) / "maps").write_text("")
    with pytest.raises(ProcessError, match=r"321 .* thread of the kernel"):
        ProcessPages(proc, PID).read()


def test_without_the_right_the_error_names_file_process_and_next_step(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = ProcessPages(proc, PID)
    really_open = os.open

    def refused(path: str, *args: int, **kwargs: int) -> int:
        if str(path).endswith("pagemap"):
            raise PermissionError(13, "Permission denied", path)
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr("stallward.lens.page_tables.os.open", refused)
    with pytest.raises(
        ProcessError, match=r"pagemap of process 321 .*denied.* (Run as root|Root is refused)"
    ):
        pages.read()


@given(st.lists(st.sampled_from([0, 1, 2, 5, 6]), min_size=1, max_size=60), st.data())
def test_runs_count_as_the_entries_do(tops: list[int], data: st.DataObject) -> None:
    entries = np.array(tops, dtype=np.uint64) << np.uint64(61)
    # 4 is present, 2 in swap, 1 of a file; what is in neither has no entry.
    entries[np.array(tops) == 5] = np.uint64(5 << 61)
    first = data.draw(st.integers(0, 1 << 35))
    runs = runs_of(entries, first)
    begin = data.draw(st.integers(0, len(tops)))
    end = data.draw(st.integers(begin, len(tops)))
    borders = np.array([first + begin, first + end])
    for mask, value, meant in (
        (PRESENT, PRESENT, lambda top: bool(top & 4)),
        (PRESENT | FILE, PRESENT | FILE, lambda top: top & 5 == 5),
        (PRESENT | SWAPPED, SWAPPED, lambda top: top & 6 == 2),
    ):
        low, high = runs.below(mask, value, borders)
        assert high - low == sum(map(meant, tops[begin:end]))


def test_no_runs_are_no_pages() -> None:
    empty = np.empty(0, dtype=np.int64)
    assert PageRuns(empty, empty, empty).below(PRESENT, PRESENT, np.array([1, 5])).sum() == 0


def test_smaps_of_a_file_with_a_name_like_a_key_is_no_size() -> None:
    text = b"10000-11000 r--p 00000000 08:01 5 /tmp/Rss: 9 kB\nRss:   4 kB\nReferenced: 0 kB\n"
    assert parse_smaps(text, RSS, "smaps") == {0x10000: 4096}
    assert parse_smaps(text, REFERENCED, "smaps") == {0x10000: 0}


@pytest.mark.parametrize("text", [b"Rss: 4 kB\n", b"10000-11000 r\nRss: many\n", b"10000-11000"])
def test_malformed_smaps_is_refused(text: bytes) -> None:
    with pytest.raises(SensorError, match="smaps"):
        parse_smaps(text, RSS, "smaps")


# A change of their protection has the processor forget which pages it has marked as referenced.
PROGRAM = f"""
import ctypes, mmap, sys
size = 4096 * {PAGE_BYTES}
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for page in range(1000):
    memory[page * {PAGE_BYTES}] = 1
start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
protect = ctypes.CDLL(None).mprotect
print(flush=True)
for line in sys.stdin:
    for protection in (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE):
        protect(start, ctypes.c_size_t(size), protection)
    for page in range(int(line)):
        memory[page * {PAGE_BYTES}] = 2
    print(flush=True)
"""


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def block(pages: ProcessPages) -> MappingPages:
    """The mapping of 4096 pages that the program made."""
    reading = pages.read()
    sizes = [one for one in reading.mappings if one.present + one.reserved == 4096]
    assert len(sizes) == 1
    return sizes[0]


def test_a_real_process_has_the_pages_that_it_touched(program: subprocess.Popen[bytes]) -> None:
    pages = ProcessPages(PROC, program.pid)
    assert counts(block(pages)) == (1000, 0, 0, 3096)
    pages.method = "read"
    assert counts(block(pages)) == (1000, 0, 0, 3096)


def test_a_real_process_is_seen_to_touch_some_of_them(program: subprocess.Popen[bytes]) -> None:
    pages = ProcessPages(PROC, program.pid)
    pages.read()
    pages.clear_referenced()
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(b"200\n")
    program.stdin.flush()
    program.stdout.readline()
    assert block(pages).referenced == 200


def test_file_pages_of_a_real_process_are_told_from_anonymous_ones(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 64 * PAGE_BYTES)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[::PAGE_BYTES]) > 0
        found = [
            one
            for one in ProcessPages(PROC, os.getpid()).read().mappings
            if one.mapping.name == os.fsencode(path)
        ]
    assert [counts(one) for one in found] == [(64, 64, 0, 0)]
