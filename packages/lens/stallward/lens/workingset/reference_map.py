"""The memory reference map: which parts of the address space were touched when, by which class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.simd.jit import kernel
from stallward.lens.errors import TraceError
from stallward.lens.workingset.pages import Touches

COLUMNS: Final = 1 << 10
"""There are at most so many steps of time, and at least half as many in a trace long enough."""
ROWS: Final = 1 << 14
"""At most so many regions are told apart; where more are touched, each becomes twice as large."""
_OUTSIDE: Final = -1
_FIRST_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class AddressRange:
    """A part of the address space, in bytes; without its end."""

    begin: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.end <= 1 << 64:
            raise TraceError(
                f"{self.begin:#x} to {self.end:#x} is no range of addresses.",
                next_step="Give its begin and its end, such as 0x4000000-0x5000000.",
            )


WHOLE: Final = AddressRange(0, 1 << 64)


def parse_range(text: str) -> AddressRange:
    """Read a range such as ``0x4000000-0x5000000``.

    Raises:
        TraceError: If it is none.
    """
    begin, dash, end = text.partition("-")
    try:
        return AddressRange(int(begin, 16), int(end if dash else "", 16))
    except ValueError as error:
        raise TraceError(
            f"{text} is no range of addresses.",
            next_step="Give its begin and its end, such as 0x4000000-0x5000000.",
        ) from error


@dataclass(frozen=True, slots=True)
class ReferenceMap:
    """Which regions were touched when."""

    region_bytes: int
    """Size of a region: a page, or several where many were touched."""
    addresses: NDArray[np.uint64]
    """Row -> the first address of its region; rising. Regions that nobody touched have no row."""
    step: int
    """Column c is the time c * step + 1 ... (c + 1) * step."""
    cells: NDArray[np.uint8]
    """Row, column -> the classes that touched it: bit c is class c of ``CLASS_NAMES``."""

    def of_class(self, number: int) -> NDArray[np.bool_]:
        """Row, column -> whether a class touched it."""
        return np.asarray((self.cells >> number) & 1, dtype=np.bool_)


class ReferenceMapper:
    """Draws the map in one pass, within memory that does not grow with the trace."""

    def __init__(
        self,
        page_bytes: int,
        zoom: AddressRange = WHOLE,
        *,
        columns: int = COLUMNS,
        rows: int = ROWS,
    ) -> None:
        self._page_bytes = page_bytes
        self._first = zoom.begin // page_bytes
        self._last = (zoom.end - 1) // page_bytes
        self._most_rows = rows
        self._region_shift = 0
        self._rows_of_regions: dict[int, int] = {}
        self._rows = np.empty(0, dtype=np.int32)  # index of a page -> its row
        self._cells = np.zeros((_FIRST_ROWS, columns), dtype=np.uint8)
        self._shift = 0
        self._pages = 0

    def feed(self, touches: Touches, page_numbers: NDArray[np.uint64]) -> None:
        """Take the next touches; ``page_numbers`` are those of all pages known after them."""
        if page_numbers.size > self._pages:
            self._add(page_numbers)
        self._shift = mark(
            touches.pages, touches.times, touches.classes, self._rows, self._cells, self._shift
        )

    def map(self, time: int) -> ReferenceMap:
        """The map so far; ``time`` is the time of the last reference."""
        regions = np.array(list(self._rows_of_regions), dtype=np.uint64)
        rows = np.array(list(self._rows_of_regions.values()), dtype=np.int64)
        order = np.argsort(regions)
        columns = -(-time >> self._shift) if time else 0
        region_bytes = self._page_bytes << self._region_shift
        return ReferenceMap(
            region_bytes=region_bytes,
            addresses=regions[order] * np.uint64(region_bytes),
            step=1 << self._shift,
            cells=self._cells[rows[order], :columns],
        )

    def _add(self, page_numbers: NDArray[np.uint64]) -> None:
        """Find rows for new pages."""
        new = page_numbers[self._pages :]
        if self._rows.size < page_numbers.size:
            grown = np.full(2 * page_numbers.size, _OUTSIDE, dtype=np.int32)
            grown[: self._pages] = self._rows[: self._pages]
            self._rows = grown
        known = self._rows_of_regions
        for index, number in enumerate(new.tolist(), start=self._pages):
            if self._first <= number <= self._last:
                self._rows[index] = known.setdefault(number >> self._region_shift, len(known))
        self._pages = page_numbers.size
        if len(known) > self._cells.shape[0]:
            grown_cells = np.zeros((2 * len(known), self._cells.shape[1]), dtype=np.uint8)
            grown_cells[: self._cells.shape[0]] = self._cells
            self._cells = grown_cells
        while len(self._rows_of_regions) > self._most_rows:
            self._merge()

    def _merge(self) -> None:
        """Let each region be twice as large."""
        self._region_shift += 1
        merged: dict[int, int] = {}
        moved = np.empty(len(self._rows_of_regions), dtype=np.int32)
        for region, row in self._rows_of_regions.items():
            moved[row] = merged.setdefault(region >> 1, len(merged))
        cells = np.zeros((2 * len(merged), self._cells.shape[1]), dtype=np.uint8)
        for row, into in enumerate(moved.tolist()):
            cells[into] |= self._cells[row]
        inside = self._rows[: self._pages] != _OUTSIDE
        self._rows[: self._pages][inside] = moved[self._rows[: self._pages][inside]]
        self._rows_of_regions, self._cells = merged, cells


@kernel
def mark(
    pages: NDArray[np.int32],
    times: NDArray[np.int64],
    classes: NDArray[np.uint8],
    rows: NDArray[np.int32],
    cells: NDArray[np.uint8],
    shift: int,
) -> int:
    """Mark some touches.

    Args:
        pages: Indices of pages.
        times: When they were touched.
        classes: By which class.
        rows: Index of a page -> its row, -1 for none.
        cells: Row, column -> bits of classes; changed.
        shift: A column is 2^shift long.

    Returns:
        The new ``shift``.
    """
    columns = cells.shape[1]
    for i in range(pages.size):
        column = (times[i] - 1) >> shift
        while column >= columns:
            for row in range(cells.shape[0]):
                for into in range(columns // 2):
                    cells[row, into] = cells[row, 2 * into] | cells[row, 2 * into + 1]
                for into in range(columns // 2, columns):
                    cells[row, into] = 0
            shift += 1
            column >>= 1
        row = rows[pages[i]]
        if row != _OUTSIDE:
            cells[row, column] |= np.uint8(1) << classes[i]
    return shift
