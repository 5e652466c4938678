"""The watermarks of the machine's zones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.files.meminfo import machine_min_bytes, parse_min_pages

PATH = Path("/proc/zoneinfo")
ZONES = b"""\
Node 0, zone      DMA
  pages free     2816
        boost    0
        min      2
        low      4
        high     6
Node 0, zone    DMA32
  pages free     400000
        boost    0
        min      800
        low      1000
        high     1200
  pagesets
    cpu: 0
              high_min: 63
Node 0, zone   Normal
        min      199
"""


def test_min_is_summed_over_the_zones() -> None:
    assert parse_min_pages(ZONES, PATH) == 2 + 800 + 199


@pytest.mark.parametrize(
    "content",
    [b"", b"Node 0, zone DMA\n", ZONES[:-3], b"        min      x\n", b"        min      1 2\n"],
)
def test_what_is_no_zoneinfo_is_refused(content: bytes) -> None:
    with pytest.raises(SensorError):
        parse_min_pages(content, PATH)


def test_where_the_file_says_nothing_the_machine_has_no_watermark(tmp_path: Path) -> None:
    assert machine_min_bytes(tmp_path) == 0
    (tmp_path / "zoneinfo").write_bytes(b"nonsense")
    assert machine_min_bytes(tmp_path) == 0
    (tmp_path / "zoneinfo").write_bytes(ZONES)
    assert machine_min_bytes(tmp_path) == 1001 * os.sysconf("SC_PAGE_SIZE")


def test_the_kernel_of_this_machine_keeps_some_memory_free() -> None:
    kept = int(Path("/proc/sys/vm/min_free_kbytes").read_text()) * 1024
    assert 0 < machine_min_bytes(Path("/proc")) <= 2 * kept
