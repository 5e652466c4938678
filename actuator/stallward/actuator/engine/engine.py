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

from stallward.actuator.engine.ask_controller import Observer, ask, plain
from stallward.actuator.engine.fallback import FALLBACK_NOTE, Fault, Finding, Trust
from stallward.actuator.engine.interface import EngineCounts, EngineSettings, TickOutcome
from stallward.actuator.engine.sample_check import SampleMemory, check_sample
from stallward.actuator.guard.guard import Guard, GuardMemory
from stallward.actuator.record.tick_record import Circumstances, Mode, NamedDecision
from stallward.agent.controller import Controller, Decision
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.sample import Sample

__all__ = ["LATE_NOTE", "LEASE_REASON", "REMOTE", "Engine", "EngineSettings", "TickOutcome"]

REMOTE: Final = "remote"
LEASE_REASON: Final = "lease held"
LATE_NOTE: Final = f"{FALLBACK_NOTE}{Fault.LATE.value}"
"""How the note of a late decision starts; the replay reads it, since time does not repeat."""


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
        self._rule, self._default = rule, default
        self._policy: Controller | None = None
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
        return self._policy

    @property
    def in_force(self) -> Controller:
        """The controller that decides while no lease is held."""
        if self._mode is Mode.ACTIVE and self._policy is not None:
            return self._policy
        return self._rule

    def invalid(self, desired: DesiredState) -> str:
        """Why ``desired`` cannot be expressed on this node; empty if it can."""
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
        policy = self._policy
        asked = self._rule.needs_processes or self._default.needs_processes
        return asked or (policy is not None and policy.needs_processes)

    def install(self, policy: Controller) -> None:
        """Replace the loaded policy; the new one starts off."""
        self.set_mode(Mode.OFF)
        self._policy = policy
        self._trust = Trust()

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
        finding = self._check(sample, about)
        usable = finding is None
        observation, unseen = self._observer.observe(sample)
        finding = finding or unseen
        observed_s = self._clock_s()
        who = REMOTE if remote is not None else self.in_force.name
        candidate: NamedDecision | None = None
        if finding is None:
            candidate, finding = self._candidate(sample, observation, remote, late)
        finding = self._judge(who, finding)
        notes: list[str] = [] if finding is None else [finding.note(plain(who))]
        default = self._ask_default(sample, observation, notes)
        named = default if finding is not None or candidate is None else candidate
        shadow = self._watch(sample, observation, remote, notes) if usable else None
        if remote is not None and named is default and not self.guard.invalid(remote):
            shadow = _held(remote)
        decided_s = self._clock_s()
        verdict = self.guard.review(
            named.decision.desired, sample, self._memory, horizon_s=about.horizon_s
        )
        self._memory = verdict.memory
        self._count(finding, verdict.stepped_aside)
        guarded_s = self._clock_s()
        return TickOutcome(
            observation=observation,
            decision=named,
            granted=verdict.granted,
            notes=(*notes, *verdict.notes),
            fallback=finding is not None,
            mode=self._mode,
            circumstances=about,
            fault=None if finding is None else finding.fault,
            stepped_aside=verdict.stepped_aside,
            shadow=shadow,
            observe_ms=(observed_s - start_s) * 1e3,
            decide_ms=(decided_s - observed_s) * 1e3,
            guard_ms=(guarded_s - decided_s) * 1e3,
        )

    def _check(self, sample: Sample, about: Circumstances) -> Finding | None:
        finding, self._seen = check_sample(
            sample,
            self._seen,
            slots=self._slots,
            age_s=about.sample_age_s,
            stale_s=self._settings.budgets.stale_s,
        )
        if about.blind_ticks:
            # Everything was released then: what was granted before is not in force any more.
            self._memory = replace(self._memory, limits=())
            return Finding(Fault.INVALID, f"none could be read for {about.blind_ticks} ticks")
        return finding

    def _candidate(
        self,
        sample: Sample,
        observation: NDArray[np.float32],
        remote: DesiredState | None,
        late: bool | None,
    ) -> tuple[NamedDecision | None, Finding | None]:
        """The decision of whoever is to decide, or what is wrong with it."""
        if remote is not None:
            problem = self.guard.invalid(remote)
            if problem:
                return None, Finding(Fault.UNUSABLE, plain(problem))
            return _held(remote), None
        begin_s = self._clock_s()
        answer = ask(self.in_force, sample, observation, self._slots)
        took_s = self._clock_s() - begin_s
        if isinstance(answer, Finding):
            return None, answer
        if late if late is not None else took_s > self._settings.late_s:
            return None, Finding(Fault.LATE, f"{took_s * 1e3:.0f} ms")
        return answer, None

    def _judge(self, who: str, finding: Finding | None) -> Finding | None:
        """The fault for which the default controller decides, if any."""
        base = self._settings.budgets.return_after_ticks
        fault = None if finding is None else finding.fault
        self._trust = self._trust.after(who, fault, base)
        if finding is None and not self._trust.followed:
            done, needed = self._trust.good_ticks, self._trust.wait_ticks
            return Finding(Fault.WAITING, f"{done} of {needed} good ticks since its last fault")
        return finding

    def _ask_default(
        self, sample: Sample, observation: NDArray[np.float32], notes: list[str]
    ) -> NamedDecision:
        """What the default controller wants; it is asked at every tick, so that it is warm."""
        answer = ask(self._default, sample, observation, self._slots)
        if isinstance(answer, NamedDecision):
            return answer
        notes.append(f"default {plain(self._default.name)}: {answer.detail}")
        decision = Decision(desired=RELEASED, reason="no controller")
        return NamedDecision(controller="released", decision=decision)

    def _watch(
        self,
        sample: Sample,
        observation: NDArray[np.float32],
        remote: DesiredState | None,
        notes: list[str],
    ) -> NamedDecision | None:
        """The decision of a policy that is only watched."""
        policy = self._policy
        # While a lease is held an active policy is watched too, so that it takes over warm.
        watched = self._mode is Mode.SHADOW or (self._mode is Mode.ACTIVE and remote is not None)
        if policy is None or not watched:
            return None
        answer = ask(policy, sample, observation, self._slots)
        if isinstance(answer, NamedDecision):
            return answer
        notes.append(f"watched {plain(policy.name)}: {answer.detail}")
        return None

    def _count(self, finding: Finding | None, stepped_aside: tuple[str, ...]) -> None:
        self._ticks += 1
        self._stepped_aside += len(stepped_aside)
        if finding is not None:
            self._fallbacks[finding.fault.name.lower()] += 1


def _held(remote: DesiredState) -> NamedDecision:
    return NamedDecision(controller=REMOTE, decision=Decision(desired=remote, reason=LEASE_REASON))
