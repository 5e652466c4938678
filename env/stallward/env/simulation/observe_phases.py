"""Follows the phases of twin slots in compiled code, as a node does.

:mod:`stallward.agent.observation.phase_change` says what a phase is, and runs on nodes. A test
checks that both find the same.
"""

from __future__ import annotations

import math
from typing import Final

from stallward.agent.observation.phase_change import (
    LEAST_BYTES,
    MAX_ELAPSED_S,
    PhaseThresholds,
)
from stallward.env.twin.frame import Frame
from stallward.env.twin.physics.state import PerSlot
from stallward.env.twin.simd.elementary import exp, log
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.values import is_nan, maximum, minimum, negate, where

_PHASE: Final = PhaseThresholds()
_ALLOWANCE, _THRESHOLD_S, _SETTLE_S, _PHASE_MEAN_S = (
    _PHASE.allowance, _PHASE.threshold_s, _PHASE.settle_s, _PHASE.averaged_s,
)  # fmt: skip
_LEAST_BYTES: Final = float(LEAST_BYTES)


class PhaseMemory:
    """What is remembered of the size of each slot."""

    phase_mean: PerSlot
    """The logarithm of the mean size in this phase; NaN in a transition."""
    phase_above: PerSlot
    phase_below: PerSlot
    lowest: PerSlot
    """The lowest logarithm of the size since it last moved, in a transition."""
    highest: PerSlot
    still_s: PerSlot
    since_phase_change_s: PerSlot


@model
def follow_phase(frame: Frame, memory: PhaseMemory, i: int, first: bool, elapsed_s: float) -> None:
    """Follow the size of a slot, and set the columns of its phase in the frame.

    Args:
        frame: What the nodes report.
        memory: What is remembered; it is updated.
        i: The slot.
        first: Whether this is the first frame.
        elapsed_s: The time since the frame before, not negative.
    """
    there = frame.present[i] > 0.0
    unknown = there & is_nan(frame.usage_bytes[i]) & negate(first)
    held = known_sum(frame.usage_bytes[i], frame.swap_bytes[i])
    size = where(there & negate(is_nan(frame.usage_bytes[i])), held, 0.0)
    passed_s = where(unknown, 0.0, minimum(elapsed_s, MAX_ELAPSED_S))
    mean = where(first, math.nan, memory.phase_mean[i])
    since_s = where(first, math.inf, memory.since_phase_change_s[i]) + passed_s
    small = (size < _LEAST_BYTES) & negate(unknown)
    size_log = log(maximum(size, 1.0))
    inside = negate(is_nan(mean))
    deviation = where(inside, size_log - mean, 0.0)
    above = maximum(memory.phase_above[i] + (deviation - _ALLOWANCE) * passed_s, 0.0)
    below = maximum(memory.phase_below[i] + (-deviation - _ALLOWANCE) * passed_s, 0.0)
    ended = inside & negate(unknown) & (small | (maximum(above, below) > _THRESHOLD_S))
    # In a transition: how long the size has kept still.
    anew = inside | small | first
    lowest = minimum(where(anew, -math.inf, memory.lowest[i]), size_log)
    highest = maximum(where(anew, math.inf, memory.highest[i]), size_log)
    moved = (highest - lowest > _ALLOWANCE) & negate(unknown)
    still_s = where(moved, 0.0, memory.still_s[i] + passed_s)
    begun = negate(inside) & negate(small) & negate(moved) & negate(unknown)
    begun = begun & (still_s >= _SETTLE_S)
    drifted = mean + deviation * (1.0 - exp(passed_s / -_PHASE_MEAN_S))
    memory.phase_mean[i] = where(
        unknown, mean, where(begun, size_log, where(ended, math.nan, drifted))
    )
    memory.phase_above[i] = where(begun, 0.0, where(unknown, memory.phase_above[i], above))
    memory.phase_below[i] = where(begun, 0.0, where(unknown, memory.phase_below[i], below))
    outside = where(small, -math.inf, where(moved, size_log, lowest))
    memory.lowest[i] = where(unknown, memory.lowest[i], outside)
    outside = where(small, math.inf, where(moved, size_log, highest))
    memory.highest[i] = where(unknown, memory.highest[i], outside)
    memory.still_s[i] = still_s
    memory.since_phase_change_s[i] = where(ended, 0.0, since_s)
    known = negate(is_nan(memory.phase_mean[i]))
    frame.in_phase[i] = where(known, 1.0, 0.0)
    frame.phase_bytes[i] = where(known, exp(memory.phase_mean[i]), 0.0)
    frame.since_phase_change_s[i] = memory.since_phase_change_s[i]


@model
def known_sum(one: float, other: float) -> float:
    """Add two numbers; one that is not known counts as 0."""
    return where(is_nan(one), 0.0, one) + where(is_nan(other), 0.0, other)
