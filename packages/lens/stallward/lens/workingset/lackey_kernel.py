"""Compiled parsing of the references in Valgrind Lackey's text."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.simd.jit import kernel, model

Bytes = NDArray[np.uint8]

INSTRUCTION: Final = 0
LOAD: Final = 1
STORE: Final = 2
MODIFY: Final = 3
CLASS_NAMES: Final = ("instruction", "load", "store", "modify")
"""The classes of references, by number."""

MORE: Final = 0
"""The text ended within a line: more is needed."""
OTHER_LINE: Final = 1
"""The next line is no reference."""

SHORTEST_LINE_BYTES: Final = 7
"""``I  0,1`` and its end."""
_NO_DIGIT: Final = 255
_MOST_ADDRESS_DIGITS: Final = 16
_MOST_SIZE_DIGITS: Final = 5


def _hexadecimal_digits() -> NDArray[np.uint8]:
    values = np.full(256, _NO_DIGIT, dtype=np.uint8)
    for value, digit in enumerate("0123456789abcdef"):
        values[ord(digit)] = values[ord(digit.upper())] = value
    return values


DIGITS: Final = _hexadecimal_digits()
"""A byte -> its value as a hexadecimal digit, 255 for any other."""


@model
def _class_at(text: Bytes, at: int) -> int:
    """The class that a line begins with; -1 if it is none of a reference."""
    first, second = text[at], text[at + 1]
    kind = -1
    if first == 32:  # a space
        if second == 76:  # L
            kind = LOAD
        elif second == 83:  # S
            kind = STORE
        elif second == 77:  # M
            kind = MODIFY
    elif first == 73 and second == 32:  # I
        kind = INSTRUCTION
    return kind if text[at + 2] == 32 else -1


@model
def _address_at(text: Bytes, at: int, end: int, digits: Bytes) -> tuple[int, int]:
    """A hexadecimal number, and where it ends."""
    address = np.int64(0)
    while at < end:
        digit = np.int64(digits[text[at]])
        if digit == _NO_DIGIT:
            break
        address = (address << 4) | digit
        at += 1
    return int(address), at


@model
def _size_at(text: Bytes, at: int, end: int) -> tuple[int, int]:
    """A decimal number, and where it ends."""
    size = np.int64(0)
    while at < end:
        digit = np.int64(text[at]) - 48
        if digit < 0 or digit > 9:
            break
        size = size * 10 + digit
        at += 1
    return int(size), at


@model
def _short_rest(text: Bytes, begin: int, end: int) -> int:
    """What a rest is that is shorter than a reference: the begin of a line, or another line."""
    for at in range(begin, end):
        if text[at] == 10:
            return OTHER_LINE
    return MORE


@kernel
def parse_references(
    text: Bytes,
    begin: int,
    end: int,
    digits: Bytes,
    addresses: NDArray[np.int64],
    sizes: NDArray[np.int32],
    classes: Bytes,
) -> tuple[int, int, int]:
    """Parse lines of references until the text ends or a line is none.

    Args:
        text: Bytes.
        begin: Where a line begins in it.
        end: Where it ends.
        digits: :data:`DIGITS`.
        addresses: Filled; addresses from 2^63 on are negative.
        sizes: Filled: bytes referenced.
        classes: Filled: numbers of classes.

    Returns:
        Where the first line begins that is not parsed, how many references there were, and
        ``MORE`` or ``OTHER_LINE``.
    """
    count = 0
    line = begin
    while True:
        if end - line < SHORTEST_LINE_BYTES:
            return line, count, _short_rest(text, line, end)
        kind = _class_at(text, line)
        if kind < 0:
            break
        address, comma = _address_at(text, line + 3, end, digits)
        length = comma - line - 3
        if length == 0 or length > _MOST_ADDRESS_DIGITS:
            break
        if comma == end:
            return line, count, MORE
        if text[comma] != 44:
            break
        size, at = _size_at(text, comma + 1, end)
        if at - comma - 1 > _MOST_SIZE_DIGITS:
            break
        if at == end:
            return line, count, MORE
        if text[at] != 10 or size == 0:
            break
        addresses[count] = address
        sizes[count] = size
        classes[count] = kind
        count += 1
        line = at + 1
    return line, count, OTHER_LINE
