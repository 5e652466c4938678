"""The engine: the part of a tick that decides. It checks, observes, decides and guards.

The loop, an environment that steps a real node and the replay of a recording all run it. It does
no I/O: its inputs come with each step. Its state is in frozen values (:class:`GuardMemory`,
:class:`Trust`, :class:`SampleMemory`), in the encoder's history and in the controllers.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.engine.interface import EngineCounts, EngineSettings, TickOutcome
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.expressible import unusable
from stallward.actuator.guard.guard import GuardMemory
from stallward.actuator.guard.problem import Problem
from stallward.actuator.record.reasons import (
    Cause,
    ControllerRaised,
    DecisionLate,
    DecisionUnfit,
    Fault,
    FaultKind,
    FeatureNotFinite,
    NoSample,
    NotObservable,
    OutsideTraining,
    Reasons,
    SampleTooOld,
    SignalLost,
    TimeNotFinite,
    TimeStoodStill,
    TotalWentBack,
    Waiting,
    WrongSlots,
)
from stallward.actuator.record.tick_record import Circumstances, Mode, NamedDecision
from stallward.agent.applications import Shares, without_shares
from stallward.agent.controller import (
    Controller,
    Decision,
    Need,
    PolicyController,
    RetargetableController,
    check_node,
)
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.observation.encoder import (
    OBSERVATION_NAMES,
    OBSERVATION_SIZE,
    ObservationEncoder,
)
from stallward.agent.observation.raw import to_raw
from stallward.agent.sample import Sample

# ---------- Makes an observation of a sample and asks a controller; no sample or answer can break it

REMOTE: Final = "remote"
"""The name under which the decisions of a client are recorded."""
_MAX_TEXT_CHARS: Final = 300


class Observer:
    """Turns samples into observations; where that fails, the last observation stays.

    Args:
        slo_ms: The latency target.
        demand_bytes: The memory that the application is known to need.
    """

    def __init__(self, slo_ms: float, demand_bytes: float) -> None:
        self._slo_ms = slo_ms
        self._demand_bytes = demand_bytes
        self._encoder = ObservationEncoder(slo_ms, demand_bytes)
        self._last = np.zeros(OBSERVATION_SIZE, dtype=np.float32)

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target."""
        self._slo_ms = slo_ms
        self._encoder.retarget(slo_ms)

    def observe(self, sample: Sample) -> tuple[NDArray[np.float32], Cause | None]:
        """Return a finite observation and, if it is the last one instead of a new one, why."""
        if not math.isfinite(sample.time_s):
            return self._last, TimeNotFinite(time_s=sample.time_s)
        try:
            observation = self._encoder.encode(to_raw(sample))
        except Exception as error:  # e.g. a slot without a state, a value that is no number
            return self._last, NotObservable(error=error_text(error))
        finite = np.isfinite(observation)
        if not finite.all():
            # The averages keep every value that they have taken in, so they start anew.
            self._encoder = ObservationEncoder(self._slo_ms, self._demand_bytes)
            name = OBSERVATION_NAMES[int(np.argmin(finite))]
            return self._last, FeatureNotFinite(feature=name)
        self._last = observation
        return observation, None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """A controller and the limit of its OOD score."""

    controller: Controller
    ood_limit: float | None
    """The largest OOD score at which it is followed; ``None`` for a controller without scores."""

    @classmethod
    def of(cls, controller: Controller) -> Self:
        """Make the decider that asks ``controller``."""
        limit = controller.ood_limit if isinstance(controller, PolicyController) else None
        return cls(controller=controller, ood_limit=limit)

    @property
    def name(self) -> str:
        """The name of the controller, made fit for a record."""
        return record_text(self.controller.name)

    def ask(
        self, sample: Sample, observation: NDArray[np.float32], slots: int
    ) -> NamedDecision | Cause:
        """Return the decision of the controller, or the cause for which it cannot be used.

        Args:
            sample: The sample of this tick.
            observation: The observation of this tick.
            slots: How many slots the node has.
        """
        controller = self.controller  # any code: it may raise, and return anything
        try:
            decision = controller.decide(sample, observation)
            problem = unusable(decision, slots)
            outside = None if problem is not None else self._outside_training(decision.score)
        except Exception as error:  # whatever a policy raises, the loop goes on
            return ControllerRaised(error=error_text(error))
        if problem is not None:
            return unfit_decision(problem)
        if outside is not None:
            return outside
        reason = record_text(decision.reason)
        if reason != decision.reason:
            decision = replace(decision, reason=reason)
        return NamedDecision(controller=self.name, decision=decision)

    def _outside_training(self, score: float | None) -> OutsideTraining | None:
        """Return a cause unless the observation is known to be within the training range."""
        limit = self.ood_limit
        if limit is None:
            return None
        if score is not None and math.isfinite(limit) and score <= limit:
            return None
        return OutsideTraining(score=score, limit=limit)


def unfit_decision(problem: Problem) -> DecisionUnfit:
    """Make the cause of a fault from ``problem``, with its value made fit for a record."""
    return DecisionUnfit(problem=replace(problem, value=record_text(problem.value)))


