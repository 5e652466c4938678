"""The slots' pauses in memory that outlives the loop, so that the next loop knows them.

Each slot has two records, written in turn, each with a number and a checksum. A loop that is
killed while it writes leaves a torn record and a whole one, which is one event older. The loop
writes that a slot will be paused *before* its levers move and that it runs *after* they have, so
what is left always says at least as much pausing as there was.

Behind the records is since when the loop keeps the slot paused by its own will, for the guardian:
what somebody else pauses is not the loop's to end.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from stallward.actuator.guard.slot_tracker import PauseHistory, SlotTracker

MOST_PAUSES: Final = 100
"""Pauses of one slot that are kept; more are taken together, with the time between them."""
_HEAD: Final = struct.Struct("<IQIdd")
"""Checksum of the rest, number (0: never written), pauses, paused since and thawed at: NaN for
neither."""
_PAUSE: Final = struct.Struct("<dd")
_RECORD_BYTES: Final = 2048
SLOT_BYTES: Final = 2 * _RECORD_BYTES
_CRC_BYTES: Final = 4
_KEPT_BYTES: Final = 8


class PauseMemory:
    """The pauses of a daemon's slots.

    Args:
        memory: At least :data:`SLOT_BYTES` a slot; zeros where nothing was written yet.
        slots: How many slots there are.
    """

    def __init__(self, memory: memoryview | bytearray, slots: int) -> None:
        self._memory = memory
        self._numbers = [max(number, 0) for number, _ in map(self._newest, range(slots))]
        self._written = [-1] * slots
        self._kept = [_kept(memory, slot) for slot in range(slots)]
        self._keeps: list[bool] = [bool(view[0]) for view in self._kept]

    def keep(self, time_s: float, slots: Iterable[int]) -> None:
        """From ``time_s`` on the loop keeps ``slots`` paused; call it before its levers move."""
        for slot in slots:
            if not self._keeps[slot]:
                self._kept[slot][0], self._keeps[slot] = time_s, True

    def keep_only(self, slots: Collection[int]) -> None:
        """The loop keeps nothing else paused any more; call it after its levers have moved."""
        for slot, keeps in enumerate(self._keeps):
            if keeps and slot not in slots:
                self._kept[slot][0], self._keeps[slot] = 0.0, False

    def load(self) -> tuple[PauseHistory | None, ...]:
        """What the last loop wrote of each slot; ``None`` where nothing of it can be read."""
        return tuple(self._newest(slot)[1] for slot in range(len(self._numbers)))

    def note(self, tracker: SlotTracker) -> None:
        """Write what has changed of ``tracker`` since the last call; a few microseconds."""
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
        start = slot * SLOT_BYTES
        records = (start, start + _RECORD_BYTES)
        found = [_decode(bytes(self._memory[at : at + _RECORD_BYTES])) for at in records]
        return max(found, key=lambda record: record[0])


def kept_since(memory: memoryview, slots: int) -> tuple[float, ...]:
    """Since when the loop keeps each slot paused, CLOCK_MONOTONIC; 0 where it does not."""
    return tuple(_kept(memory, slot)[0] for slot in range(slots))


def _kept(memory: memoryview | bytearray, slot: int) -> memoryview[float]:
    """One aligned number, which is stored and read in one go."""
    end = (slot + 1) * SLOT_BYTES
    return memoryview(memory)[end - _KEPT_BYTES : end].cast("d")


def _encode(number: int, history: PauseHistory) -> bytes:
    pauses = history.pauses
    much = len(pauses) - MOST_PAUSES
    if much > 0:
        pauses = ((pauses[0][0], pauses[much][1]), *pauses[much + 1 :])
    head = _HEAD.pack(0, number, len(pauses), _or_nan(history.since_s), _or_nan(history.thawed_s))
    body = head[_CRC_BYTES:] + b"".join(_PAUSE.pack(*pause) for pause in pauses)
    return zlib.crc32(body).to_bytes(_CRC_BYTES, "little") + body


def _decode(data: bytes) -> tuple[int, PauseHistory | None]:
    """The number and the history of a record; -1 and ``None`` if it is torn or was not written."""
    crc, number, count, since_s, thawed_s = _HEAD.unpack_from(data)
    end = _HEAD.size + count * _PAUSE.size
    if not number or count > MOST_PAUSES or zlib.crc32(data[_CRC_BYTES:end]) != crc:
        return -1, None
    pauses = tuple(_PAUSE.iter_unpack(data[_HEAD.size : end]))
    return number, PauseHistory(
        since_s=_or_none(since_s), thawed_s=_or_none(thawed_s), pauses=_pairs(pauses)
    )


def _pairs(found: Sequence[tuple[float, ...]]) -> tuple[tuple[float, float], ...]:
    return tuple((begin_s, end_s) for begin_s, end_s in found)


def _or_nan(time_s: float | None) -> float:
    return math.nan if time_s is None else time_s


def _or_none(time_s: float) -> float | None:
    return None if math.isnan(time_s) else time_s
