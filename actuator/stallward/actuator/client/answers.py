"""What calls of the client return, where it is more than one value."""

from __future__ import annotations

from dataclasses import dataclass

from stallward.actuator.record.advice.advice import Advice
from stallward.actuator.record.reasons import Reasons
from stallward.actuator.record.reasons_text import reason_notes
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.desired import DesiredState


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The daemon's answer to a desired state."""

    granted: DesiredState
    reasons: Reasons
    """Why it is less than was asked for, if it is."""
    lease_remaining_s: float

    @property
    def guard_notes(self) -> tuple[str, ...]:
        """The reasons as sentences, for people; a program reads ``reasons``."""
        return reason_notes(self.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One tick that a watcher received."""

    record: TickRecord
    skipped: int
    """Records that were left out because this watcher was too slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """One piece of advice that a follower received."""

    advice: Advice
    skipped: int
    """Pieces of advice that were left out because this follower was too slow."""
