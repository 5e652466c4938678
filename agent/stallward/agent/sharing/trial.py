"""What trials of another way to hold the background back have in common. Pure.

Nothing tells beforehand whether an application is better off without limits, or with pauses in
their place, so that is tried. A trial that fails costs the application something. So the next one
waits, for a time that doubles with every failure.
"""

from __future__ import annotations

from typing import Final

from stallward.agent.sample import LatencySample, Sample

SILENT_S: Final = 1.0
"""An application that has answered nothing for so long may be standing still."""
SILENT_RATIO: Final = 2.0
"""The p95 over the target as which that counts during a trial."""
LONGEST_WAIT_S: Final = 3600.0
"""The longest time between a failure and the next trial."""
PROVED_S: Final = 120.0
"""A trial that has lasted for so long has succeeded: the wait after the next one is short again."""


class TrialWait:
    """How long the next trial has to wait.

    Args:
        first_s: The time after the first failure.
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self.reset()

    def reset(self) -> None:
        """Forget all failures, and wait no longer."""
        self.left_s, self.next_s = 0.0, self._first_s
        """The time until there may be a trial, and the next wait."""

    def forgive(self) -> None:
        """Forget the failures before: the wait after the next one is short again."""
        self.next_s = self._first_s

    def fail(self) -> None:
        """Begin to wait, because a trial has failed."""
        self.left_s, self.next_s = self.next_s, min(2.0 * self.next_s, LONGEST_WAIT_S)

    def elapse(self, elapsed_s: float) -> None:
        """Let time go by."""
        self.left_s = max(self.left_s - elapsed_s, 0.0)


def newest_ratio(sample: Sample, slo_ms: float, *, trial_s: float | None) -> float | None:
    """The newest p95 over the target; ``None`` where there is nothing new.

    Args:
        sample: The sample.
        slo_ms: The target.
        trial_s: How long a trial has lasted in which the background has more than it had before, so
            that silence is suspect, also that of one of several applications; ``None`` if there is
            none. A silence from before it says nothing about it.
    """
    latency = sample.latency
    if latency is None or (trial_s is not None and not all_report(sample)):
        return None
    ratio = None if latency.p95_ms is None else latency.p95_ms / slo_ms
    if trial_s is not None and any(
        _falls_silent(one, trial_s) for one in _latencies(sample) if one
    ):
        return max(ratio or 0.0, SILENT_RATIO)
    return ratio


def all_report(sample: Sample) -> bool:
    """Whether there is a latency of each application that is there; else no trial can be judged."""
    return sample.latency is not None and None not in _latencies(sample)


def _latencies(sample: Sample) -> list[LatencySample | None]:
    each = [one.latency for one in sample.applications if one.group.runs]
    return each if sample.applications else [sample.latency]


def _falls_silent(latency: LatencySample, trial_s: float) -> bool:
    # A source that is read once in five seconds tells nothing new meanwhile.
    least_s = max(SILENT_S, latency.window_s)
    return least_s < (latency.last_completion_age_s or 0.0) <= trial_s + least_s
