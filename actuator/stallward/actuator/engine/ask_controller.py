"""Makes an observation of a sample and asks a controller; no sample or answer can break it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard.expressible import unusable
from stallward.actuator.guard.problem import Problem
from stallward.actuator.record.reasons import (
    Cause,
    ControllerRaised,
    DecisionUnfit,
    Fault,
    FeatureNotFinite,
    NotObservable,
    OutsideTraining,
    TimeNotFinite,
)
from stallward.actuator.record.tick_record import NamedDecision
from stallward.agent.controller import Controller, Decision, PolicyController
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.observation.encoder import (
    OBSERVATION_NAMES,
    OBSERVATION_SIZE,
    ObservationEncoder,
)
from stallward.agent.observation.raw import to_raw
from stallward.agent.sample import Sample

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
