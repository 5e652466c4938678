"""The engine: the part of a tick that decides. It checks, observes, decides and guards.

The loop, an environment that steps a real node and the replay of a recording all run it. It does
no I/O: its inputs come with each step. Its state is in frozen values (:class:`GuardMemory`,
:class:`Trust`, :class:`SampleMemory`), in the encoder's history and in the controllers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.engine.ask_controller import (
    REMOTE,
    Decider,
    Observer,
    ask_default,
    ask_watched,
    leased_decision,
    record_text,
    unfit_decision,
)
from stallward.actuator.engine.fallback import Trust
from stallward.actuator.engine.interface import EngineCounts, EngineSettings, TickOutcome
from stallward.actuator.engine.sample_check import SampleMemory, check_sample
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.guard import GuardMemory
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
from stallward.agent.controller import Controller, Need, RetargetableController, check_node
from stallward.agent.desired import DesiredState
from stallward.agent.sample import Sample


class Engine:
    """Checks, observes, decides and guards, tick by tick.

    Args:
        settings: The node and the guard's budgets.
        configured: The configured controller, which decides while no policy is active.
        default: The default controller, which decides when a sample or a decision cannot be
            used. It must not be the same object as ``configured``.
        clock_s: Measures how long deciding takes.

    Raises:
        ControllerError: If a controller cannot run on this node.
    """

    def __init__(
        self,
        *,
        settings: EngineSettings,
        configured: Controller,
        default: Controller,
        clock_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        context = settings.context
        self._settings = settings
        self._slots = len(context.slot_names)
        self.guard = settings.make_guard()
        self._clock_s = clock_s
        self._observer = Observer(context.slo_ms, context.demand_bytes)
        self._configured, self._default = Decider.of(configured), Decider.of(default)
        self._policy: Decider | None = None
        self._mode = Mode.OFF
        self._memory = GuardMemory()
        self._trust = Trust()
        self._sample_memory = SampleMemory()
        self._fallbacks: Counter[str] = Counter()
        self._ticks = self._stepped_aside = 0
        for controller in (configured, default):
            check_node(controller, context)
            controller.reset(context)

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
        return self._configured

    def invalid(self, desired: DesiredState) -> Problem | None:
        """Return why ``desired`` cannot be expressed on this node; ``None`` if it can."""
        return self.guard.invalid(desired)

    @property
    def memory(self) -> GuardMemory:
        """The state that the guard keeps between ticks."""
        return self._memory

    @property
    def counts(self) -> EngineCounts:
        """The counts of ticks and of events so far."""
        return EngineCounts(
            ticks=self._ticks,
            fallbacks=dict(self._fallbacks),
            stepped_aside=self._stepped_aside,
        )

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """The controllers that decide or may have to, whose needs samples must meet."""
        deciders = (self._configured, self._default, self._policy)
        return tuple(one.controller for one in deciders if one is not None)

    def install(self, policy: Controller) -> None:
        """Replace the loaded policy; the new one starts in ``Mode.OFF``.

        Raises:
            ControllerError: If it cannot run on this node; the one before stays.
        """
        check_node(policy, self._settings.context)
        self.set_mode(Mode.OFF)
        self._policy = Decider.of(policy)
        self._trust = Trust()

    def set_mode(self, mode: Mode) -> None:
        """Set what the loaded policy may do; without a policy the mode stays ``Mode.OFF``."""
        policy = self._policy
        if policy is None or mode is self._mode:
            return
        context = self._settings.context
        if self._mode is Mode.OFF:
            policy.controller.reset(context)  # it has not seen the last samples
        if self._mode is Mode.ACTIVE:
            self._configured.controller.reset(context)
        self._mode = mode

    def reconfigure(self, *, slo_ms: float, budgets: Budgets, lacks: Mapping[Need, str]) -> None:
        """Go on with another latency target and other budgets; what is held stays so.

        Args:
            slo_ms: The target. A controller that cannot go on with another one is reset.
            budgets: The guard's budgets.
            lacks: What the node then lacks, each with the reason, for controllers loaded later.
        """
        before = self._settings
        context = replace(before.context, slo_ms=slo_ms, lacks=lacks)
        self._settings = replace(before, context=context, budgets=budgets)
        self.guard = self._settings.make_guard()
        if slo_ms == before.context.slo_ms:
            return
        self._observer.retarget(slo_ms)
        for controller in self.controllers:
            if isinstance(controller, RetargetableController):
                controller.retarget(slo_ms)
            else:
                controller.reset(context)

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
            sample: The sample of this tick.
            remote: The desired state of a client that holds a lease; it goes before any
                controller.
            late: Whether the decision counts as late; ``None`` measures it.
            circumstances: How old the sample is and when the next tick is due.
        """
        circumstances = circumstances or Circumstances()
        start_s = self._clock_s()
        cause = self._check(sample, circumstances)
        usable = cause is None
        observation, not_observed = self._observer.observe(sample)
        cause = cause or not_observed
        observed_s = self._clock_s()
        controller = REMOTE if remote is not None else self.in_force.name
        candidate: NamedDecision | None = None
        if cause is None:
            candidate, cause = self._candidate(sample, observation, remote, late)
        cause = self._update_trust(controller, cause)
        name = record_text(controller)
        fault = None if cause is None else Fault(controller=name, cause=cause)
        default, default_fault = ask_default(self._default, sample, observation, self._slots)
        followed = default if fault is not None or candidate is None else candidate
        # An active policy is asked while a lease is held, too: its history is then complete.
        watched = self._mode in {Mode.SHADOW, Mode.ADVICE} or (
            self._mode is Mode.ACTIVE and remote is not None
        )
        shadow, shadow_fault = (
            ask_watched(self._policy, sample, observation, self._slots)
            if usable and watched
            else (None, None)
        )
        if remote is not None and followed is default and self.guard.invalid(remote) is None:
            shadow = leased_decision(remote)
        decided_s = self._clock_s()
        verdict = self.guard.review(
            followed.decision.desired,
            sample,
            self._memory,
            horizon_s=circumstances.horizon_s,
        )
        self._memory = verdict.memory
        self._count(fault, verdict.stepped_aside)
        return TickOutcome(
            observation=observation,
            decision=followed,
            granted=verdict.granted,
            reasons=Reasons(
                fault=fault,
                default_fault=default_fault,
                watched_fault=shadow_fault,
                changes=verdict.changes,
                changes_left_out=verdict.changes_left_out,
            ),
            mode=self._mode,
            circumstances=circumstances,
            stepped_aside=verdict.stepped_aside,
            shadow=shadow,
            observe_ms=(observed_s - start_s) * 1e3,
            decide_ms=(decided_s - observed_s) * 1e3,
            guard_ms=(self._clock_s() - decided_s) * 1e3,
        )

    def _check(self, sample: Sample, circumstances: Circumstances) -> Cause | None:
        """Return the cause for which the sample cannot be used; ``None`` if it can."""
        cause, self._sample_memory = check_sample(
            sample,
            self._sample_memory,
            slots=self._slots,
            age_s=circumstances.sample_age_s,
            stale_s=self._settings.budgets.stale_s,
        )
        if circumstances.blind_ticks:
            # Everything was released then, so limits that were granted before are not in force.
            self._memory = replace(self._memory, limits=())
            return NoSample(ticks=circumstances.blind_ticks)
        return cause

    def _candidate(
        self,
        sample: Sample,
        observation: NDArray[np.float32],
        remote: DesiredState | None,
        late: bool | None,
    ) -> tuple[NamedDecision | None, Cause | None]:
        """Return the decision of the client or controller in force, or what is wrong with it."""
        if remote is not None:
            problem = self.guard.invalid(remote)
            if problem is not None:
                return None, unfit_decision(problem)
            return leased_decision(remote), None
        begin_s = self._clock_s()
        answer = self._decider.ask(sample, observation, self._slots)
        took_s, limit_s = self._clock_s() - begin_s, self._settings.late_s
        if not isinstance(answer, NamedDecision):
            return None, answer
        if late if late is not None else took_s > limit_s:
            return None, DecisionLate(took_s=took_s, limit_s=limit_s)
        return answer, None

    def _update_trust(self, controller: str, cause: Cause | None) -> Cause | None:
        """Update the trust; return the cause why the default controller decides, if it does."""
        kind = None if cause is None else cause.kind
        wait_ticks = self._settings.budgets.return_after_ticks
        self._trust = trust = self._trust.after(controller, kind, wait_ticks)
        if cause is None and not trust.followed:
            return Waiting(good_ticks=trust.good_ticks, needed_ticks=trust.wait_ticks)
        return cause

    def _count(self, fault: Fault | None, stepped_aside: tuple[str, ...]) -> None:
        self._ticks += 1
        self._stepped_aside += len(stepped_aside)
        if fault is not None:
            self._fallbacks[fault.kind.name.lower()] += 1
