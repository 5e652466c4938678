"""The pauses of the slots, in memory that outlives the loop, so that the next loop knows them.

Each slot has two records, written in turn, each with a number and a checksum. A loop that is
killed while it writes leaves a torn record and a whole one, which is one event older. The loop
writes that a slot is paused *before* its levers move, and that it runs *after* they have moved, so
that the records never show less pausing than there was.

The time since which the loop itself keeps the slot paused follows the records, with the longest
pause that the slot's pod allows. The guardian reads both: a pause that another program made is not
the loop's to end.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from stallward.actuator.guard.slot_tracker import PauseHistory, SlotTracker

MAX_PAUSES: Final = 100
"""The most pauses of one slot that are kept. If there are more, the oldest are merged into one,
which then includes the time between them."""
_HEAD: Final = struct.Struct("<IQIdd")
"""The checksum of the rest, the record's number (0 if never written), the number of pauses, the
begin of the present pause and the time of the last thaw (NaN for none)."""
_PAUSE: Final = struct.Struct("<dd")
"""The begin and the end of one pause."""
_RECORD_BYTES: Final = 2048
SLOT_BYTES: Final = 2 * _RECORD_BYTES
_CRC_BYTES: Final = 4
_KEPT_SINCE_BYTES: Final = 8
_LONGEST_BYTES: Final = 8
_LEAST_S: Final = 1e-3
"""Stands for a bound of 0, which in memory means that there is none."""


class PauseMemory:
    """Reads and writes the pauses of a daemon's slots.

    Args:
        memory: At least :data:`SLOT_BYTES` for each slot; zeros where nothing was written yet.
        slots: How many slots there are.
    """

    def __init__(self, memory: memoryview | bytearray, slots: int) -> None:
        self._memory = memory
        self._numbers = [max(number, 0) for number, _ in map(self._newest, range(slots))]
        self._written = [-1] * slots
        self._kept_since = [_kept_since(memory, slot) for slot in range(slots)]
        self._longest = [_longest(memory, slot) for slot in range(slots)]
        self._keeps: list[bool] = [bool(since_s[0]) for since_s in self._kept_since]

    def keep(
        self, time_s: float, slots: Iterable[int], longest_s: Sequence[float | None] = ()
    ) -> None:
        """Note that the loop pauses ``slots`` from ``time_s`` on; call it before levers move.

        Args:
            time_s: CLOCK_MONOTONIC.
            slots: The slots.
            longest_s: The longest pause that the pod of each slot of the node allows, which holds
                for this pause until it ends; ``None`` for no bound.
        """
        for slot in slots:
            if not self._keeps[slot]:
                bound_s = longest_s[slot] if slot < len(longest_s) else None
                self._longest[slot][0] = 0.0 if bound_s is None else max(bound_s, _LEAST_S)
                self._kept_since[slot][0], self._keeps[slot] = time_s, True

    def keep_only(self, slots: Collection[int]) -> None:
        """Note that the loop keeps only ``slots`` paused; call it after levers have moved."""
        for slot, keeps in enumerate(self._keeps):
            if keeps and slot not in slots:
                self._kept_since[slot][0], self._keeps[slot] = 0.0, False

    def load(self) -> tuple[PauseHistory | None, ...]:
        """Return what the last loop wrote of each slot; ``None`` where no record is whole."""
        return tuple(self._newest(slot)[1] for slot in range(len(self._numbers)))

    def note(self, tracker: SlotTracker) -> None:
        """Write the slots of ``tracker`` that changed since the last call; takes microseconds."""
        for slot, change in enumerate(tracker.changes()):
            if change != self._written[slot]:
                self._write(slot, tracker.history(slot))
                self._written[slot] = change

    def _write(self, slot: int, history: PauseHistory) -> None:
        self._numbers[slot] += 1
        number = self._numbers[slot]
        data = _encode(number, history)
        start = slot * SLOT_BYTES + number % 2 * _RECORD_BYTES
        self._memory[start : start + len(data)] = data

    def _newest(self, slot: int) -> tuple[int, PauseHistory | None]:
        """Return the number and the history of a slot's newest whole record."""
        start = slot * SLOT_BYTES
        starts = (start, start + _RECORD_BYTES)
        records = [_decode(bytes(self._memory[at : at + _RECORD_BYTES])) for at in starts]
        return max(records, key=lambda record: record[0])


def kept_since(memory: memoryview, slots: int) -> tuple[float, ...]:
    """Return since when the loop keeps each slot paused (CLOCK_MONOTONIC); 0 if it does not."""
    return tuple(_kept_since(memory, slot)[0] for slot in range(slots))


def longest_pauses(memory: memoryview, slots: int) -> tuple[float, ...]:
    """Return the longest pause that the pod of each slot allows, in seconds, or infinity."""
    return tuple(_longest(memory, slot)[0] or math.inf for slot in range(slots))


def _kept_since(memory: memoryview | bytearray, slot: int) -> memoryview[float]:
    """Return the place of one number, which is aligned so that it is read and written at once."""
    end = (slot + 1) * SLOT_BYTES
    return memoryview(memory)[end - _KEPT_SINCE_BYTES : end].cast("d")


def _longest(memory: memoryview | bytearray, slot: int) -> memoryview[float]:
    """Return the place of the longest pause of a slot, just before that of its begin."""
    end = (slot + 1) * SLOT_BYTES - _KEPT_SINCE_BYTES
    return memoryview(memory)[end - _LONGEST_BYTES : end].cast("d")


def _encode(number: int, history: PauseHistory) -> bytes:
    pauses = history.pauses
    excess = len(pauses) - MAX_PAUSES
    if excess > 0:
        pauses = ((pauses[0][0], pauses[excess][1]), *pauses[excess + 1 :])
    head = _HEAD.pack(0, number, len(pauses), _or_nan(history.since_s), _or_nan(history.thawed_s))
    body = head[_CRC_BYTES:] + b"".join(_PAUSE.pack(*pause) for pause in pauses)
    return zlib.crc32(body).to_bytes(_CRC_BYTES, "little") + body


def _decode(data: bytes) -> tuple[int, PauseHistory | None]:
    """Return a record's number and history; -1 and ``None`` if it is torn or was never written."""
    crc, number, count, since_s, thawed_s = _HEAD.unpack_from(data)
    end = _HEAD.size + count * _PAUSE.size
    if not number or count > MAX_PAUSES or zlib.crc32(data[_CRC_BYTES:end]) != crc:
        return -1, None
    pauses = tuple(_PAUSE.iter_unpack(data[_HEAD.size : end]))
    return number, PauseHistory(
        since_s=_or_none(since_s), thawed_s=_or_none(thawed_s), pauses=_pairs(pauses)
    )


def _pairs(numbers: Sequence[tuple[float, ...]]) -> tuple[tuple[float, float], ...]:
    return tuple((begin_s, end_s) for begin_s, end_s in numbers)


def _or_nan(time_s: float | None) -> float:
    return math.nan if time_s is None else time_s


def _or_none(time_s: float) -> float | None:
    return None if math.isnan(time_s) else time_s
