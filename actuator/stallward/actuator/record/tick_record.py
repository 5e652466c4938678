"""The record of one tick, as values; ``wire`` converts it to a message and back."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from stallward.actuator.parts import Part, load_part
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.record.reasons import Reasons
from stallward.agent.controller import Decision
from stallward.agent.desired import DesiredState
from stallward.agent.sample import Sample


class Mode(enum.Enum):
    """What a loaded policy may do."""

    OFF = 1
    """The policy does not run; the configured controller decides."""
    SHADOW = 2
    """The policy decides and is recorded; the configured controller is applied."""
    ACTIVE = 3
    """The policy decides and is applied."""
    ADVICE = 4
    """As ``SHADOW``; and what the policy would do is told in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDecision:
    """A decision and the name of the controller that made it."""

    controller: str
    decision: Decision
    leased: bool = False
    """Whether it is the desired state of a client that holds a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a decision depends on besides the sample and the controller."""

    sample_age_s: float = 0.0
    """How old the sample was when deciding began."""
    horizon_s: float | None = None
    """The longest time until the next tick is due; ``None`` for the nominal period."""
    blind_ticks: int = 0
    """How many ticks just before had no readable sample, so that everything was released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickTimings:
    """How long each part of a tick took."""

    late_ms: float = 0.0
    """How long after its due time the tick started."""
    sense_ms: float = 0.0
    observe_ms: float = 0.0
    decide_ms: float = 0.0
    guard_ms: float = 0.0
    apply_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord:
    """Everything that happened in one tick; enough to replay the decision bit for bit."""

    sequence: int
    time_s: float
    """CLOCK_MONOTONIC at the start of the tick."""
    wall_time_s: float
    sample: Sample
    observation: tuple[float, ...]
    """The observation, float32 values; see ``stallward.agent.observation.encoder``."""
    decision: NamedDecision
    """The decision that was followed: the guard reviewed it."""
    granted: DesiredState
    reasons: Reasons = field(default_factory=Reasons)
    """Why the default controller decided, if it did, and what the guard changed."""
    applied: tuple[LeverResult, ...] = ()
    timings: TickTimings = field(default_factory=TickTimings)
    mode: Mode = Mode.OFF
    shadow: NamedDecision | None = None
    """The decision of a policy or of a lease that is not followed now."""
    fallback: bool = False
    """Whether the default controller decided; ``reasons.fault`` says why."""
    circumstances: Circumstances = field(default_factory=Circumstances)
    slo_ms: float | None = None
    """The latency target in force; ``None`` in records of earlier versions."""

    @property
    def guard_notes(self) -> tuple[str, ...]:
        """The reasons as sentences for people; programs read ``reasons``."""
        notes: tuple[str, ...] = load_part(Part.SENTENCES)(self.reasons)
        return notes
