"""The thesis's columns against the programs that its scripts call, on real processes."""

from __future__ import annotations

import mmap
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.lens.trace.columns import Value
from stallward.lens.trace.page_cache import PageCacheLens, no_counters
from stallward.lens.trace.targets import OneProcess
from stallward.lens.trace.tick import Layout, Tick
from stallward.lens.trace.tracers.node import NodeTracer
from stallward.lens.trace.tracers.pagetype import PageTypeTracer
from stallward.lens.trace.tracers.process import ProcessTracer
from stallward.lens.trace.tracers.tracer import Tracer

PROC = DEFAULT_PATHS.proc
MIB = 1 << 20

HOLDER = f"""
import mmap, sys
own = bytearray(8 * {MIB})
shared = mmap.mmap(-1, 4 * {MIB})
shared[::4096] = b"x" * len(shared[::4096])
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(mapped[::4096])
private = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
private[:65536] = bytes(65536)
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def pid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A sleeping process that holds memory of all kinds."""
    file = tmp_path_factory.mktemp("held") / "file"
    file.write_bytes(bytes(MIB))
    command = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield process.pid
        process.communicate(b"")


def thesis(tracer: Tracer) -> dict[str, Value]:
    tick = Tick(number=1, time_us=0, wall_us=0, rows=tracer.read())
    layout = Layout(table=tracer.table, thesis=True)
    (line,) = layout.lines(tick)
    tracer.close()
    return dict(zip(layout.names, line, strict=True))


def none() -> PageCacheLens:
    return PageCacheLens(DEFAULT_PATHS.sys, open_=no_counters)


def summed(pid: int, key: str) -> int:
    """``cat /proc/PID/smaps | grep -e KEY | awk '{print $2}' | paste -sd+ | bc``."""
    lines = (PROC / str(pid) / "smaps").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if re.match(key, line))


def test_process_is_what_the_script_sums_up(pid: int) -> None:
    got = thesis(ProcessTracer(PROC, OneProcess(PROC, pid), page_cache=none()))
    assert got["Rss"] == summed(pid, "Rss")
    assert got["Private"] == summed(pid, "Private")
    assert got["Shared1"] == summed(pid, "Shared")
    assert got["Swap"] == summed(pid, "Swap:")
    assert got["SwapPss"] == summed(pid, "SwapPss")
    # In smaps each mapping's PSS is rounded down to 1 kB.
    mappings = len((PROC / str(pid) / "maps").read_text().splitlines())
    assert 0 <= int(str(got["Pss"])) - summed(pid, "Pss:") <= mappings
    assert got["Sum"] == got["Pss"]


@pytest.mark.skipif(shutil.which("pmap") is None, reason="pmap (procps) is not installed")
def test_pagetype_is_what_pmap_says(pid: int) -> None:
    listed = subprocess.run(
        ["pmap", "-x", str(pid)], capture_output=True, text=True, check=True
    ).stdout.splitlines()[2:]
    rows = [line.split() for line in listed]
    anon = sum(int(row[2]) for row, line in zip(rows, listed, strict=True) if "[ anon ]" in line)
    total = int(rows[-1][3])
    got = thesis(PageTypeTracer(PROC, OneProcess(PROC, pid)))
    assert (got["sum"], got["totalRSS"], got["filebacked"]) == (anon, total, total - anon)


def test_pages_and_mappings_agree_about_the_whole(pid: int) -> None:
    tracer = PageTypeTracer(PROC, OneProcess(PROC, pid))
    (row,) = tracer.read()
    sizes = {name: value for name, value in row.items() if isinstance(value, int)}
    by_mapping = ("anon_mapping_bytes", "file_mapping_bytes", "shmem_mapping_bytes", "stack_bytes")
    assert sum(sizes[name] for name in by_mapping) == sizes["rss_bytes"]
    assert sizes["shmem_mapping_bytes"] >= 4 * MIB
    assert sizes["anon_mapping_bytes"] >= 8 * MIB
    # Private copies of pages of a file are anonymous.
    assert sizes["anonymous_bytes"] - sizes["anon_mapping_bytes"] >= 65536
    assert sizes["rss_bytes"] % mmap.PAGESIZE == 0


@pytest.mark.skipif(shutil.which("free") is None, reason="free (procps) is not installed")
def test_node_is_about_what_free_says() -> None:
    free = subprocess.run(["free", "-k"], capture_output=True, text=True, check=True).stdout
    memory, swap = (list(map(int, line.split()[1:])) for line in free.splitlines()[1:])
    got = {
        name: int(value) if isinstance(value, int) else 0
        for name, value in thesis(NodeTracer(PROC, page_cache=none())).items()
    }
    assert got["TotalRAM"] == memory[0]
    assert got["SharedRAM"] == pytest.approx(memory[3], rel=0.2, abs=4096)
    assert got["BufferRAM"] + got["CacheRAM"] == pytest.approx(memory[4], rel=0.2)
    assert got["AvailableRAM"] == pytest.approx(memory[5], rel=0.2)
    assert got["TotalSwap"] == swap[0]


def test_this_tests_own_memory_is_between_its_parts() -> None:
    own = OneProcess(PROC, int((Path(PROC) / "self/stat").read_text().split()[0]))
    (row,) = ProcessTracer(PROC, own, page_cache=none()).read()
    sizes = {name: value for name, value in row.items() if isinstance(value, int)}
    assert sizes["private_bytes"] <= sizes["pss_bytes"] <= sizes["rss_bytes"]
    assert sizes["private_bytes"] + sizes["shared_bytes"] == sizes["rss_bytes"]
