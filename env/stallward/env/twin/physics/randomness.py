"""Counter-based random numbers: each follows from a key and a counter alone.

Each node has its own key, so its run does not depend on the number of nodes in the batch. The
generator is SplitMix64 (Steele, Lea and Flood, 2014), whose only state is a counter.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.physics.state import SUBSTEPS, Noise
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.elementary import exp, normals
from stallward.env.twin.simd.jit import kernel, model
from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.one_lane import set_lane
from stallward.env.twin.simd.records import from_row, local_rows
from stallward.env.twin.simd.values import anywhere, floor, maximum, square_root, where

Keys = NDArray[np.uint64]
Array = NDArray[np.float64]

PER_TICK: Final = 2 + 6 * SUBSTEPS
"""How many numbers a node uses in a tick."""
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_ROUND_ARRIVALS: Final = 20.0
"""Above this many expected arrivals, their number is rounded from a continuous distribution."""
_MOST_ARRIVALS: Final = 100.0
"""The largest number of arrivals where fewer than ``_ROUND_ARRIVALS`` are expected."""


@model
def mixed(number: np.uint64) -> np.uint64:
    """The output function of SplitMix64."""
    number = (number ^ (number >> np.uint64(30))) * _MIX[0]
    number = (number ^ (number >> np.uint64(27))) * _MIX[1]
    return number ^ (number >> np.uint64(31))


@model
def uniform(key: np.uint64, count: int) -> float:
    """Return the ``count``-th number of a key, in [0, 1)."""
    return (mixed(key + np.uint64(count) * _STEP) >> np.uint64(11)) * 2.0**-53


def uniforms(keys: Keys, first: NDArray[np.int64], count: int) -> Array:
    """Return ``count`` numbers of each key, from its ``first`` on, ``(count, len(keys))``."""
    numbers = np.empty((count, len(keys)))
    _fill(keys, first, numbers)
    return numbers


@kernel
def _fill(keys: Keys, first: NDArray[np.int64], out: Array) -> None:
    for k in range(out.shape[0]):
        for i in range(keys.shape[0]):
            out[k, i] = uniform(keys[i], first[i] + k)


@model
def draw(noise: Noise, keys: Keys, at: int, tick: int, expected: float) -> None:
    """Draw the noise of one tick for the eight nodes from ``at`` on.

    Args:
        noise: The noise to set.
        keys: The keys of all nodes.
        at: The first of the eight nodes.
        tick: The number of ticks before.
        expected: The expected number of arrivals in a sub-step.
    """
    numbers = local_rows(PER_TICK)
    for k in range(PER_TICK):
        for lane in range(WIDTH):
            set_lane(numbers, k, lane, uniform(keys[at + lane], tick * PER_TICK + k))
    noise.device, _ = normals(numbers[0], numbers[1])
    noise.stall = numbers[1]
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
        noise.arrivals[k] = _small_poisson(numbers[k], expected, none)
    many = expected > _ROUND_ARRIVALS
    if anywhere(many):
        for k in range(0, SUBSTEPS, 2):
            one, other = normals(numbers[k], numbers[k + 1])
            noise.arrivals[k] = where(many, _large_poisson(one, expected), noise.arrivals[k])
            noise.arrivals[k + 1] = where(
                many, _large_poisson(other, expected), noise.arrivals[k + 1]
            )


@model
def _small_poisson(number: float, expected: float, none: float) -> float:
    """Draw a Poisson number by inversion; ``none`` is the probability of 0."""
    chance, below, arrivals = none, none, 0.0 * none
    further = (number >= below) & (expected <= _ROUND_ARRIVALS)
    count = 0.0
    while anywhere(further) and count < _MOST_ARRIVALS:
        count += 1.0
        chance = chance * (expected * (1.0 / count))
        below = below + chance
        arrivals = where(further, count, arrivals)
        further = further & (number >= below)
    return arrivals


@model
def _large_poisson(normal: float, expected: float) -> float:
    """Draw a Poisson number by its first three moments (Cornish and Fisher, 1938)."""
    value = expected + square_root(expected) * normal + (normal * normal - 1.0) / 6.0
    return maximum(floor(value + 0.5), 0.0)


def keys_of(seed: int, nodes: int, draws: int | None = None) -> Keys:
    """Make the keys of nodes. The first ones do not depend on the number of nodes.

    Args:
        seed: Everything random follows from it.
        nodes: How many keys.
        draws: How many keys are different; they repeat. All by default.
    """
    keys = np.empty(nodes if draws is None else draws, dtype=np.uint64)
    first = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    _fill_keys(first, keys)
    return np.resize(keys, nodes)


def rewound(keys: Keys, ticks: int) -> Keys:
    """Return keys whose noise after ``ticks`` ticks equals that of ``keys`` at the start."""
    return keys - np.full(1, ticks * PER_TICK, dtype=np.uint64) * _STEP


@kernel
def _fill_keys(first: np.uint64, out: Keys) -> None:
    for n in range(out.shape[0]):
        out[n] = mixed(mixed(first) + mixed(np.uint64(n + 1)))
