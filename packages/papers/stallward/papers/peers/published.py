"""What the published rules have in common: their entries, and a clock for a slower period."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import make_thresholds, spans, tuned
from stallward.agent.controller import Controller, Decision, Need, NodeContext, require_needs
from stallward.agent.plugin import ControllerEntry, number
from stallward.agent.sample import Sample

N = TypeVar("N")
_ROUNDING_S = 1e-6


def kill_switch() -> Any:
    """Make the field of a dataclass of numbers that turns the killing of a daemon off."""
    return tuned(1, "whether it kills; with 0 it only says whom it would kill", 0, 1, whole=True)


def kill_needs(kill: float) -> tuple[Need, ...]:
    """What a daemon that kills whole groups needs for it, unless its killing is turned off."""
    return (Need.TERMINATE,) if kill else ()


class PublishedController(ABC, Generic[N]):
    """Base of the rules that a comparison runs as they were published.

    Args:
        numbers: The numbers of the source.
    """

    name: str
    needs_processes = False

    def __init__(self, numbers: N) -> None:
        self._numbers = numbers
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    @abstractmethod
    def _needs(self) -> tuple[Need, ...]:
        """What it decides by and acts with."""

    def check(self, context: NodeContext) -> None:
        """Check that the node has what it decides by and acts with."""
        require_needs(self.name, self._needs(), context)

    def reset(self, context: NodeContext) -> None:
        """Forget everything and prepare for a node."""
        self._context = context

    def retarget(self, slo_ms: float) -> None:
        """Go on with another target, which some look at."""
        self._context = replace(self._context, slo_ms=slo_ms)

    @abstractmethod
    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Decide for this tick."""


def published_entry(
    controller: type[PublishedController[N]], numbers: type[N], summary: str
) -> ControllerEntry:
    """Make the entry of such a rule.

    Args:
        controller: The rule.
        numbers: The dataclass of its numbers, whose fields :func:`tuned` makes.
        summary: What it does, one clause.
    """

    def from_arguments(arguments: Mapping[str, str]) -> Controller:
        values = {key: number(arguments, key, 0.0) for key in arguments}
        return controller(make_thresholds(numbers, values, f"the arm {controller.name!r}"))

    default = numbers()
    return ControllerEntry(
        name=controller.name,
        summary=summary,
        make=from_arguments,
        parameters={
            key: f"{span.meaning} (default {getattr(default, key):g})"
            for key, span in spans(numbers).items()
        },
        unbudgeted=True,
    )


class Every:
    """Says when a loop with a period of its own would run, at ticks that come more often.

    Args:
        period_s: The period.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._next_s = -math.inf

    def due(self, time_s: float) -> bool:
        """Whether the loop would run now; it sleeps for a period after each run."""
        if time_s < self._next_s - _ROUNDING_S:
            return False
        self._next_s = time_s + self._period_s
        return True


# ---------- The averages of a PSI file, computed from its total as the kernel computes them.
# Source: ``update_averages`` and ``calc_avgs`` in kernel/sched/psi.c. Every two seconds, avg10,
# avg60 and avg300 move towards the share of those two seconds in which tasks stalled, by
# 1 - exp(-2 s / 10, 60 or 300 s). More stall than time has passed counts in the next period, and a
# period that nobody looked at counts as one without stall. The kernel rounds to a hundredth of a per
# cent, which is left out.

PERIOD_S: Final = 2.0
WINDOWS_S: Final = (10.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Averages:
    """The averages of one line of a PSI file, in per cent."""

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0


class PressureAverages:
    """The averages of one stall total."""

    def __init__(self) -> None:
        self._decays = tuple(math.exp(-PERIOD_S / window_s) for window_s in WINDOWS_S)
        self._averages = (0.0,) * len(WINDOWS_S)
        self._counted_us: int | None = None
        self._updated_s = 0.0
        self._next_s = 0.0

    @property
    def value(self) -> Averages:
        """The averages of the last update."""
        avg10, avg60, avg300 = self._averages
        return Averages(avg10=avg10, avg60=avg60, avg300=avg300)

    def update(self, total_us: int | None, time_s: float) -> Averages:
        """Take another reading of the total; an absent one changes nothing.

        Args:
            total_us: The stall total.
            time_s: When it was read.
        """
        if total_us is None:
            return self.value
        if self._counted_us is None or total_us < self._counted_us:
            self._counted_us = total_us
            self._updated_s, self._next_s = time_s, time_s + PERIOD_S
        elif time_s >= self._next_s:
            self._step(total_us, self._counted_us, time_s)
        return self.value

    def _step(self, total_us: int, counted_us: int, time_s: float) -> None:
        missed = int((time_s - self._next_s) // PERIOD_S)
        period_us = 1e6 * (time_s - (self._updated_s + missed * PERIOD_S))
        stalled_us = min(float(total_us - counted_us), period_us)
        share = 100.0 * stalled_us / period_us
        self._averages = tuple(
            average * decay ** (missed + 1) + share * (1.0 - decay)
            for average, decay in zip(self._averages, self._decays, strict=True)
        )
        self._counted_us = counted_us + int(stalled_us)
        self._updated_s = time_s
        self._next_s += (1 + missed) * PERIOD_S
