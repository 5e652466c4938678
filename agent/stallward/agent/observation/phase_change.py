"""When a group goes over to another phase of locality, seen in the size of its working set. Pure.

Programs run through phases, each with a working set of its own size, and the transitions between
them are abrupt (Birkbeck thesis, sections 3 and 4.1). Its section 8.3 proposes to detect them "by
measuring changes in working set size"; this is such a detector: a two-sided CUSUM (Page, 1954) of
the logarithm of the size. Within a phase it knows the mean. What the logarithm exceeds the mean
by, less an allowance, adds up over time, and so does what it falls short by. Once either sum
passes a threshold, the phase is over. The next one begins when the size has settled.

A change by a factor f is noticed after ``threshold_s / (|ln f| - allowance)`` seconds: with the
defaults, a doubling after 0.3 s, a growth by a fifth after 1.5 s. Changes by less than the
allowance, or shorter than that, are no phases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from stallward.agent.observation.average import moved
from stallward.agent.observation.demand import held_bytes
from stallward.agent.sample import GroupSample

MAX_ELAPSED_S: Final = 1.0
"""A longer time between two sizes counts as this long."""
LEAST_BYTES: Final = 4 * 1024 * 1024
"""A smaller group has no phases: it is empty, or it still starts."""


class PhaseThresholds(NamedTuple):
    """The numbers of the detector."""

    allowance: float = 0.05
    """Deviation of the size's logarithm that is no evidence; 0.05 is about 5 %."""
    threshold_s: float = 0.2
    """Sum of the deviations beyond it, in seconds, at which a phase is over."""
    settle_s: float = 1.0
    """How long the size must stay within the allowance for the next phase to begin."""
    averaged_s: float = 10.0
    """Time constant of the mean within a phase, which so follows slow drifts."""


USUAL: Final = PhaseThresholds()


class PhaseState(NamedTuple):
    """What is remembered of the size of one working set; sizes are logarithms."""

    mean: float = math.nan
    """The mean size in this phase; NaN in a transition."""
    above: float = 0.0
    """What the size exceeded the mean by, in seconds."""
    below: float = 0.0
    lowest: float = -math.inf
    """The lowest size since it last moved, in a transition."""
    highest: float = math.inf
    still_s: float = 0.0
    """For how long it has kept still."""
    since_change_s: float = math.inf
    """The time since a phase ended; infinite before the first end."""


BEGIN: Final = PhaseState()


def follow_phase(
    state: PhaseState, size_bytes: float, elapsed_s: float, numbers: PhaseThresholds
) -> PhaseState:
    """What is remembered after one more size; where it is NaN, no time passes."""
    known = not math.isnan(size_bytes)
    passed_s = min(max(elapsed_s, 0.0), MAX_ELAPSED_S) if known else 0.0
    small = size_bytes < LEAST_BYTES
    size = math.log(max(1.0, size_bytes))
    inside = not math.isnan(state.mean)
    deviation = size - state.mean if inside else 0.0
    above = max(state.above + (deviation - numbers.allowance) * passed_s, 0.0)
    below = max(state.below + (-deviation - numbers.allowance) * passed_s, 0.0)
    ended = inside and known and (small or max(above, below) > numbers.threshold_s)
    # In a transition: whether the size keeps still.
    starts = inside or small
    lowest = min(-math.inf if starts else state.lowest, size)
    highest = max(math.inf if starts else state.highest, size)
    moves = known and highest - lowest > numbers.allowance
    still_s = 0.0 if moves else state.still_s + passed_s
    begins = known and not (inside or small or moves) and still_s >= numbers.settle_s
    mean = moved(state.mean, size, passed_s, numbers.averaged_s)
    lowest = -math.inf if small else size if moves else lowest
    highest = math.inf if small else size if moves else highest
    return PhaseState(
        size if begins else math.nan if ended else mean,
        0.0 if begins else above,
        0.0 if begins else below,
        lowest if known else state.lowest,
        highest if known else state.highest,
        still_s,
        0.0 if ended else state.since_change_s + passed_s,
    )


class PhaseDetector:
    """Follows the size of one working set.

    Attributes:
        changes: How many phases have ended.
    """

    def __init__(self, thresholds: PhaseThresholds = USUAL) -> None:
        self._numbers = thresholds
        self._state = BEGIN
        self.changes = 0

    @property
    def phase_bytes(self) -> float | None:
        """The mean size in this phase; ``None`` in a transition."""
        mean = self._state.mean
        return None if math.isnan(mean) else math.exp(mean)

    @property
    def since_change_s(self) -> float:
        """The time since the last of them ended; infinite before the first."""
        return self._state.since_change_s

    def update(self, size_bytes: float, elapsed_s: float) -> bool:
        """Take one more size, NaN where it cannot be read; returns whether a phase has ended."""
        before = self._state
        self._state = follow_phase(before, size_bytes, elapsed_s, self._numbers)
        ended = math.isnan(self._state.mean) and not math.isnan(before.mean)
        self.changes += ended
        return ended


class PhaseChanges:
    """The phases of all background groups.

    The size of a working set is taken to be what the group holds in memory and in swap. That
    misses the phases of a group that keeps all that it ever used, and those that a limit hides.
    ``working_set_bytes`` would show them, but it wanders with the pressure: in a recording it
    ended eight phases in 66 s for a group whose working set never changed.
    """

    def __init__(self, thresholds: PhaseThresholds = USUAL) -> None:
        self._thresholds = thresholds
        self.detectors: list[PhaseDetector] = []
        """One for each slot."""

    def update(self, groups: Sequence[GroupSample], elapsed_s: float) -> tuple[int, ...]:
        """Take one more sample of every group.

        Args:
            groups: The groups, in the order of their slots; one whose memory cannot be read
                keeps its phase.
            elapsed_s: The time since the sample before.

        Returns:
            The slots in which a phase has ended.
        """
        while len(self.detectors) < len(groups):
            self.detectors.append(PhaseDetector(self._thresholds))
        ended = []
        for slot, group in enumerate(groups):
            known = group.memory_usage_bytes is not None
            if self.detectors[slot].update(held_bytes(group) if known else math.nan, elapsed_s):
                ended.append(slot)
        return tuple(ended)
