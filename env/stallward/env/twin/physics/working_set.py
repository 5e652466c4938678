"""The estimate of the application's working set, as the sensors of a node make it.

``stallward.actuator.sensors.working_set`` explains it; a test checks that both give the same. On
the nodes that twins are fitted to (cgroup v1), the file pages that are away are those that were
read at least once, less those that are held.
"""

from __future__ import annotations

import math
from typing import Final

from stallward.actuator.sensors.working_set import (
    HOLD_S,
    MIN_REFAULT_PAGES,
    STEP_S,
    STEP_SHARE,
    USAGE_SHARE,
)
from stallward.env.twin.physics.pages import ANON, COLD, FILE
from stallward.env.twin.physics.state import REFAULT_STEPS, Node
from stallward.env.twin.physics.tick import TICK_S
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.values import maximum, minimum, where

STEP_TICKS: Final = round(STEP_S / TICK_S)


@model
def update_working_set(node: Node, tick: int) -> None:
    """Update the estimate, every half second.

    Args:
        node: The nodes.
        tick: The number of ticks that have passed.
    """
    if tick % STEP_TICKS == 0:
        step = tick // STEP_TICKS
        last, oldest = (step + REFAULT_STEPS - 1) % REFAULT_STEPS, step % REFAULT_STEPS
        refaults, anon = node.refault_pages[0], node.refault_anon_pages
        recent = refaults - node.refaults_before[oldest]
        recent_anon = anon - node.anon_refaults_before[oldest]
        newest = refaults - node.refaults_before[last]
        node.refaults_before[oldest] = refaults
        node.anon_refaults_before[oldest] = anon
        file = node.resident[FILE] + node.resident[COLD]
        usage = node.resident[ANON] + file
        swapped = node.wanted[ANON] - node.resident[ANON]
        away = node.wanted[FILE] + node.cold_seen - file
        least = maximum(usage * USAGE_SHARE, MIN_REFAULT_PAGES)
        needs = (recent >= least) & (newest >= least * STEP_SHARE)
        old = node.time_s - node.evidence_s > HOLD_S
        kept = where(old, math.nan, node.working_set_pages)
        unneeded = where(needs, minimum(node.given_up_file_pages, away), node.given_up_file_pages)
        in_swap = where(
            needs, minimum(node.given_up_anon_pages, swapped), node.given_up_anon_pages
        )
        wanted = minimum(recent - recent_anon, away - unneeded)
        found = usage + wanted + minimum(recent_anon, swapped - in_swap)
        node.working_set_pages = where(needs, found, kept)
        node.given_up_file_pages = where(needs, unneeded, where(old, away, unneeded))
        node.given_up_anon_pages = where(needs, in_swap, where(old, swapped, in_swap))
        node.evidence_s = where(needs, node.time_s, node.evidence_s)
