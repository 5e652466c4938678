"""Random numbers that follow from a key and a count alone.

A node draws from its own key, so its run does not depend on how many others run beside it. The
numbers are those of SplitMix64 (Steele, Lea and Flood, 2014), which needs no state but a count.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.physics.state import SUBSTEPS, Noise
from stallward.env.twin.simd.elementary import exp, normals
from stallward.env.twin.simd.jit import kernel, model
from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.one_lane import set_lane
from stallward.env.twin.simd.records import from_row, local_rows
from stallward.env.twin.simd.values import anywhere, floor, maximum, square_root, where
from stallward.env.twin.simd.vectors import WIDTH

Keys = NDArray[np.uint64]
Array = NDArray[np.float64]

PER_TICK: Final = 2 + 6 * SUBSTEPS
"""Numbers used in a tick."""
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_ROUND_ARRIVALS: Final = 20.0
"""Above this many expected arrivals, theirs are rounded from a continuous distribution."""
_MOST_ARRIVALS: Final = 100.0
"""So many never come where few are expected."""


@model
def mixed(number: np.uint64) -> np.uint64:
    """SplitMix64's output function."""
    number = (number ^ (number >> np.uint64(30))) * _MIX[0]
    number = (number ^ (number >> np.uint64(27))) * _MIX[1]
    return number ^ (number >> np.uint64(31))


@model
def uniform(key: np.uint64, count: int) -> float:
    """The ``count``-th number of a key, in [0, 1)."""
    return (mixed(key + np.uint64(count) * _STEP) >> np.uint64(11)) * 2.0**-53


def uniforms(keys: Keys, first: NDArray[np.int64], count: int) -> Array:
    """Of each key, ``count`` numbers from its ``first`` on, ``(count, len(keys))``."""
    found = np.empty((count, len(keys)))
    _fill(keys, first, found)
    return found


@kernel
def _fill(keys: Keys, first: NDArray[np.int64], out: Array) -> None:
    for k in range(out.shape[0]):
        for i in range(keys.shape[0]):
            out[k, i] = uniform(keys[i], first[i] + k)


@model
def draw(noise: Noise, keys: Keys, at: int, tick: int, expected: float) -> None:
    """Draw the noise of one tick for the eight nodes from ``at`` on.

    Args:
        noise: Set.
        keys: Of all nodes.
        at: The first of the nodes.
        tick: The count of ticks.
        expected: Arrivals expected in a sub-step.
    """
    numbers = local_rows(PER_TICK)
    for k in range(PER_TICK):
        for lane in range(WIDTH):
            set_lane(numbers, k, lane, uniform(keys[at + lane], tick * PER_TICK + k))
    noise.device, _ = normals(numbers[0], numbers[1])
    for k in range(SUBSTEPS):
        mine = from_row(numbers, 2 + 5 * k)
        noise.spread[k], noise.fault_spread[k] = normals(mine[0], mine[1])
        noise.meets[k] = mine[2]
        noise.misses[k] = mine[3]
        noise.hiccups[k] = mine[4]
    _draw_arrivals(noise, from_row(numbers, 2 + 5 * SUBSTEPS), expected)


@model
def _draw_arrivals(noise: Noise, numbers: Rows, expected: float) -> None:
    none = exp(-expected)
    for k in range(SUBSTEPS):
        noise.arrivals[k] = _few(numbers[k], expected, none)
    many = expected > _ROUND_ARRIVALS
    if anywhere(many):
        for k in range(0, SUBSTEPS, 2):
            one, other = normals(numbers[k], numbers[k + 1])
            noise.arrivals[k] = where(many, _many(one, expected), noise.arrivals[k])
            noise.arrivals[k + 1] = where(many, _many(other, expected), noise.arrivals[k + 1])


@model
def _few(number: float, expected: float, none: float) -> float:
    """A Poisson number by inversion; ``none`` is the chance of 0."""
    chance, below, found = none, none, 0.0 * none
    further = (number >= below) & (expected <= _ROUND_ARRIVALS)
    count = 0.0
    while anywhere(further) and count < _MOST_ARRIVALS:
        count += 1.0
        chance = chance * (expected * (1.0 / count))
        below = below + chance
        found = where(further, count, found)
        further = further & (number >= below)
    return found


@model
def _many(normal: float, expected: float) -> float:
    """A Poisson number by its first three moments (Cornish and Fisher, 1938)."""
    found = expected + square_root(expected) * normal + (normal * normal - 1.0) / 6.0
    return maximum(floor(found + 0.5), 0.0)


def keys_of(seed: int, nodes: int, draws: int | None = None) -> Keys:
    """The keys of ``nodes`` nodes; the first ones are the same however many there are.

    Args:
        seed: Everything random follows from it.
        nodes: How many keys.
        draws: So many are different, and come again and again; all by default.
    """
    found = np.empty(nodes if draws is None else draws, dtype=np.uint64)
    first = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    _fill_keys(first, found)
    return np.resize(found, nodes)


def rewound(keys: Keys, ticks: int) -> Keys:
    """Keys whose noise after ``ticks`` ticks is that of ``keys`` at the start."""
    return keys - np.full(1, ticks * PER_TICK, dtype=np.uint64) * _STEP


@kernel
def _fill_keys(first: np.uint64, out: Keys) -> None:
    for n in range(out.shape[0]):
        out[n] = mixed(mixed(first) + mixed(np.uint64(n + 1)))
