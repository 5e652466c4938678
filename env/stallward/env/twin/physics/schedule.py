"""When the background programs of the twin run, what they should own then, and their bursts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.physics.pages import POOLS
from stallward.env.twin.physics.state import Node
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.elementary import remainder
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.one_lane import set_lane, value_of_lane
from stallward.env.twin.simd.records import local_rows
from stallward.env.twin.simd.values import anywhere, floor, maximum, negate, where

Array = NDArray[np.float64]


@model
def start_and_stop(node: Node, running: Array, slots: int) -> None:
    """Start and stop programs by their schedules.

    A program that stops frees its memory; one that starts begins anew.

    Args:
        node: The nodes.
        running: 1 for each second in which a program runs, else 0,
            ``(scenarios, SLOTS, seconds)``.
        slots: How many slots are in use.
    """
    second, on = local_rows(1), local_rows(1)
    for i in range(slots):
        second[0] = remainder(node.time_s + node.phase_s, maximum(node.cycle_s[i], 1.0))
        for lane in range(WIDTH):
            which = int(value_of_lane(node.scenario, lane))
            set_lane(on, 0, lane, running[which, i, int(value_of_lane(second[0], lane))])
        now = node.has_program[i] * on[0]
        changed = negate(now == node.on[i])
        if anywhere(changed):
            free_pages(node, i, changed & (now == 0.0))
            node.cursor_s[i] = where(changed, 0.0, node.cursor_s[i])
            node.on[i] = now


@model
def free_pages(node: Node, slot: int, gone: bool) -> None:
    """Free the pages of a slot on the nodes whose program is ``gone``."""
    for pool in range(POOLS):
        i = (1 + slot) * POOLS + pool
        node.resident[i] = where(gone, 0.0, node.resident[i])
        node.wanted[i] = where(gone, 0.0, node.wanted[i])
        node.touches_per_s[i] = where(gone, 0.0, node.touches_per_s[i])
    node.dirty[1 + slot] = where(gone, 0.0, node.dirty[1 + slot])


@model
def set_targets(node: Node, programs: Array, slots: int) -> None:
    """Set the pages that each program should own at its own time.

    Args:
        node: The nodes.
        programs: The working sets in pages (anonymous, file), ``(scenarios, SLOTS, 2, seconds)``.
        slots: How many slots are in use.
    """
    second = local_rows(1)
    for i in range(slots):
        second[0] = program_second(node.cursor_s[i], node.length_s[i], node.loop_from_s[i])
        for lane in range(WIDTH):
            which = int(value_of_lane(node.scenario, lane))
            at = int(value_of_lane(second[0], lane))
            set_lane(node.target_anon, i, lane, programs[which, i, 0, at])
            set_lane(node.target_file, i, lane, programs[which, i, 1, at])


@model
def program_second(cursor_s: float, length_s: float, loop_from_s: float) -> float:
    """Return the second of its working sets that a program is in at its own time ``cursor_s``."""
    past = maximum(cursor_s - length_s, 0.0)
    looped = loop_from_s + remainder(past, maximum(length_s - loop_from_s, 1.0))
    return floor(where(cursor_s < length_s, cursor_s, looped))


@model
def set_bursts(node: Node, slots: int) -> None:
    """Set how fast each program reads the pages of a burst at its own time, 0 between bursts."""
    for i in range(slots):
        if anywhere(node.burst_per_s[i] > 0.0):
            since_s = remainder(node.cursor_s[i], maximum(node.burst_every_s[i], 1e-3))
            node.bursting_per_s[i] = where(since_s < node.burst_s[i], node.burst_per_s[i], 0.0)
