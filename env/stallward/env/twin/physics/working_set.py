"""The estimate of the application's working set, as the sensors of a node make it.

``stallward.actuator.sensors.working_set`` explains it; a test checks that both give the same. On
the nodes that twins are fitted to (cgroup v1), the pages that are away are those that were read
at least once, less those that are held, plus those in swap.
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
        refaults = node.refault_pages[0]
        first = node.refaults_before[step % REFAULT_STEPS]
        before = node.refaults_before[(step + REFAULT_STEPS - 1) % REFAULT_STEPS]
        node.refaults_before[step % REFAULT_STEPS] = refaults
        file = node.resident[FILE] + node.resident[COLD]
        usage = node.resident[ANON] + file
        swapped = node.wanted[ANON] - node.resident[ANON]
        away = node.wanted[FILE] + node.cold_seen - file + swapped
        least = maximum(usage * USAGE_SHARE, MIN_REFAULT_PAGES)
        needs = (refaults - first >= least) & (refaults - before >= least * STEP_SHARE)
        old = node.time_s - node.evidence_s > HOLD_S
        kept = where(old, math.nan, node.working_set_pages)
        given_up = where(needs, minimum(node.given_up_pages, away), node.given_up_pages)
        found = usage + minimum(refaults - first, away - given_up)
        node.working_set_pages = where(needs, found, kept)
        node.given_up_pages = where(needs, given_up, where(old, away, given_up))
        node.evidence_s = where(needs, node.time_s, node.evidence_s)
