"""The settings of the engine, the outcome of each of its ticks, and its counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.guard import Guard
from stallward.actuator.record.reasons import Fault, Reasons
from stallward.actuator.record.tick_record import Circumstances, Mode, NamedDecision
from stallward.agent.controller import NodeContext
from stallward.agent.desired import DesiredState


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The settings of the engine besides its controllers."""

    context: NodeContext
    budgets: Budgets
    protected_pids: frozenset[int] = frozenset()
    late_s: float = 0.05
    """A decision that takes longer is not used."""
    online_cpus: frozenset[int] | None = None
    """The CPUs to which slots may be confined; ``None`` where they are not known."""
    aside_s: float = 60.0
    """How long the guard steps aside after the last report of a foreign change."""
    growth_bytes: int | None = None
    """What programs may allocate until a limit follows them, where the memory limits of slots are
    hard ones, those of cgroup v1; else ``None``."""

    def make_guard(self) -> Guard:
        """The guard of this node with these budgets."""
        context = self.context
        return Guard(
            budgets=self.budgets,
            floors_bytes=tuple(context.floor(i) for i in range(len(context.slot_names))),
            protected_pids=self.protected_pids,
            tick_period_s=context.tick_period_s,
            zone_limit_bytes=context.zone_limit_bytes or None,
            online_cpus=self.online_cpus,
            aside_s=self.aside_s,
            growth_bytes=self.growth_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TickOutcome:
    """The outcome of deciding one tick."""

    observation: NDArray[np.float32]
    decision: NamedDecision
    granted: DesiredState
    reasons: Reasons
    """Why the default controller decided, if it did, and what the guard changed."""
    mode: Mode
    circumstances: Circumstances
    stepped_aside: tuple[str, ...] = ()
    """The levers of which a foreign change was first reported at this tick."""
    shadow: NamedDecision | None = None
    """The decision of a policy or of a lease that is not followed now."""
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
    """Counts of ticks and of events since the engine was made, for metrics."""

    ticks: int
    fallbacks: Mapping[str, int]
    """How many ticks the default controller decided, by the name of the fault."""
    stepped_aside: int
    """How many foreign changes of levers there were."""
