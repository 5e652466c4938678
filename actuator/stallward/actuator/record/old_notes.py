"""Reads the sentences of records that were written before reasons were values.

Only what a replay depends on is read from them: the kind of the fault, and that a client held a
lease. Nothing new is written in this form.
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


def fault_of(notes: Sequence[str]) -> Fault | None:
    """The fault for which the default controller decided; ``None`` if no note names one."""
    for note in notes:
        fallback, comma, said = note.partition(", ")
        kind, _, rest = said.partition(": ")
        if fallback == "fallback" and comma:
            cause = NoDetails(kind=_KINDS.get(kind, FaultKind.OTHER))
            return Fault(controller=rest.partition(": ")[0], cause=cause)
    return None


def was_leased(controller: str, reason: str) -> bool:
    """Whether a decision without the field was wanted by a client that held a lease."""
    return (controller, reason) == ("remote", "lease held")
