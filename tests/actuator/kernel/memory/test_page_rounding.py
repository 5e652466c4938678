"""A setting that the kernel has rounded to whole pages is told from another one."""

from __future__ import annotations

import pytest

from stallward.actuator.kernel.memory.limit_writes import LARGEST_PAGE_BYTES, is_rounded


@pytest.mark.parametrize(
    ("found", "asked_bytes", "rounded"),
    [
        ("1048576", 1048576, True),
        ("1048576", 1048577, True),
        ("1048576", 1048576 + LARGEST_PAGE_BYTES - 1, True),
        ("1048576", 1048576 + LARGEST_PAGE_BYTES, False),
        ("1048576", 1048576 - LARGEST_PAGE_BYTES, False),
        ("max", 1048576, False),
        ("", 0, False),
    ],
)
def test_a_difference_below_a_page_is_rounding(
    found: str, asked_bytes: int, rounded: bool
) -> None:
    assert is_rounded(found, asked_bytes) is rounded
