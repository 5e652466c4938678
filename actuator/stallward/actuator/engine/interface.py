"""What goes into the engine once, and what comes out of it at every tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.record.reasons import Fault, Reasons
from stallward.actuator.record.tick_record import Circumstances, Mode, NamedDecision
from stallward.agent.controller import NodeContext
from stallward.agent.desired import DesiredState


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What deciding depends on besides the controllers."""

    context: NodeContext
    budgets: Budgets
    protected_pids: frozenset[int] = frozenset()
    late_s: float = 0.05
    """A decision that takes longer is not used."""
    online_cpus: frozenset[int] | None = None
    """CPUs that slots may be kept to; ``None`` where they are not known."""
    aside_s: float = 60.0
    """How long what somebody else has set is left alone after the last report of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickOutcome:
    """What a tick decided."""

    observation: NDArray[np.float32]
    decision: NamedDecision
    granted: DesiredState
    reasons: Reasons
    """Why the default controller decided, if it did, and what the guard changed."""
    mode: Mode
    circumstances: Circumstances
    stepped_aside: tuple[str, ...] = ()
    """Levers found in somebody else's hands at this tick that were not before."""
    shadow: NamedDecision | None = None
    """Of a policy that is only watched, or of a lease that is not followed now."""
    observe_ms: float = 0.0
    decide_ms: float = 0.0
    guard_ms: float = 0.0

    @property
    def fault(self) -> Fault | None:
        """Why the default controller decided; ``None`` if it did not."""
        return self.reasons.fault

    @property
    def fallback(self) -> bool:
        """Whether the default controller decided."""
        return self.reasons.fault is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounts:
    """What happened since the engine was made, for metrics."""

    ticks: int
    fallbacks: Mapping[str, int]
    """Ticks at which the default controller decided, by the fault's name."""
    stepped_aside: int
    """Times that a lever was found in somebody else's hands."""