def error_text(error: Exception) -> str:
    """Return the message of an exception, made fit for a record."""
    try:
        text = str(error)
    except Exception:  # making the message may raise, too
        text = ""
    return record_text(text or type(error).__name__)


def record_text(text: str) -> str:
    """Make ``text`` fit for a record: of limited length, and without lone surrogates."""
    return text[:_MAX_TEXT_CHARS].encode("utf-8", "replace").decode()


def leased_decision(remote: DesiredState) -> NamedDecision:
    """The decision of a client that holds a lease."""
    decision = Decision(desired=remote, reason="lease held")
    return NamedDecision(controller=REMOTE, decision=decision, leased=True)


def ask_default(
    default: Decider, sample: Sample, observation: NDArray[np.float32], slots: int
) -> tuple[NamedDecision, Fault | None]:
    """Ask the default controller, at every tick, so that its state is up to date.

    Returns:
        Its decision, or one that releases everything, and why.
    """
    answer = default.ask(sample, observation, slots)
    if isinstance(answer, NamedDecision):
        return answer, None
    decision = Decision(desired=RELEASED, reason="no controller")
    released = NamedDecision(controller="released", decision=decision)
    return released, Fault(controller=default.name, cause=answer)


def ask_watched(
    policy: Decider | None, sample: Sample, observation: NDArray[np.float32], slots: int
) -> tuple[NamedDecision | None, Fault | None]:
    """Ask a policy that is not followed now; returns its decision, or why there is none."""
    if policy is None:
        return None, None
    answer = policy.ask(sample, observation, slots)
    if isinstance(answer, NamedDecision):
        return answer, None
    return None, Fault(controller=policy.name, cause=answer)


# ---------- When the default controller takes over, and when it hands back.
# After a fault the controller is not followed any more. It is still asked at every tick, and is
# followed again after a number of good ticks in a row. The number doubles when the controller fails
# again soon, so that the node does not flap between two controllers.
#
# A late decision is the exception. Under memory pressure, which is when a controller is needed, any
# decision may lose 50 ms to a page fault or to the scheduler; that says nothing about the next one.
# So one late decision costs its own tick only, and the controller is dropped when several are late.

STEADY_TICKS: Final = 100
"""A controller that was followed for this many good ticks starts again with the shortest wait."""
MAX_DOUBLINGS: Final = 3
"""The longest wait is 2 ** 3 times the shortest: four seconds at the full rate."""

LATE_WINDOW_TICKS: Final = 10
LATE_TICKS: Final = 3
"""How many late decisions within the window make a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whether a controller is followed, and what that depends on."""

    controller: str = ""
    """The name of the controller, or of the client, that decides."""
    followed: bool = True
    good_ticks: int = 0
    """Good ticks in a row: since it returned or, while not followed, since its last fault."""
    wait_ticks: int = 0
    """How many good ticks in a row it needs, or needed last, to be followed again."""
    late: tuple[bool, ...] = ()
    """Whether each of the last decisions was late, oldest first; empty while not followed."""

    def after(self, controller: str, fault: FaultKind | None, return_after_ticks: int) -> Trust:
        """Return the trust after one more tick.

        Args:
            controller: The controller of this tick; another than before starts trusted.
            fault: What was wrong at this tick; ``None`` if nothing was.
            return_after_ticks: How many good ticks in a row are needed after a first fault.
        """
        if controller != self.controller:
            new = Trust(controller=controller)
            return new.after(controller, fault, return_after_ticks)
        late: tuple[bool, ...] = ()
        if self.followed:
            late = (*self.late, fault is FaultKind.LATE)[-LATE_WINDOW_TICKS:]
            if fault is FaultKind.LATE and sum(late) < LATE_TICKS:
                return replace(self, late=late)
        trust = self._after_tick(good=fault is None, return_after_ticks=return_after_ticks)
        return replace(trust, late=late if trust.followed else ())

    def _after_tick(self, *, good: bool, return_after_ticks: int) -> Trust:
        if good and (self.followed or self.good_ticks < self.wait_ticks):
            return replace(self, good_ticks=self.good_ticks + 1)
        if good:
            return replace(self, followed=True, good_ticks=1)
        if not self.followed:
            return replace(self, good_ticks=0)
        wait_ticks = return_after_ticks
        if self.wait_ticks and self.good_ticks < STEADY_TICKS:
            wait_ticks = min(2 * self.wait_ticks, return_after_ticks << MAX_DOUBLINGS)
        return replace(self, followed=False, good_ticks=0, wait_ticks=wait_ticks)


# ---------- Checks whether a sample can be used for a decision.
# A sample is not used when its time did not advance or is too old, when it does not have the node's
# slots, when it lacks an essential signal that earlier samples had, or when an essential total is
# smaller than before (its group was made anew, so that no rate can be computed).

