"""Observing a sample and asking one controller, whatever they hold or answer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.engine.fallback import Fault, Finding
from stallward.actuator.guard.expressible import NOT_FINITE, unusable
from stallward.actuator.record.tick_record import NamedDecision
from stallward.agent.controller import Controller
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

    def observe(self, sample: Sample) -> tuple[NDArray[np.float32], Finding | None]:
        """The observation, always finite, and why it is not this sample's, if it is not."""
        if not math.isfinite(sample.time_s):
            return self._last, Finding(Fault.INVALID, f"its time is {sample.time_s}")
        try:
            found = self._encoder.encode(to_raw(sample))
        except Exception as error:  # slots without a state, a value that is no number
            return self._last, Finding(Fault.INVALID, said(error))
        finite = np.isfinite(found)
        if not finite.all():
            # What the averages have taken in stays in them.
            self._encoder = ObservationEncoder(self._slo_ms)
            name = OBSERVATION_NAMES[int(np.argmin(finite))]
            return self._last, Finding(Fault.OBSERVATION, name)
        self._last = found
        return found, None


def ask(
    controller: Controller, sample: Sample, observation: NDArray[np.float32], slots: int
) -> NamedDecision | Finding:
    """The decision of ``controller``, or why it cannot be used.

    Args:
        controller: Anything; it may raise, and return what is no decision.
        sample: This tick's.
        observation: Of this tick.
        slots: How many slots the node has.
    """
    try:
        decision = controller.decide(sample, observation)
        problem = unusable(decision, slots)
        outside = "" if problem else _outside(controller, decision.score)
    except Exception as error:  # whatever a policy raises, the loop goes on
        return Finding(Fault.RAISED, said(error))
    if problem:
        kind = Fault.NOT_FINITE if NOT_FINITE in problem else Fault.UNUSABLE
        return Finding(kind, plain(problem))
    if outside:
        return Finding(Fault.OUT_OF_RANGE, outside)
    reason = plain(decision.reason)
    if reason != decision.reason:
        decision = replace(decision, reason=reason)
    return NamedDecision(controller=plain(controller.name), decision=decision)


def _outside(controller: Any, score: float | None) -> str:
    """Why an observation is outside the training range of a policy that knows its own."""
    limit = getattr(getattr(controller, "metadata", None), "ood_limit", None)
    if limit is None:
        return ""
    if score is None or not math.isfinite(limit):
        return f"score {score}, limit {limit}: it cannot be told"
    return "" if score <= limit else f"score {score:.3f} above {limit:g}"


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
