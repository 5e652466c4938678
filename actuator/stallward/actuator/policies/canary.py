"""Whether a policy that was just activated keeps the target as often as what decided before. Pure.

Seconds are looked at in batches of ten, because neighbouring seconds share their luck. A policy is
returned when it certainly keeps the target less often, however often one looks: the bound is that
of a normal mixture (Robbins, 1970), so the chance to return a policy that keeps it as often is
small over the whole time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from stallward.actuator.sequential import LEAST_BATCHES, attainment_reach, spread_of

BATCH_S: Final = 10
"""Seconds in a batch."""
MOST_BATCHES: Final = 360
"""How many batches are remembered of what decided before: an hour."""
_BASELINE_Z: Final = 2.0
"""How far the attainment before may be from what was seen, in standard errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySettings:
    """When a policy is returned."""

    length_s: float = 1800.0
    """How long a policy is watched after it was activated."""
    margin: float = 0.02
    """By how much less often it may keep the target, as a share of the seconds."""
    alpha: float = 0.01
    """The chance to return a policy that keeps it as often."""


class CanaryState(Enum):
    """What the canary does."""

    IDLE = "idle"
    """No policy decides, or nothing is known of what decided before."""
    WATCHING = "watching"
    PASSED = "passed"
    """The policy was watched for the whole time."""
    FAILED = "failed"
    """The policy certainly keeps the target less often: it is to be turned off."""


class Canary:
    """Watches the policy of one node.

    Args:
        settings: When a policy is returned.
    """

    def __init__(self, settings: CanarySettings) -> None:
        self._settings = settings
        self._active: str | None = None
        self._began_s = 0.0
        self._batch: list[bool] = []
        self._now: deque[float] = deque(maxlen=MOST_BATCHES)
        self._before: tuple[float, ...] = ()
        self._decided_before: str | None = None
        self.state = CanaryState.IDLE

    @property
    def attainment(self) -> float | None:
        """The share of the seconds in which what decides now kept the target."""
        return _mean(self._now)

    @property
    def attainment_before(self) -> float | None:
        """The same of what decided before."""
        return _mean(self._before)

    def left_s(self, time_s: float) -> float:
        """How long the policy is still watched."""
        if self.state is not CanaryState.WATCHING:
            return 0.0
        return max(self._began_s + self._settings.length_s - time_s, 0.0)

    def take(self, time_s: float, active: str, *, met: bool) -> CanaryState:
        """Take one second in which requests were answered.

        Args:
            time_s: The time.
            active: The digest of the policy that decides; empty for the default controller.
            met: Whether the target was kept.
        """
        if active != self._active:
            self._begin(time_s, active)
        self._batch.append(met)
        if len(self._batch) < BATCH_S:
            return self.state
        self._now.append(sum(self._batch) / BATCH_S)
        self._batch = []
        if self.state is CanaryState.WATCHING:
            if self._is_worse():
                self.state = CanaryState.FAILED
            elif time_s - self._began_s >= self._settings.length_s and self._saw_enough():
                self.state = CanaryState.PASSED
        return self.state

    def returned(self) -> None:
        """The policy was turned off: what it did is nothing to compare others with."""
        self._active, self.state = None, CanaryState.IDLE
        self._now.clear()
        self._batch = []

    def _saw_enough(self) -> bool:
        """Whether there were requests in half of the time."""
        return len(self._now) >= 0.5 * min(self._settings.length_s / BATCH_S, MOST_BATCHES)

    def _begin(self, time_s: float, active: str) -> None:
        """Something else decides from now on."""
        if self._active is not None and len(self._now) >= LEAST_BATCHES:
            self._before, self._decided_before = tuple(self._now), self._active
        self._active, self._began_s = active, time_s
        self._now.clear()
        self._batch = []
        known = len(self._before) >= LEAST_BATCHES and active != self._decided_before
        self.state = CanaryState.WATCHING if active and known else CanaryState.IDLE

    def _is_worse(self) -> bool:
        """Whether the target is certainly kept less often than before."""
        count = len(self._now)
        if count < LEAST_BATCHES:
            return False
        reach = attainment_reach(self._now, alpha=self._settings.alpha)
        reach += _BASELINE_Z * spread_of(self._before) / math.sqrt(len(self._before))
        drop = sum(self._before) / len(self._before) - sum(self._now) / count
        return drop > self._settings.margin + reach


def _mean(batches: Sequence[float]) -> float | None:
    return sum(batches) / len(batches) if batches else None
