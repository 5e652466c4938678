"""The further applications of nodes that protect several.

What belongs to an application is in a record of :class:`Node` of its own: its requests and their
queue, its pages, its waits and its counters. That of the first is also the node's, with the slots
and all that is shared; those of the further ones follow behind those of all nodes, as do their
parameters and random numbers. Where no node has several, no further code is compiled.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.inputs.exogenous import MOST_APPLICATIONS
from stallward.env.twin.physics import pages
from stallward.env.twin.physics.application import SubstepValues, values_at
from stallward.env.twin.physics.latency import Windows
from stallward.env.twin.physics.pages import ALL_POOLS, GROUPS, POOLS
from stallward.env.twin.physics.randomness import Keys
from stallward.env.twin.physics.state import (
    Node,
    Noise,
    Parameters,
    node_at,
    noise_at,
    parameters_at,
)
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.values import anywhere

Array = NDArray[np.float64]

MOST_OTHERS: Final = MOST_APPLICATIONS - 1
"""The most applications beside the first."""
MOST_POOLS: Final = ALL_POOLS + MOST_OTHERS * POOLS
MOST_GROUPS: Final = GROUPS + MOST_OTHERS


class World(NamedTuple):
    """The arrays that a tick reads and changes, in the form that compiled code takes."""

    state: Array
    parameters: Array
    noise: Array
    keys: Keys
    programs: Array
    running: Array
    rates: Array
    windows: Windows
    values: Array
    """Rows of :class:`SubstepValues` of all applications; none where there is one on each node."""
    places: tuple[int, ...]
    """Where the records of each application begin: one place, or one and ``MOST_OTHERS`` more.
    Their number is part of the type, so that code for one application is compiled without the
    rest."""


@model
def others_in_use(world: World, at: int) -> int:
    """Return how many further applications any of the eight nodes from ``at`` on has."""
    count = len(world.places) - 1
    while count > 0 and not anywhere(other_at(world, at, count).has_application > 0.0):
        count -= 1
    return count


@model
def other_at(world: World, at: int, number: int) -> Node:
    """Return the records of a further application; they are counted from 1."""
    return node_at(world.state, at + world.places[number])


@model
def parameters_of(world: World, at: int, number: int) -> Parameters:
    """Return its parameters."""
    return parameters_at(world.parameters, at + world.places[number])


@model
def noise_of(world: World, at: int, number: int) -> Noise:
    """Return its noise."""
    return noise_at(world.noise, at + world.places[number])


@model
def values_of(world: World, at: int, number: int) -> SubstepValues:
    """Return the values of its sub-step."""
    return values_at(world.values, at + world.places[number])


@model
def first_pool(slots: int, number: int) -> int:
    """Return where its pools begin, behind those of all groups."""
    return (slots + number) * POOLS


@model
def held_by_others(world: World, at: int, others: int, held: float) -> float:
    """Return ``held`` and the pages that the further applications have in memory."""
    for a in range(1, 1 + others):
        held = held + pages.total(other_at(world, at, a).resident, POOLS)
    return held


@model
def reads_of_others(world: World, node: Node, at: int, others: int, own: float) -> float:
    """Return the share of time in which reads keep the device busy, without those of ``own``."""
    busy_share = node.busy_share
    if others > 0:
        reads = node.reads_share
        for a in range(1, 1 + others):
            reads = reads + other_at(world, at, a).reads_share
        busy_share = busy_share + (reads - own)
    return busy_share
