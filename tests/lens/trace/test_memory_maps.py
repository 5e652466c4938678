"""smaps, smaps_rollup, and the averages of pressure files."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.actuator.errors import SensorError
from stallward.lens.trace.memory_maps import (
    MapSizes,
    parse_map_sizes,
    parse_mapping_kinds,
)
from stallward.lens.trace.psi_averages import PsiAverages, parse_psi_averages

SAMPLES = Path(__file__).parents[2] / "fuzz/samples"
SMAPS = (SAMPLES / "smaps.txt").read_bytes()
ROLLUP = (SAMPLES / "smaps-rollup.txt").read_bytes()
P = Path("/proc/7/file")
KIB = 1024


def test_smaps_is_summed_up() -> None:
    sizes = parse_map_sizes(SMAPS, P)
    assert sizes.rss_bytes == 228 * KIB
    assert sizes.pss_bytes == 192 * KIB
    assert sizes.private_bytes == 156 * KIB
    assert sizes.shared_bytes == 72 * KIB
    assert (sizes.swap_bytes, sizes.swap_pss_bytes) == (24 * KIB, 22 * KIB)


def test_swap_is_not_confused_with_swap_pss() -> None:
    """The thesis's script matches both by ``^Swap`` and adds them up."""
    content = b"Rss: 1 kB\nPrivate_Dirty: 1 kB\nSwap: 60 kB\nSwapPss: 30 kB\n"
    assert parse_map_sizes(content, P).swap_bytes == 60 * KIB


def test_an_older_kernel_lacks_some_sizes() -> None:
    content = b"Rss: 9 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\nSwap: 0 kB\n"
    sizes = parse_map_sizes(content, P)
    assert sizes == MapSizes(
        rss_bytes=9 * KIB,
        private_clean_bytes=KIB,
        private_dirty_bytes=2 * KIB,
        swap_bytes=0,
    )
    assert sizes.private_bytes == 3 * KIB, "pages of hugetlbfs are none where they are not told"
    assert sizes.shared_bytes is None


def test_a_real_rollup_is_understood() -> None:
    sizes = parse_map_sizes(ROLLUP, P)
    assert sizes.private_bytes is not None
    assert sizes.shared_bytes is not None
    assert sizes.private_bytes + sizes.shared_bytes == sizes.rss_bytes


@pytest.mark.parametrize("content", [b"", b"Rss: 1 kB", b"hello\n", b"Rss: 1 kB\n"])
def test_what_is_no_list_of_sizes_is_refused(content: bytes) -> None:
    with pytest.raises(SensorError, match="/proc/7/file"):
        parse_map_sizes(content, P)


def test_mappings_are_told_apart_as_pmap_does() -> None:
    kinds = parse_mapping_kinds(SMAPS, P)
    assert kinds.mappings == 5
    assert kinds.anon_bytes == 80 * KIB
    assert kinds.heap_bytes == 16 * KIB
    assert kinds.file_bytes == 8 * KIB
    assert kinds.shmem_bytes == 128 * KIB
    assert kinds.stack_bytes == 12 * KIB


@pytest.mark.parametrize(
    "content",
    [
        SMAPS[:-5],
        b"hello\n",
        SMAPS.replace(b"\nRss:                  16 kB", b""),  # not the next mapping's
        SMAPS.replace(b"Rss:                  16 kB", b"Rss:                  -1 kB"),
    ],
)
def test_smaps_that_is_cut_or_lacks_a_size_is_refused(content: bytes) -> None:
    with pytest.raises(SensorError, match="/proc/7/file"):
        parse_mapping_kinds(content, P)


def test_averages_of_both_lines() -> None:
    content = (
        b"some avg10=1.25 avg60=0.50 avg300=100.00 total=7\n"
        b"full avg10=0.00 avg60=0.01 avg300=0.02 total=3\n"
    )
    some, full = parse_psi_averages(content, P)
    assert some == PsiAverages(1.25, 0.5, 100.0)
    assert full == PsiAverages(0.0, 0.01, 0.02)
    some, full = parse_psi_averages(content.partition(b"full")[0], P)
    assert full == PsiAverages(), "an older kernel has no full line of the CPU"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"some avg10=1.25 avg60=0.50 avg300=1",
        b"some avg10=1.25 avg60=0.50\n",
        b"some avg10=nan avg60=0.50 avg300=1.00 total=7\n",
        b"some avg60=1.25 avg10=0.50 avg300=1.00 total=7\n",
        b"some avg10=1.25 avg60=0.50 avg300=1.00 total=7\n" * 2,
    ],
)
def test_averages_of_another_form_are_refused(content: bytes) -> None:
    with pytest.raises(SensorError, match="/proc/7/file"):
        parse_psi_averages(content, P)
