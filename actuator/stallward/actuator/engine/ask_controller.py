"""Observing a sample and asking one controller, whatever they hold or answer."""

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
    FeatureNotFinite,
    NotObservable,
    OutsideTraining,
    TimeNotFinite,
)
from stallward.actuator.record.tick_record import NamedDecision
from stallward.agent.controller import Controller, PolicyController
from stallward.agent.observation.encoder import (
    OBSERVATION_NAMES,
    OBSERVATION_SIZE,
    ObservationEncoder,
)
from stallward.agent.observation.raw import to_raw
from stallward.agent.sample import Sample

_LONGEST_NOTE: Final = 300


class Observer:
    """Turns samples into observations; a sample that has none leaves the last one.

    Args:
        slo_ms: The latency target.
    """

    def __init__(self, slo_ms: float) -> None:
        self._slo_ms = slo_ms
        self._encoder = ObservationEncoder(slo_ms)
        self._last = np.zeros(OBSERVATION_SIZE, dtype=np.float32)

    def observe(self, sample: Sample) -> tuple[NDArray[np.float32], Cause | None]:
        """The observation, always finite, and why it is not this sample's, if it is not."""
        if not math.isfinite(sample.time_s):
            return self._last, TimeNotFinite(time_s=sample.time_s)
        try:
            found = self._encoder.encode(to_raw(sample))
        except Exception as error:  # slots without a state, a value that is no number
            return self._last, NotObservable(error=said(error))
        finite = np.isfinite(found)
        if not finite.all():
            # What the averages have taken in stays in them.
            self._encoder = ObservationEncoder(self._slo_ms)
            name = OBSERVATION_NAMES[int(np.argmin(finite))]
            return self._last, FeatureNotFinite(feature=name)
        self._last = found
        return found, None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """A controller, and how far outside its training data it is followed."""

    controller: Controller
    ood_limit: float | None
    """The largest score of an observation; ``None`` for controllers that have none."""

    @classmethod
    def of(cls, controller: Controller) -> Self:
        """The decider that runs ``controller``."""
        limit = controller.ood_limit if isinstance(controller, PolicyController) else None
        return cls(controller=controller, ood_limit=limit)

    @property
    def name(self) -> str:
        """The name of the controller, fit for a record."""
        return plain(self.controller.name)

    def ask(
        self, sample: Sample, observation: NDArray[np.float32], slots: int
    ) -> NamedDecision | Cause:
        """The decision of the controller, or why it cannot be used.

        Args:
            sample: This tick's.
            observation: Of this tick.
            slots: How many slots the node has.
        """
        controller = self.controller  # anything: it may raise, and return what is no decision
        try:
            decision = controller.decide(sample, observation)
            problem = unusable(decision, slots)
            outside = None if problem is not None else self._outside(decision.score)
        except Exception as error:  # whatever a policy raises, the loop goes on
            return ControllerRaised(error=said(error))
        if problem is not None:
            return unfit(problem)
        if outside is not None:
            return outside
        reason = plain(decision.reason)
        if reason != decision.reason:
            decision = replace(decision, reason=reason)
        return NamedDecision(controller=self.name, decision=decision)

    def _outside(self, score: float | None) -> OutsideTraining | None:
        """Whether an observation is outside the training range, or cannot be told to be in it."""
        limit = self.ood_limit
        if limit is None:
            return None
        if score is not None and math.isfinite(limit) and score <= limit:
            return None
        return OutsideTraining(score=score, limit=limit)


def unfit(problem: Problem) -> DecisionUnfit:
    """The cause of a fault; what was found is made fit for a record."""
    return DecisionUnfit(problem=replace(problem, value=plain(problem.value)))


def said(error: Exception) -> str:
    """What an exception says, fit for a record."""
    try:
        text = str(error)
    except Exception:  # a message that fails is the controller's fault as well
        text = ""
    return plain(text or type(error).__name__)


def plain(text: str) -> str:
    """Text that the wire takes: no lone surrogates, and not endless."""
    return text[:_LONGEST_NOTE].encode("utf-8", "replace").decode()
