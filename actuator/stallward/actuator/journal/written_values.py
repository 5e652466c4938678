"""Tells a value that the daemon wrote from one that another program wrote since.

Beside the mark of each original the memory that guardian and loop share holds two values, as
numbers: the one that was in force before the last write, and the one that was written. If the
daemon dies, one of them is in force, unless another program, such as the kubelet that resizes a
pod, has written its own. That one stays.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from stallward.actuator.kernel.memory.limit_writes import LARGEST_PAGE_BYTES

UNKNOWN: Final = 0
"""Stands for a value that may be any."""
_TEXT: Final = 1 << 63
_MEMORY: Final = "memory."


def number_of(value: str) -> int:
    """The number that stands for a setting's value; never :data:`UNKNOWN`."""
    if value.isascii() and value.isdigit() and len(value) < 20 and int(value) + 1 < _TEXT:
        return int(value) + 1
    return _TEXT | zlib.crc32(" ".join(value.split()).encode())


def numbers_of(values: Sequence[str]) -> tuple[int, int]:
    """The numbers for the values before and after a write; unknown ones where there are none."""
    if len(values) != 2:
        return UNKNOWN, UNKNOWN
    return number_of(values[0]), number_of(values[1])


def may_be_ours(name: str, now: str, written: Iterable[int]) -> bool:
    """Whether the value in force may be one of those that ``written`` stands for.

    Args:
        name: The name of the setting's file.
        now: The value in force.
        written: The numbers; without any, or with an unknown one, each value may be ours.
    """
    numbers = tuple(written)
    if not numbers or UNKNOWN in numbers:
        return True
    found, rounding = number_of(now), LARGEST_PAGE_BYTES if name.startswith(_MEMORY) else 1
    return any(
        number == found or (number < _TEXT and 0 <= number - found < rounding)
        for number in numbers
    )
