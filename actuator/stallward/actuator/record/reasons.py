"""The reasons why a tick did not do what its controller wanted, as values. Pure.

A :class:`Fault` says why a controller was not followed, and a
:class:`~stallward.actuator.guard.changes.GuardChange` says what the guard did not grant in full.
Programs read these; ``reasons_text`` makes the sentences for people from them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from stallward.actuator.guard.changes import GuardChange
from stallward.actuator.guard.problem import Flaw, Problem


class FaultKind(enum.Enum):
    """The kinds of faults. The values are the labels of the metric that counts them."""

    STALE = "stale_sample"
    INVALID = "invalid_sample"
    LOST = "signal_lost"
    OBSERVATION = "observation_not_finite"
    RAISED = "controller_failed"
    UNUSABLE = "decision_unusable"
    NOT_FINITE = "decision_not_finite"
    LATE = "decision_late"
    OUT_OF_RANGE = "outside_the_training_range"
    WAITING = "waiting"
    """Nothing is wrong now; the controller has not been good for long enough yet."""
    OTHER = "other"
    """A kind that this version does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStoodStill:
    """The time of the sample did not advance."""

    kind: ClassVar = FaultKind.STALE


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTooOld:
    """The sample was too old when deciding began."""

    age_s: float
    limit_s: float
    kind: ClassVar = FaultKind.STALE


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongSlots:
    """The sample does not have the slots of the node."""

    slots: int
    states: int
    expected: int
    kind: ClassVar = FaultKind.INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeNotFinite:
    """The time of the sample is a NaN or an infinity."""

    time_s: float
    kind: ClassVar = FaultKind.INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalWentBack:
    """A total got smaller: its group was made again, so that no rate can be computed."""

    signal: str
    kind: ClassVar = FaultKind.INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSample:
    """No sample could be read at the last ticks, so that everything was released."""

    ticks: int
    kind: ClassVar = FaultKind.INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class NotObservable:
    """No observation can be computed from the sample."""

    error: str
    """The message of the exception."""
    kind: ClassVar = FaultKind.INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalLost:
    """An essential signal was there before and is gone."""

    signal: str
    kind: ClassVar = FaultKind.LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureNotFinite:
    """A feature of the observation is a NaN or an infinity."""

    feature: str
    kind: ClassVar = FaultKind.OBSERVATION


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRaised:
    """The controller raised an exception."""

    error: str
    """The message of the exception."""
    kind: ClassVar = FaultKind.RAISED


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionUnfit:
    """The decision cannot be expressed on the node, or cannot be recorded."""

    problem: Problem

    @property
    def kind(self) -> FaultKind:
        """The kind: either a number that is not finite, or another flaw."""
        not_finite = self.problem.flaw is Flaw.NOT_FINITE
        return FaultKind.NOT_FINITE if not_finite else FaultKind.UNUSABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLate:
    """Deciding took too long."""

    took_s: float
    limit_s: float
    kind: ClassVar = FaultKind.LATE


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideTraining:
    """The observation is outside the training range of the policy, or its score cannot tell."""

    score: float | None
    """The OOD score; ``None`` if the policy gave none."""
    limit: float
    kind: ClassVar = FaultKind.OUT_OF_RANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The controller must be good for some ticks in a row before it is followed again."""

    good_ticks: int
    needed_ticks: int
    kind: ClassVar = FaultKind.WAITING


@dataclass(frozen=True, slots=True, kw_only=True)
class NoDetails:
    """Only the kind of the fault is known, since another version wrote the record."""

    kind: FaultKind


Cause = (
    TimeStoodStill
    | SampleTooOld
    | WrongSlots
    | TimeNotFinite
    | TotalWentBack
    | NoSample
    | NotObservable
    | SignalLost
    | FeatureNotFinite
    | ControllerRaised
    | DecisionUnfit
    | DecisionLate
    | OutsideTraining
    | Waiting
    | NoDetails
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why one controller was not followed at one tick."""

    controller: str
    cause: Cause

    @property
    def kind(self) -> FaultKind:
        """The kind of its cause."""
        return self.cause.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Why one tick did not do what its controller wanted."""

    fault: Fault | None = None
    """Why the default controller decided; ``None`` if it did not."""
    default_fault: Fault | None = None
    """Why the default controller could not be followed either; ``None`` if it could."""
    watched_fault: Fault | None = None
    """What was wrong with a policy that is asked but not followed; ``None`` if nothing was."""
    changes: tuple[GuardChange, ...] = ()
    """The parts of the desired state that the guard did not grant in full."""
    changes_left_out: int = 0
    """How many more changes of the guard there were."""
