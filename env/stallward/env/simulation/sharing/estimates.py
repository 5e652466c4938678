"""What thrashes, what groups want, and what is free on twin nodes."""

from __future__ import annotations

from stallward.agent.desired import MIB
from stallward.agent.sharing.thrashing import FULL_RATIO, LEAST_BYTES, SHORT_RATIO, SMOOTHING_S
from stallward.env.simulation.sharing.state import Numbers, Sharing
from stallward.env.twin.frame import Frame
from stallward.env.twin.simd.elementary import exp
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.values import maximum, minimum, where


@model
def update_thrashing(
    frame: Frame, sharing: Sharing, numbers: Numbers, elapsed_s: float, i: int
) -> bool:
    """Look at one group; return whether it thrashes unless it gets all that it needs."""
    stalled = frame.psi_memory_some_us[i] + frame.psi_io_some_us[i]
    refaulted = frame.refault_pages[i]
    known = (elapsed_s > 0.0) & (frame.paused[i] == 0.0)
    passed_s = where(elapsed_s > 0.0, elapsed_s, 1.0)
    weight = 1.0 - exp(elapsed_s / -SMOOTHING_S)
    grown_us = maximum(stalled - sharing.group_stalled_us[i], 0.0)
    share = minimum(grown_us / (1e6 * passed_s), 1.0)
    per_s = maximum(refaulted - sharing.group_refaults[i], 0.0) / passed_s
    stall, refaults = sharing.group_stall_share[i], sharing.group_refaults_per_s[i]
    stall = stall + where(known, weight * (share - stall), 0.0)
    refaults = refaults + where(known, weight * (per_s - refaults), 0.0)
    sharing.group_stalled_us[i], sharing.group_refaults[i] = stalled, refaulted
    sharing.group_stall_share[i], sharing.group_refaults_per_s[i] = stall, refaults
    held, limit = held_bytes(frame, i), frame.limit_bytes[i]
    short = (limit < SHORT_RATIO * held) | (frame.usage_bytes[i] > FULL_RATIO * limit)
    short = short & (held >= LEAST_BYTES)
    short_s = where(short, sharing.short_s[i] + elapsed_s, 0.0)
    sharing.short_s[i] = where(known, short_s, sharing.short_s[i])
    seen = known & (short_s >= numbers.thrash_notice_s)
    seen = seen & (stall >= numbers.thrash_stall_share)
    seen = seen & (refaults >= numbers.thrash_refaults_per_s)
    sharing.thrashed_s[i] = where(seen, frame.time_s, sharing.thrashed_s[i])
    return frame.time_s - sharing.thrashed_s[i] <= numbers.thrash_remember_s


@model
def wanted_bytes(frame: Frame, numbers: Numbers, i: int) -> float:
    """Return what a group wants: what it holds, with headroom."""
    return held_bytes(frame, i) * (1.0 + numbers.headroom_share) + numbers.headroom_mib * MIB


@model
def held_bytes(frame: Frame, i: int) -> float:
    """Return what a group holds in memory and in swap."""
    return frame.usage_bytes[i] + frame.swap_bytes[i]


@model
def free_bytes(frame: Frame) -> float:
    """Return the free memory of the zone."""
    return maximum(frame.zone_limit_bytes - frame.zone_usage_bytes, 0.0)
