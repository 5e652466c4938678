"""Reads the reasons of old records, which were written as sentences instead of values.

It reads only what a replay depends on: the kind of the fault, and whether a client held a lease.
No record is written in this form any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stallward.actuator.record.reasons import Fault, FaultKind, NoDetails

_KINDS: Final = {
    "stale sample": FaultKind.STALE,
    "invalid sample": FaultKind.INVALID,
    "signal lost": FaultKind.LOST,
    "observation not finite": FaultKind.OBSERVATION,
    "controller failed": FaultKind.RAISED,
    "decision unusable": FaultKind.UNUSABLE,
    "decision not finite": FaultKind.NOT_FINITE,
    "decision late": FaultKind.LATE,
    "outside the training range": FaultKind.OUT_OF_RANGE,
    "waiting": FaultKind.WAITING,
}


def fault_from_notes(notes: Sequence[str]) -> Fault | None:
    """Return the fault for which the default controller decided; ``None`` if no note has one."""
    for note in notes:
        prefix, comma, fault = note.partition(", ")
        kind, _, rest = fault.partition(": ")
        if prefix == "fallback" and comma:
            cause = NoDetails(kind=_KINDS.get(kind, FaultKind.OTHER))
            return Fault(controller=rest.partition(": ")[0], cause=cause)
    return None


def was_leased(controller: str, reason: str) -> bool:
    """Return whether an old decision, which has no field for it, was of a client with a lease."""
    return (controller, reason) == ("remote", "lease held")
