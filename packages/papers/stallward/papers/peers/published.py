"""What the published rules have in common: their entries, and a clock for a slower period."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stallward.agent.control_law.thresholds import make_thresholds, spans, tuned
from stallward.agent.controller import Controller, Need
from stallward.agent.plugin import ControllerEntry, number

T = TypeVar("T")
_ROUNDING_S = 1e-6


def kill_switch() -> Any:
    """Make the field of a dataclass of numbers that turns the killing of a daemon off."""
    return tuned(1, "whether it kills; with 0 it only says whom it would kill", 0, 1, whole=True)


def kill_needs(kill: float) -> tuple[Need, ...]:
    """What a daemon that kills whole groups needs for it, unless its killing is turned off."""
    return (Need.TERMINATE,) if kill else ()


def published_entry(
    *,
    name: str,
    summary: str,
    numbers: type[T],
    make: Callable[[T], Controller],
) -> ControllerEntry:
    """Make the entry of a rule that a comparison runs as it was published.

    Args:
        name: Its name as an arm.
        summary: What it does, one clause.
        numbers: The dataclass of its numbers, whose fields :func:`tuned` makes.
        make: Makes the controller of such numbers.
    """

    def from_arguments(arguments: Mapping[str, str]) -> Controller:
        values = {key: number(arguments, key, 0.0) for key in arguments}
        return make(make_thresholds(numbers, values, f"the arm {name!r}"))

    default = numbers()
    return ControllerEntry(
        name=name,
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
