"""Block I/O from diskstats, and by eBPF where the kernel allows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stallward.actuator.errors import ActuatorError, NodeError, SensorError
from stallward.actuator.kernel.paths import Paths
from stallward.lens.trace.block_io.counters import BlockIoCounters
from stallward.lens.trace.block_io.disks import DiskCount, parse_diskstats

DISKSTATS = (Path(__file__).parents[2] / "fuzz/samples/diskstats.txt").read_bytes()
P = Path("/proc/diskstats")
SIZE = 4 << 20

WRITER = f"""
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_DIRECT)
memory = mmap.mmap(-1, {SIZE})
os.pwrite(fd, memory, 0)
os.fsync(fd)
os.preadv(fd, [memory], 0)
"""


def test_disks_that_did_something_are_listed() -> None:
    disk, part = parse_diskstats(DISKSTATS, P)
    assert (disk.major, disk.minor, disk.name) == (254, 0, "vda")
    assert disk.read == DiskCount(requests=636876, bytes=59295336 * 512, time_us=442260_000)
    assert part.written == DiskCount(requests=4, bytes=172 * 512, time_us=7000)


@pytest.mark.parametrize(
    "content", [DISKSTATS[:-1], b"254 0 vda 1 2\n", b"254 x vda" + b" 0" * 17]
)
def test_diskstats_of_another_form_are_refused(content: bytes) -> None:
    with pytest.raises(SensorError, match="/proc/diskstats"):
        parse_diskstats(content, P)


def test_a_kernel_without_type_information_is_named(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="btf/vmlinux: No such file"):
        BlockIoCounters(tmp_path)


@pytest.mark.live
def test_requests_are_counted_at_the_process_that_makes_them(tmp_path: Path) -> None:
    if not os.major(tmp_path.stat().st_dev):
        pytest.skip("the temporary directory is on no disk")
    try:
        counters = BlockIoCounters(Paths().sys)
    except ActuatorError as error:
        pytest.skip(str(error))
    try:
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "x")]) as writer:
            assert writer.wait() == 0
        counts = {o: c for o, c in counters.read().items() if o.pid == writer.pid}
        read = sum(count.bytes for origin, count in counts.items() if origin.direction == "R")
        written = sum(count.bytes for origin, count in counts.items() if origin.direction == "W")
        assert SIZE <= read < 64 * SIZE
        assert SIZE <= written < 2 * SIZE
        assert all(count.time_ns > 0 for count in counts.values())
        assert all(origin.name.startswith("python") for origin in counts)
        again = [origin for origin in counters.read() if origin.pid == writer.pid]
        assert again == [], "only what has changed is returned"
    finally:
        counters.close()
