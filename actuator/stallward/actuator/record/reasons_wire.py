"""Conversion of the reasons of a tick to the wire and back.

The members of each enumeration have the same names on the wire, except for the one that stands for
members that this version does not know: there it is ``UNSPECIFIED``. The kind of a fault is
written beside its cause, so that a reader that does not know the cause still knows the kind.
"""

from __future__ import annotations

import enum
from typing import Final, Generic, TypeVar

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.guard.problem import Expected, Flaw, Problem
from stallward.actuator.record import reasons as domain
from stallward.actuator.record.flat_wire import FlatWire, Parts
from stallward.actuator.record.old_notes import fault_from_notes
from stallward.actuator.record.reasons import (
    Cause,
    DecisionUnfit,
    Fault,
    FaultKind,
    NoDetails,
    Reasons,
)
from stallward.proto.v1 import stallward_pb2 as pb

_E = TypeVar("_E", bound=enum.Enum)


class _EnumWire(Generic[_E]):
    """Converts between an enumeration and the wire's enumeration with the same members.

    Args:
        domain: The enumeration.
        wire: The wire's enumeration.
        prefix: The prefix of the names on the wire.
        other: The member for those that this version does not know.
    """

    def __init__(self, domain: type[_E], wire: EnumTypeWrapper, prefix: str, other: _E):
        names = {member: "UNSPECIFIED" if member is other else member.name for member in domain}
        self.to_wire = {member: wire.Value(f"{prefix}{name}") for member, name in names.items()}
        self._from_wire = {number: member for member, number in self.to_wire.items()}
        self._other = other

    def from_wire(self, number: int) -> _E:
        return self._from_wire.get(number, self._other)


_KINDS: Final = _EnumWire(FaultKind, pb.FaultKind, "FAULT_KIND_", FaultKind.OTHER)
_FLAWS: Final = _EnumWire(Flaw, pb.Flaw, "FLAW_", Flaw.OTHER)
_EXPECTED: Final = _EnumWire(Expected, pb.Expected, "EXPECTED_", Expected.NOTHING_ELSE)
_WISHES: Final = _EnumWire(Wish, pb.Wish, "WISH_", Wish.OTHER)
_RULES: Final = _EnumWire(GuardRule, pb.GuardRule, "GUARD_RULE_", GuardRule.OTHER)
_UNITS: Final = _EnumWire(Unit, pb.Unit, "UNIT_", Unit.NONE)

_CAUSES: Final = {
    "time_stood_still": domain.TimeStoodStill,
    "sample_too_old": domain.SampleTooOld,
    "wrong_slots": domain.WrongSlots,
    "time_not_finite": domain.TimeNotFinite,
    "total_went_back": domain.TotalWentBack,
    "no_sample": domain.NoSample,
    "not_observable": domain.NotObservable,
    "signal_lost": domain.SignalLost,
    "feature_not_finite": domain.FeatureNotFinite,
    "controller_raised": domain.ControllerRaised,
    "decision_late": domain.DecisionLate,
    "outside_training": domain.OutsideTraining,
    "waiting": domain.Waiting,
}
"""The causes that are dataclasses of scalars, by their field in ``pb.Fault``."""
_FIELDS: Final = {cause: name for name, cause in _CAUSES.items()}
_FLAT: Final = {
    name: FlatWire(cause, getattr(pb, cause.__name__)) for name, cause in _CAUSES.items()
}
_PROBLEM: Final = FlatWire(Problem, pb.Problem, skip=("flaw", "expected"))
_CHANGE: Final = FlatWire(GuardChange, pb.GuardChange, skip=("rule", "wish", "unit"))


def reasons_to_wire(reasons: Reasons) -> pb.Reasons:
    """Return the wire form of the reasons of a tick."""
    return pb.Reasons(**(reasons_parts(reasons) or {}))


def reasons_parts(reasons: Reasons) -> Parts | None:
    """Return the fields of the wire form; ``None`` if the tick did as its controller wanted."""
    parts = {
        "fault": fault_parts(reasons.fault),
        "default_fault": fault_parts(reasons.default_fault),
        "watched_fault": fault_parts(reasons.watched_fault),
        "changes": [_change_parts(change) for change in reasons.changes],
        "changes_left_out": reasons.changes_left_out,
    }
    return parts if any(parts.values()) else None


def reasons_from_wire(message: pb.TickRecord | pb.ApplyResponse) -> Reasons:
    """Return the reasons in a message, also those of an old record, which are sentences."""
    wire, notes = message.reasons, tuple(message.guard_notes)
    fault = fault_from_wire(wire.fault) if wire.HasField("fault") else fault_from_notes(notes)
    return Reasons(
        fault=fault,
        default_fault=_fault_or_none(wire, "default_fault"),
        watched_fault=_fault_or_none(wire, "watched_fault"),
        changes=tuple(map(_change_from_wire, wire.changes)),
        changes_left_out=wire.changes_left_out,
        notes=notes,
    )


def fault_parts(fault: Fault | None) -> Parts | None:
    """Return the parts of a fault's message; ``None`` if there is no fault."""
    if fault is None:
        return None
    parts: Parts = {"controller": fault.controller, "kind": _KINDS.to_wire[fault.kind]}
    cause = fault.cause
    if isinstance(cause, DecisionUnfit):
        parts["decision_unfit"] = _problem_parts(cause.problem)
    elif not isinstance(cause, NoDetails):
        name = _FIELDS[type(cause)]
        parts[name] = _FLAT[name].to_wire(cause)
    return parts


def _fault_or_none(wire: pb.Reasons, name: str) -> Fault | None:
    return fault_from_wire(getattr(wire, name)) if wire.HasField(name) else None


def fault_from_wire(message: pb.Fault) -> Fault:
    """Return the fault of a wire message."""
    return Fault(controller=message.controller, cause=_cause(message))


def _cause(message: pb.Fault) -> Cause:
    name = message.WhichOneof("cause")
    if name is None:
        return NoDetails(kind=_KINDS.from_wire(message.kind))
    if name == "decision_unfit":
        return DecisionUnfit(problem=_problem_from_wire(message.decision_unfit))
    cause: Cause = _CAUSES[name](**_FLAT[name].from_wire(getattr(message, name)))
    return cause


def _problem_parts(problem: Problem) -> Parts:
    return {
        **_PROBLEM.to_wire(problem),
        "flaw": _FLAWS.to_wire[problem.flaw],
        "expected": _EXPECTED.to_wire[problem.expected],
    }


def _problem_from_wire(message: pb.Problem) -> Problem:
    return Problem(
        flaw=_FLAWS.from_wire(message.flaw),
        expected=_EXPECTED.from_wire(message.expected),
        **_PROBLEM.from_wire(message),
    )


def _change_parts(change: GuardChange) -> Parts:
    return {
        **_CHANGE.to_wire(change),
        "rule": _RULES.to_wire[change.rule],
        "wish": _WISHES.to_wire[change.wish],
        "unit": _UNITS.to_wire[change.unit],
    }


def _change_from_wire(message: pb.GuardChange) -> GuardChange:
    return GuardChange(
        rule=_RULES.from_wire(message.rule),
        wish=_WISHES.from_wire(message.wish),
        unit=_UNITS.from_wire(message.unit),
        **_CHANGE.from_wire(message),
    )
