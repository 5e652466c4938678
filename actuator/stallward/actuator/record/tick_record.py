"""What one tick leaves behind: the domain form of the wire's ``TickRecord``."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.record.reasons import Reasons
from stallward.actuator.record.reasons_text import reason_notes
from stallward.agent.controller import Decision
from stallward.agent.desired import DesiredState
from stallward.agent.sample import Sample


class Mode(enum.Enum):
    """What a loaded policy may do."""

    OFF = 1
    """It does not run; the rule decides."""
    SHADOW = 2
    """It decides and is recorded; the rule is applied."""
    ACTIVE = 3
    """It decides and is applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDecision:
    """A decision and whose it is."""

    controller: str
    decision: Decision
    leased: bool = False
    """A client that holds a lease wants it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a decision depends on besides the sample and who decides."""

    sample_age_s: float = 0.0
    """How old the sample was when deciding began."""
    horizon_s: float | None = None
    """The longest time until the next tick was due; ``None`` for the nominal period."""
    blind_ticks: int = 0
    """Ticks just before at which no sample could be read and everything was released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickTimings:
    """Where the time of a tick went."""

    late_ms: float = 0.0
    """Start of the tick after its due time."""
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
    """float32 values, see ``stallward.agent.observation.encoder``."""
    decision: NamedDecision
    """Of the controller in force."""
    granted: DesiredState
    reasons: Reasons = field(default_factory=Reasons)
    """Why the default controller decided, if it did, and what the guard changed."""
    applied: tuple[LeverResult, ...] = ()
    timings: TickTimings = field(default_factory=TickTimings)
    mode: Mode = Mode.OFF
    shadow: NamedDecision | None = None
    """Of a policy that is only watched, or of a lease that is not followed now."""
    fallback: bool = False
    """The default controller decided; ``reasons.fault`` says why."""
    circumstances: Circumstances = field(default_factory=Circumstances)

    @property
    def guard_notes(self) -> tuple[str, ...]:
        """The reasons as sentences, for people; a program reads ``reasons``."""
        return reason_notes(self.reasons)
