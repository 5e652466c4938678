"""The deciding part of a tick, without any I/O: observe, decide, guard.

The loop, an environment that steps a real node and the replay of a recording all run this.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard import Budgets, Guard, GuardMemory
from stallward.actuator.record import Mode, NamedDecision
from stallward.agent.controller import Controller, Decision, NodeContext
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.observation import ObservationEncoder
from stallward.agent.raw import to_raw
from stallward.agent.sample import Sample

REMOTE: Final = "remote"
LEASE_REASON: Final = "lease held"
LATE_NOTE: Final = "decision late"
"""How the note of a late decision starts; the replay reads it, since time does not repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What deciding depends on besides the controllers."""

    context: NodeContext
    budgets: Budgets
    protected_pids: frozenset[int] = frozenset()
    late_s: float = 0.05
    """A decision that takes longer is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickOutcome:
    """What a tick decided."""

    observation: NDArray[np.float32]
    decision: NamedDecision
    granted: DesiredState
    notes: tuple[str, ...]
    fallback: bool
    mode: Mode
    shadow: NamedDecision | None = None
    observe_ms: float = 0.0
    decide_ms: float = 0.0
    guard_ms: float = 0.0


class Engine:
    """Observes, decides and guards, tick by tick.

    Args:
        settings: The node and the guard's budgets.
        rule: Decides while no policy is active.
        default: Takes over when a decision is late, not finite or cannot be expressed; it must
            not be the same object as ``rule``.
    """

    def __init__(self, *, settings: EngineSettings, rule: Controller, default: Controller) -> None:
        context = settings.context
        self._settings = settings
        self._guard = Guard(
            budgets=settings.budgets,
            floors_bytes=tuple(context.floor(i) for i in range(len(context.slot_names))),
            protected_pids=settings.protected_pids,
            tick_period_s=context.tick_period_s,
        )
        self._encoder = ObservationEncoder(batch=1, slo_ms=context.slo_ms)
        self._rule, self._default = rule, default
        self._policy: Controller | None = None
        self._mode = Mode.OFF
        self._memory = GuardMemory()
        self._last_time_s = -np.inf
        rule.reset(context)
        default.reset(context)

    @property
    def mode(self) -> Mode:
        """What the loaded policy may do now."""
        return self._mode

    @property
    def policy(self) -> Controller | None:
        """The loaded policy."""
        return self._policy

    @property
    def in_force(self) -> Controller:
        """The controller that decides while no lease is held."""
        if self._mode is Mode.ACTIVE and self._policy is not None:
            return self._policy
        return self._rule

    def invalid(self, desired: DesiredState) -> str:
        """Why ``desired`` cannot be expressed on this node; empty if it can."""
        return self._guard.invalid(desired)

    @property
    def needs_processes(self) -> bool:
        """Whether samples must carry the background's processes."""
        loaded = (self._rule, self._default, self._policy)
        return any(c.needs_processes for c in loaded if c is not None)

    def install(self, policy: Controller) -> None:
        """Replace the loaded policy; the new one starts off."""
        self.set_mode(Mode.OFF)
        self._policy = policy

    def set_mode(self, mode: Mode) -> None:
        """Turn the loaded policy off, watched or active; without one it stays off."""
        policy = self._policy
        if policy is None or mode is self._mode:
            return
        context = self._settings.context
        if self._mode is Mode.OFF:
            policy.reset(context)  # it has not seen the last samples
        if self._mode is Mode.ACTIVE:
            self._rule.reset(context)
        self._mode = mode

    def step(
        self, sample: Sample, *, remote: DesiredState | None = None, late: bool | None = None
    ) -> TickOutcome:
        """Decide for one sample.

        Args:
            sample: This tick's signals.
            remote: A desired state that a client holds a lease for; it goes before any
                controller.
            late: Whether the decision counts as late; ``None`` measures it.
        """
        start_s = time.perf_counter()
        observation = self._encoder.encode(to_raw(sample))[0]
        observed_s = time.perf_counter()
        notes: list[str] = []
        named = self._decide(sample, observation, remote, notes, late)
        fallback = named is None
        default = self._attempt(self._default, sample, observation, notes)
        if named is None:
            named = default or NamedDecision(
                controller="released", decision=Decision(desired=RELEASED, reason="no controller")
            )
        shadow = self._watch(sample, observation, named, notes)
        decided_s = time.perf_counter()
        verdict = self._guard.review(named.decision.desired, sample, self._memory)
        self._memory = verdict.memory
        guarded_s = time.perf_counter()
        return TickOutcome(
            observation=observation,
            decision=named,
            granted=verdict.granted,
            notes=(*notes, *verdict.notes),
            fallback=fallback,
            mode=self._mode,
            shadow=shadow,
            observe_ms=(observed_s - start_s) * 1e3,
            decide_ms=(decided_s - observed_s) * 1e3,
            guard_ms=(guarded_s - decided_s) * 1e3,
        )

    def _decide(
        self,
        sample: Sample,
        observation: NDArray[np.float32],
        remote: DesiredState | None,
        notes: list[str],
        late: bool | None,
    ) -> NamedDecision | None:
        """The decision in force; ``None`` (with a note) if the default must take over."""
        stale = sample.time_s <= self._last_time_s
        self._last_time_s = max(sample.time_s, self._last_time_s)
        begin_s = time.perf_counter()
        if remote is not None:
            if problem := self._guard.invalid(remote):
                notes.append(f"{REMOTE}: {problem}")
                return None
            return NamedDecision(
                controller=REMOTE, decision=Decision(desired=remote, reason=LEASE_REASON)
            )
        named = self._attempt(self.in_force, sample, observation, notes)
        took_s = time.perf_counter() - begin_s
        if late if late is not None else took_s > self._settings.late_s:
            notes.append(f"{LATE_NOTE}: {took_s * 1e3:.0f} ms")
            return None
        if stale:
            notes.append("stale sample: its time did not advance")
            return None
        return named

    def _attempt(
        self,
        controller: Controller,
        sample: Sample,
        observation: NDArray[np.float32],
        notes: list[str],
    ) -> NamedDecision | None:
        """The decision of ``controller`` if it can be used, else ``None`` and a note."""
        try:
            decision = controller.decide(sample, observation)
        except Exception as error:  # whatever a policy raises, the loop goes on
            notes.append(f"{controller.name}: {error}")
            return None
        problem = self._guard.invalid(decision.desired)
        limit = getattr(getattr(controller, "metadata", None), "ood_limit", None)
        if limit is not None and decision.score is not None and decision.score > limit:
            problem = f"outside its training data, score {decision.score:.3f} above {limit:g}"
        if problem:
            notes.append(f"{controller.name}: {problem}")
            return None
        return NamedDecision(controller=controller.name, decision=decision)

    def _watch(
        self,
        sample: Sample,
        observation: NDArray[np.float32],
        named: NamedDecision,
        notes: list[str],
    ) -> NamedDecision | None:
        """The decision of a policy that is only watched."""
        policy = self._policy
        # While a lease is held an active policy is watched too, so that it takes over warm.
        watched = self._mode is Mode.SHADOW or (
            self._mode is Mode.ACTIVE and named.controller == REMOTE
        )
        if policy is None or not watched:
            return None
        return self._attempt(policy, sample, observation, notes)
