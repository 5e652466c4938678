"""When a slot is paused, limited or let go, told no more often than people can read. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from stallward.proto.v1 import stallward_pb2 as pb

NOTICE_ID: Final = "5c1f2b0f6a0e4b0c9d0f3c1e8a7d4b62"
"""Identifies notices among all other messages of the journal."""


class Treatment(StrEnum):
    """What is done to a slot."""

    FREE = "free"
    LIMITED = "limited"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One change of what is done to a slot."""

    slot: str
    before: Treatment
    now: Treatment
    limit_bytes: int | None
    """The limit, if there is one."""
    memory_bytes: int | None = None
    """What the slot holds, if that is known."""
    controller: str
    """Who decided it."""
    reason: str
    """Why, in the controller's words."""
    left_out: int = 0
    """How many changes of this slot were not told since the notice before."""
    message_id: str = NOTICE_ID

    @property
    def message(self) -> str:
        """The notice as a sentence."""
        limit = "" if self.limit_bytes is None else f" to {self.limit_bytes >> 20} MiB"
        what = {
            Treatment.FREE: "let go",
            Treatment.LIMITED: f"limited{limit}",
            Treatment.PAUSED: f"paused{' and limited' if limit else ''}{limit}",
        }[self.now]
        more = f" ({self.left_out} changes before that were not told)" if self.left_out else ""
        why = f": {self.reason}" if self.reason else ""
        holds = "" if self.memory_bytes is None else f" ({self.memory_bytes >> 20} MiB)"
        return f"{self.slot}{holds} is {what} by {self.controller}{why}{more}"

    def fields(self) -> dict[str, str]:
        """The notice as named texts, for the journal and for a command's environment."""
        found = {
            "STALLWARD_SLOT": self.slot,
            "STALLWARD_BEFORE": self.before.value,
            "STALLWARD_NOW": self.now.value,
            "STALLWARD_CONTROLLER": self.controller,
            "STALLWARD_REASON": self.reason,
            "STALLWARD_LEFT_OUT": str(self.left_out),
        }
        if self.limit_bytes is not None:
            found["STALLWARD_LIMIT_BYTES"] = str(self.limit_bytes)
        if self.memory_bytes is not None:
            found["STALLWARD_MEMORY_BYTES"] = str(self.memory_bytes)
        return found


class _Slot:
    """What was told of one slot."""

    def __init__(self) -> None:
        self.told = Treatment.FREE
        self.told_s = float("-inf")
        self.told_limit_bytes: int | None = None
        self.last = Treatment.FREE
        self.changes = 0
        """How often it has changed since it was told of."""


class SlotChanges:
    """Finds what is to be told, tick by tick.

    What holds at the first tick is not told: a service that was started again finds it so. A
    change is told at once, and further ones of the slot no more often than once in ``interval_s``:
    then the state at the end of that time is told, unless it is the one that was told last. A limit
    that moves counts as a change when it has become half of what was told, or twice as much.

    Args:
        names: The slots' names.
        interval_s: The least time between two notices of one slot.
    """

    def __init__(self, names: Sequence[str], interval_s: float) -> None:
        self._names = tuple(names)
        self._interval_s = interval_s
        self._slots = tuple(_Slot() for _ in names)
        self._began = False

    def take(self, record: pb.TickRecord) -> tuple[Notice, ...]:
        """Take one tick; returns what is to be told now."""
        notices = []
        for index, (name, slot) in enumerate(zip(self._names, self._slots, strict=True)):
            desires = record.granted.slots
            desire = desires[index] if index < len(desires) else pb.SlotDesire()
            now = _treatment(desire)
            limit_bytes = desire.limit_bytes if desire.HasField("limit_bytes") else None
            if not self._began:
                slot.told, slot.last, slot.told_limit_bytes = now, now, limit_bytes
            slot.changes += now is not slot.last
            slot.last = now
            due = record.time_s - slot.told_s >= self._interval_s
            moved = _far(slot.told_limit_bytes, limit_bytes)
            if not due or (now is slot.told and not moved):
                continue
            groups = record.sample.slots
            known = index < len(groups) and groups[index].HasField("memory_usage_bytes")
            notices.append(
                Notice(
                    slot=name,
                    before=slot.told,
                    now=now,
                    limit_bytes=limit_bytes,
                    memory_bytes=groups[index].memory_usage_bytes if known else None,
                    controller=record.decision.controller,
                    reason=record.decision.reason,
                    left_out=max(slot.changes - 1, 0),
                )
            )
            slot.told, slot.told_s, slot.changes = now, record.time_s, 0
            slot.told_limit_bytes = limit_bytes
        self._began = True
        return tuple(notices)


def _far(told_bytes: int | None, now_bytes: int | None) -> bool:
    """Whether a limit has become half of what was told, or twice as much."""
    if told_bytes is None or now_bytes is None:
        return False
    return not 0.5 * told_bytes < now_bytes < 2.0 * told_bytes


def _treatment(desire: pb.SlotDesire) -> Treatment:
    if desire.paused:
        return Treatment.PAUSED
    return Treatment.LIMITED if desire.HasField("limit_bytes") else Treatment.FREE
