"""The deciding part of a tick, without any I/O: check, observe, decide, guard.

The loop, an environment that steps a real node and the replay of a recording all run this. What
it depends on comes in with each step; what it keeps is in frozen values (:class:`GuardMemory`,
:class:`Trust`, :class:`SampleMemory`), the encoder's history and the controllers' own memory.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.engine.ask_controller import Decider, Observer, plain, unfit
from stallward.actuator.engine.fallback import Trust
from stallward.actuator.engine.interface import EngineCounts, EngineSettings, TickOutcome
from stallward.actuator.engine.sample_check import SampleMemory, check_sample
from stallward.actuator.guard.guard import Guard, GuardMemory
from stallward.actuator.guard.problem import Problem
from stallward.actuator.record.reasons import (
    Cause,
    DecisionLate,
    Fault,
    NoSample,
    Reasons,
    Waiting,
)
from stallward.actuator.record.tick_record import Circumstances, Mode, NamedDecision
from stallward.agent.controller import Controller, Decision
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.sample import Sample

__all__ = ["REMOTE", "Engine", "EngineSettings", "TickOutcome"]

REMOTE: Final = "remote"


class Engine:
    """Checks, observes, decides and guards, tick by tick.

    Args:
        settings: The node and the guard's budgets.
        rule: Decides while no policy is active.
        default: Takes over when a sample or a decision cannot be used; it must not be the same
            object as ``rule``.
        clock_s: Measures how long deciding takes.
    """

    def __init__(
        self,
        *,
        settings: EngineSettings,
        rule: Controller,
        default: Controller,
        clock_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        context = settings.context
        self._settings = settings
        self._slots = len(context.slot_names)
        self.guard: Final = Guard(
            budgets=settings.budgets,
            floors_bytes=tuple(context.floor(i) for i in range(self._slots)),
            protected_pids=settings.protected_pids,
            tick_period_s=context.tick_period_s,
            zone_limit_bytes=context.zone_limit_bytes or None,
            online_cpus=settings.online_cpus,
            aside_s=settings.aside_s,
        )
        self._clock_s = clock_s
        self._observer = Observer(context.slo_ms)
        self._rule, self._default = Decider.of(rule), Decider.of(default)
        self._policy: Decider | None = None
        self._mode = Mode.OFF
        self._memory = GuardMemory()
        self._trust = Trust()
        self._seen = SampleMemory()
        self._fallbacks: Counter[str] = Counter()
        self._ticks = self._stepped_aside = 0
        rule.reset(context)
        default.reset(context)

    @property
    def mode(self) -> Mode:
        """What the loaded policy may do now."""
        return self._mode

    @property
    def policy(self) -> Controller | None:
        """The loaded policy."""
        return None if self._policy is None else self._policy.controller

    @property
    def in_force(self) -> Controller:
        """The controller that decides while no lease is held."""
        return self._decider.controller

    @property
    def _decider(self) -> Decider:
        if self._mode is Mode.ACTIVE and self._policy is not None:
            return self._policy
        return self._rule

    def invalid(self, desired: DesiredState) -> Problem | None:
        """Why ``desired`` cannot be expressed on this node; ``None`` if it can."""
        return self.guard.invalid(desired)

    @property
    def memory(self) -> GuardMemory:
        """What the guard keeps between ticks."""
        return self._memory

    @property
    def counts(self) -> EngineCounts:
        """What happened so far."""
        return EngineCounts(
            ticks=self._ticks,
            fallbacks=dict(self._fallbacks),
            stepped_aside=self._stepped_aside,
        )

    @property
    def needs_processes(self) -> bool:
        """Whether samples must carry the background's processes."""
        deciders = (self._rule, self._default, self._policy)
        return any(one is not None and one.controller.needs_processes for one in deciders)

    def install(self, policy: Controller) -> None:
        """Replace the loaded policy; the new one starts off."""
        self.set_mode(Mode.OFF)
        self._policy = Decider.of(policy)
        self._trust = Trust()

    def set_mode(self, mode: Mode) -> None:
        """Turn the loaded policy off, watched or active; without one it stays off."""
        policy = self._policy
        if policy is None or mode is self._mode:
            return
        context = self._settings.context
        if self._mode is Mode.OFF:
            policy.controller.reset(context)  # it has not seen the last samples
        if self._mode is Mode.ACTIVE:
            self._rule.controller.reset(context)
        self._mode = mode

    def step(
        self,
        sample: Sample,
        *,
        remote: DesiredState | None = None,
        late: bool | None = None,
        circumstances: Circumstances | None = None,
    ) -> TickOutcome:
        """Decide for one sample.

        Args:
            sample: This tick's signals.
            remote: A desired state that a client holds a lease for; it goes before any
                controller.
            late: Whether the decision counts as late; ``None`` measures it.
            circumstances: How old the sample is and when the next tick is due.
        """
        about = circumstances or Circumstances()
        start_s = self._clock_s()
        cause = self._check(sample, about)
        usable = cause is None
        observation, unseen = self._observer.observe(sample)
        cause = cause or unseen
        observed_s = self._clock_s()
        who = REMOTE if remote is not None else self.in_force.name
        candidate: NamedDecision | None = None
        if cause is None:
            candidate, cause = self._candidate(sample, observation, remote, late)
        cause = self._judge(who, cause)
        fault = None if cause is None else Fault(controller=plain(who), cause=cause)
        default, default_fault = self._ask_default(sample, observation)
        named = default if fault is not None or candidate is None else candidate
        shadow, watched_fault = (
            self._watch(sample, observation, remote) if usable else (None, None)
        )
        if remote is not None and named is default and self.guard.invalid(remote) is None:
            shadow = _held(remote)
        decided_s = self._clock_s()
        verdict = self.guard.review(
            named.decision.desired, sample, self._memory, horizon_s=about.horizon_s
        )
        self._memory = verdict.memory
        self._count(fault, verdict.stepped_aside)
        guarded_s = self._clock_s()
        return TickOutcome(
            observation=observation,
            decision=named,
            granted=verdict.granted,
            reasons=Reasons(
                fault=fault,
                default_fault=default_fault,
                watched_fault=watched_fault,
                changes=verdict.changes,
                changes_left_out=verdict.changes_left_out,
            ),
            mode=self._mode,
            circumstances=about,
            stepped_aside=verdict.stepped_aside,
            shadow=shadow,
            observe_ms=(observed_s - start_s) * 1e3,
            decide_ms=(decided_s - observed_s) * 1e3,
            guard_ms=(guarded_s - decided_s) * 1e3,
        )

    def _check(self, sample: Sample, about: Circumstances) -> Cause | None:
        cause, self._seen = check_sample(
            sample,
            self._seen,
            slots=self._slots,
            age_s=about.sample_age_s,
            stale_s=self._settings.budgets.stale_s,
        )
        if about.blind_ticks:
            # Everything was released then: what was granted before is not in force any more.
            self._memory = replace(self._memory, limits=())
            return NoSample(ticks=about.blind_ticks)
        return cause

    def _candidate(
        self,
        sample: Sample,
        observation: NDArray[np.float32],
        remote: DesiredState | None,
        late: bool | None,
    ) -> tuple[NamedDecision | None, Cause | None]:
        """The decision of whoever is to decide, or what is wrong with it."""
        if remote is not None:
            problem = self.guard.invalid(remote)
            if problem is not None:
                return None, unfit(problem)
            return _held(remote), None
        begin_s = self._clock_s()
        answer = self._decider.ask(sample, observation, self._slots)
        took_s, limit_s = self._clock_s() - begin_s, self._settings.late_s
        if not isinstance(answer, NamedDecision):
            return None, answer
        if late if late is not None else took_s > limit_s:
            return None, DecisionLate(took_s=took_s, limit_s=limit_s)
        return answer, None

    def _judge(self, who: str, cause: Cause | None) -> Cause | None:
        """The cause for which the default controller decides, if any."""
        base = self._settings.budgets.return_after_ticks
        self._trust = trust = self._trust.after(who, None if cause is None else cause.kind, base)
        if cause is None and not trust.followed:
            return Waiting(good_ticks=trust.good_ticks, needed_ticks=trust.wait_ticks)
        return cause

    def _ask_default(
        self, sample: Sample, observation: NDArray[np.float32]
    ) -> tuple[NamedDecision, Fault | None]:
        """What the default controller wants; it is asked at every tick, so that it is warm."""
        answer = self._default.ask(sample, observation, self._slots)
        if isinstance(answer, NamedDecision):
            return answer, None
        decision = Decision(desired=RELEASED, reason="no controller")
        released = NamedDecision(controller="released", decision=decision)
        return released, Fault(controller=self._default.name, cause=answer)

    def _watch(
        self,
        sample: Sample,
        observation: NDArray[np.float32],
        remote: DesiredState | None,
    ) -> tuple[NamedDecision | None, Fault | None]:
        """The decision of a policy that is only watched, or what is wrong with it."""
        policy = self._policy
        # While a lease is held an active policy is watched too, so that it takes over warm.
        watched = self._mode is Mode.SHADOW or (self._mode is Mode.ACTIVE and remote is not None)
        if policy is None or not watched:
            return None, None
        answer = policy.ask(sample, observation, self._slots)
        if isinstance(answer, NamedDecision):
            return answer, None
        return None, Fault(controller=policy.name, cause=answer)

    def _count(self, fault: Fault | None, stepped_aside: tuple[str, ...]) -> None:
        self._ticks += 1
        self._stepped_aside += len(stepped_aside)
        if fault is not None:
            self._fallbacks[fault.kind.name.lower()] += 1


def _held(remote: DesiredState) -> NamedDecision:
    decision = Decision(desired=remote, reason="lease held")
    return NamedDecision(controller=REMOTE, decision=decision, leased=True)