ESSENTIAL: Final = (
    "protected memory pressure",
    "protected memory use",
    "zone memory pressure",
    "zone memory use",
    "request latency",
)
"""The signals that show how the protected application does. A node need not have all of them, but
one that was there must stay. The totals among them (the pressures) must not get smaller."""
_PROTECTED: Final = (0, 1, 4)
"""The indices of those that are of the protected application alone."""
_TOTALS: Final = (0, 2)
"""The indices of the totals in :data:`ESSENTIAL`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMemory:
    """What the check remembers of earlier samples."""

    time_s: float = -math.inf
    """The time of the last sample."""
    seen: tuple[bool, ...] = (False,) * len(ESSENTIAL)
    """Whether each essential signal was ever there."""
    totals_us: tuple[int | None, ...] = (None,) * len(_TOTALS)
    """The totals of the last sample."""
    protected: str = ""
    """The protected application's group in the last sample."""
    answering: frozenset[str] = frozenset()
    """The groups of those of several applications whose latencies were ever there."""


def check_sample(
    sample: Sample, memory: SampleMemory, *, slots: int, age_s: float, stale_s: float
) -> tuple[Cause | None, SampleMemory]:
    """Return why ``sample`` cannot be used (``None`` if it can), and what to remember of it.

    Args:
        sample: The sample of this tick.
        memory: What the last check returned.
        slots: How many slots the node has.
        age_s: How old the sample is now.
        stale_s: How old it may be.
    """
    malformed = _malformed(sample, slots)
    if malformed is not None:
        return malformed, memory
    if not sample.time_s > memory.time_s:
        return TimeStoodStill(), memory
    if sample.protected.name != memory.protected:  # it is another pod now, or none
        memory = replace(
            memory,
            seen=tuple(s and i not in _PROTECTED for i, s in enumerate(memory.seen)),
            totals_us=(None, memory.totals_us[1]),
        )
    values = _essential(sample)
    present = tuple(value is not None for value in values)
    totals = tuple(values[i] for i in _TOTALS)
    seen = tuple(map(max, memory.seen, present))
    applications = {one.group.name: one.latency for one in sample.applications if one.group.runs}
    silent = {name for name, latency in applications.items() if latency is None}
    answering = (memory.answering & applications.keys()) | (applications.keys() - silent)
    after = SampleMemory(
        time_s=sample.time_s,
        seen=seen,
        totals_us=totals,
        protected=sample.protected.name,
        answering=answering,
    )
    if not age_s <= stale_s:
        return SampleTooOld(age_s=age_s, limit_s=stale_s), after
    if silent & answering:
        return SignalLost(signal=ESSENTIAL[-1]), after
    return _lost(present, memory) or _went_back(totals, memory), after


def _malformed(sample: Sample, slots: int) -> Cause | None:
    """Return the cause for which nothing in the sample can be used, if there is one."""
    if not len(sample.slots) == len(sample.slot_states) == slots:
        return WrongSlots(slots=len(sample.slots), states=len(sample.slot_states), expected=slots)
    return None if math.isfinite(sample.time_s) else TimeNotFinite(time_s=sample.time_s)


def _lost(present: tuple[bool, ...], memory: SampleMemory) -> Cause | None:
    for name, was_present, is_present in zip(ESSENTIAL, memory.seen, present, strict=True):
        if was_present and not is_present:
            return SignalLost(signal=name)
    return None


def _went_back(totals: tuple[int | None, ...], memory: SampleMemory) -> Cause | None:
    for index, now, before in zip(_TOTALS, totals, memory.totals_us, strict=True):
        if now is not None and before is not None and now < before:
            return TotalWentBack(signal=ESSENTIAL[index])
    return None


def _essential(sample: Sample) -> tuple[int | None, ...]:
    protected, zone = sample.protected, sample.zone
    return (
        protected.psi.memory_some_us,
        protected.memory_usage_bytes,
        zone.psi.memory_some_us,
        zone.memory_usage_bytes,
        None if sample.latency is None else sample.latency.completed_total,
    )


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
        self._shares = Shares()
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

    def reconfigure(
        self, *, slo_ms: float, budgets: Budgets, lacks: Mapping[Need, str], retarget: bool
    ) -> None:
        """Go on with another latency target and other budgets; what is held stays so.

        Args:
            slo_ms: The target.
            budgets: The guard's budgets.
            lacks: What the node then lacks, each with the reason, for controllers loaded later.
            retarget: Whether a target has changed: this one, or that of one of several
                applications. A controller that cannot go on with another one is reset.
        """
        before = self._settings
        context = replace(before.context, slo_ms=slo_ms, lacks=lacks)
        self._settings = replace(before, context=context, budgets=budgets)
        self.guard = self._settings.make_guard()
        if not retarget:
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
            granted=self._divided(sample, verdict.granted),
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

    def _divided(self, sample: Sample, granted: DesiredState) -> DesiredState:
        """Return a granted state with the part of each of several applications."""
        try:
            return self._shares.divide(sample, granted)
        except Exception:  # a sample may hold anything: what cannot be divided is not guaranteed
            self._shares = Shares()
            return without_shares(sample, granted)

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
            # Everything was released then, so what was granted before is not in force.
            learned = tuple(limit.learned for limit in self._memory.limits)
            holds = replace(self._memory.holds, held=False, limits=False)
            self._memory = replace(self._memory, limits=learned, holds=holds)
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
