"""From references to touches: which page was touched when, by a reference of which class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.simd.jit import kernel, model
from stallward.lens.errors import TraceError
from stallward.lens.workingset.lackey import References
from stallward.lens.workingset.lackey_kernel import CLASS_NAMES, INSTRUCTION

Indices = NDArray[np.int32]
Times = NDArray[np.int64]
Flags = NDArray[np.bool_]

INSTRUCTIONS: Final = "instructions"
REFERENCES: Final = "references"
CLOCKS: Final = (INSTRUCTIONS, REFERENCES)
"""What time can be counted in."""
_TOUCHES: Final = 1 << 16
_EMPTY: Final = -1
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """What counts as time, and which references to which pages are looked at."""

    page_bytes: int = 4096
    classes: tuple[str, ...] = CLASS_NAMES
    clock: str = INSTRUCTIONS
    """``instructions``: loads and stores do not advance time. ``references``: every reference of
    the selected classes does, and no other."""

    def __post_init__(self) -> None:
        size = self.page_bytes
        if size < 1 or size & (size - 1):
            raise TraceError(f"A page of {size} bytes is none: its size must be a power of two.")
        unknown = [name for name in self.classes if name not in CLASS_NAMES]
        if unknown or not self.classes:
            raise TraceError(
                f"{unknown[0] if unknown else 'Nothing'} is no class of references.",
                next_step=f"Name some of {', '.join(CLASS_NAMES)}.",
            )
        if self.clock not in CLOCKS:
            raise TraceError(
                f"{self.clock} is no clock.", next_step=f"Name one of {', '.join(CLOCKS)}."
            )


@dataclass(frozen=True, slots=True)
class Touches:
    """Some touches of pages, in the order in which they were made."""

    pages: NDArray[np.int32]
    """Indices of the pages, in the order of their first touches."""
    times: NDArray[np.int64]
    """1 is the first instruction (or reference); never falls."""
    classes: NDArray[np.uint8]


class PageTable:
    """Numbers the pages of a trace in the order of their first touches.

    A reference that crosses the end of a page touches the next one, too.

    Attributes:
        now: The time so far.
        counts: References so far, of each class, also of those that are not selected.
        pages: How many pages have been touched.
    """

    def __init__(self, settings: PageSettings) -> None:
        self._shift = settings.page_bytes.bit_length() - 1
        self._selected = np.array([name in settings.classes for name in CLASS_NAMES])
        ticks = np.array(self._selected)
        if settings.clock == INSTRUCTIONS:
            ticks[:] = False
            ticks[INSTRUCTION] = True
        self._ticks = ticks
        self._clock = settings.clock
        self._keys = np.empty(0, dtype=np.int64)
        self._indices = np.empty(0, dtype=np.int32)
        self._numbers = np.empty(0, dtype=np.int64)
        self._state = np.zeros(3, dtype=np.int64)  # now, pages, pages done of a long reference
        self.counts = np.zeros(len(CLASS_NAMES), dtype=np.int64)
        self._touches = Touches(
            np.empty(_TOUCHES, dtype=np.int32),
            np.empty(_TOUCHES, dtype=np.int64),
            np.empty(_TOUCHES, dtype=np.uint8),
        )

    @property
    def now(self) -> int:
        """The time of the last reference."""
        return int(self._state[0])

    @property
    def pages(self) -> int:
        """How many pages have been touched."""
        return int(self._state[1])

    @property
    def page_numbers(self) -> NDArray[np.uint64]:
        """Index of a page -> its address divided by the size of pages."""
        return self._numbers[: self.pages].view(np.uint64)

    def touches(self, references: References) -> Iterator[Touches]:
        """Yield the touches of some references.

        The arrays are overwritten by the next ones.

        Raises:
            TraceError: If time is to be counted in instructions, and there are none.
        """
        begin, end = 0, references.classes.size
        while begin < end:
            self._make_room()
            begin, count = find_touches(
                references.addresses,
                references.sizes,
                references.classes,
                begin,
                end,
                self._shift,
                self._selected,
                self._ticks,
                self._state,
                self.counts,
                self._keys,
                self._indices,
                self._numbers,
                self._touches.pages,
                self._touches.times,
                self._touches.classes,
            )
            if count:
                yield Touches(
                    self._touches.pages[:count],
                    self._touches.times[:count],
                    self._touches.classes[:count],
                )

    def _make_room(self) -> None:
        """Have room for as many pages as one call of the kernel can add."""
        most = self.pages + _TOUCHES
        if self._numbers.size < most:
            grown = np.empty(2 * most, dtype=np.int64)
            grown[: self.pages] = self._numbers[: self.pages]
            self._numbers = grown
        if self._keys.size < 2 * most:
            size = 1 << (4 * most - 1).bit_length()
            self._keys = np.zeros(size, dtype=np.int64)
            self._indices = np.full(size, _EMPTY, dtype=np.int32)
            number_again(self._numbers, self.pages, self._keys, self._indices)


@model
def _place(keys: Times, indices: Indices, key: int) -> int:
    """Where a key is, or would be, in a table whose size is a power of two."""
    size = keys.size
    mixed = np.uint64(key) * _MULTIPLIER
    place = np.int64(mixed >> np.uint64(32)) & (size - 1)
    while indices[place] != _EMPTY and keys[place] != key:
        place = (place + 1) & (size - 1)
    return int(place)


@model
def _page_of(address: int, shift: int) -> int:
    """The number of the page that holds an address; addresses from 2^63 on are negative."""
    return int(np.int64(np.uint64(address) >> np.uint64(shift)))


@kernel
def number_again(numbers: Times, count: int, keys: Times, indices: Indices) -> None:
    """Put known keys into an empty table."""
    for i in range(count):
        place = _place(keys, indices, numbers[i])
        keys[place] = numbers[i]
        indices[place] = i


@kernel
def find_touches(
    addresses: Times,
    sizes: Indices,
    classes: NDArray[np.uint8],
    begin: int,
    end: int,
    shift: int,
    selected: Flags,
    ticks: Flags,
    state: Times,
    counts: Times,
    keys: Times,
    indices: Indices,
    numbers: Times,
    touched: Indices,
    times: Times,
    touched_by: NDArray[np.uint8],
) -> tuple[int, int]:
    """Find the pages of references, until their end or until the arrays for touches are full.

    Args:
        addresses: First bytes.
        sizes: Bytes.
        classes: Numbers of classes.
        begin: The first reference.
        end: After the last.
        shift: Bits of an address within a page.
        selected: Class -> whether it is looked at.
        ticks: Class -> whether it advances time.
        state: The time, the pages known, and how many pages of reference ``begin`` are done.
        counts: References of each class.
        keys: The table's keys: page numbers.
        indices: The table's values: indices of pages.
        numbers: Index of a page -> its number.
        touched: Filled: indices of pages.
        times: Filled.
        touched_by: Filled: classes.

    Returns:
        The first reference that is not done, and how many touches there were.
    """
    now, known, done = state[0], state[1], state[2]
    count = 0
    # Code and data alternate, and most often both stay where they were.
    recent = np.zeros(2, dtype=np.int64)
    recent_index = np.full(2, _EMPTY, dtype=np.int32)
    i = begin
    while i < end:
        kind = classes[i]
        if done == 0:
            counts[kind] += 1
            now += ticks[kind]
        if selected[kind]:
            data = 1 if kind != INSTRUCTION else 0
            first = _page_of(addresses[i], shift)
            last = _page_of(addresses[i] + sizes[i] - 1, shift)
            while first + done <= last and count < touched.size:
                page = first + done
                if recent[data] != page or recent_index[data] == _EMPTY:
                    place = _place(keys, indices, page)
                    if indices[place] == _EMPTY:
                        keys[place] = page
                        indices[place] = known
                        numbers[known] = page
                        known += 1
                    recent[data] = page
                    recent_index[data] = indices[place]
                touched[count] = recent_index[data]
                times[count] = max(now, 1)
                touched_by[count] = kind
                count += 1
                done += 1
            if first + done <= last:
                break
        done = 0
        i += 1
    state[0], state[1], state[2] = now, known, done
    return i, count
