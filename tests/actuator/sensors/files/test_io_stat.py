"""io.stat as kernels write it: with devices that have no counters, and with bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.sensors.files.cpu import IoBytes, parse_io_stat

P = Path("/the/file")
LOOP_DEVICES = (
    b"8:0 rbytes=100 wbytes=5 rios=1 wios=1 dbytes=0 dios=0\n"
    b"7:7 7:6 7:5 rbytes=20 wbytes=3 rios=2 wios=0 dbytes=0 dios=0\n"
)


@pytest.mark.parametrize(
    ("content", "read", "written"),
    [
        (LOOP_DEVICES, 120, 8),
        (LOOP_DEVICES + b"7:4 7:3 ", 120, 8),
        (b"179:0 rbytes=17 wbytes=20 rios=3 wios=1 dbytes=0 dios=0\n7:1 7:0 1:15 ", 17, 20),
        (b"252:0 ", 0, 0),  # while the group is being made
        (b"252:0 \n", 0, 0),
        (b"7:1 7:0 \n8:0 rbytes=1 wbytes=2\n", 1, 2),
        (b"7:0 8:0 rbytes=1 wbytes=2 cost.usage=4 depth=max\n", 1, 2),
        (b"8:0 rios=1\n", 0, 0),
        (b"", 0, 0),
    ],
)
def test_devices_without_counters_hold_nothing(content: bytes, read: int, written: int) -> None:
    assert parse_io_stat(content, P) == IoBytes(read_bytes=read, written_bytes=written)


@pytest.mark.parametrize(
    "content",
    [
        LOOP_DEVICES[:-1],  # the last counter may go on
        LOOP_DEVICES + b"7:4",
        LOOP_DEVICES + b"8:16 rbytes=1 ",
        LOOP_DEVICES + b" ",
        b"rbytes=1 8:0 wbytes=2\n",
        b"7:1 7: rbytes=1\n",
    ],
)
def test_disk_use_that_is_cut_short_or_of_no_device_is_refused(content: bytes) -> None:
    with pytest.raises(SensorError):
        parse_io_stat(content, P)


def test_a_bad_sum_of_disk_use_is_absent_alone() -> None:
    negative = 2**64 - 205_824  # printed without its sign
    with pytest.raises(PartlyReadError, match="/the/file") as caught:
        parse_io_stat(LOOP_DEVICES.replace(b"rbytes=20", b"rbytes=%d" % negative), P)
    error = caught.value
    assert error.value == IoBytes(written_bytes=8)
    assert error.lost == {"read_bytes"}
    assert "rbytes" in error.what
