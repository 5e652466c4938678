"""The danger, and what thrashes: the estimates of ``stallward.agent.sharing``."""

from __future__ import annotations

import math

from stallward.agent.desired import MIB
from stallward.agent.sharing.caution import (
    FORGET_S,
    LACKING_REFAULTS_PER_S,
    LACKING_STALL_SHARE,
    LATENCY_SMOOTHING_S,
    NEWEST_WEIGHT,
    REFAULT_SMOOTHING_S,
    STALL_SMOOTHING_S,
)
from stallward.agent.sharing.thrashing import FULL_RATIO, LEAST_BYTES, SHORT_RATIO, SMOOTHING_S
from stallward.env.simulation.sharing.state import Numbers, Sharing
from stallward.env.twin.frame import Frame
from stallward.env.twin.simd.elementary import exp
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.values import is_nan, maximum, minimum, where


@model
def update_danger(
    frame: Frame, sharing: Sharing, numbers: Numbers, elapsed_s: float, short: bool
) -> None:
    """Update the danger and the reserve.

    Args:
        frame: What the nodes report.
        sharing: The state of the rule.
        numbers: Its numbers.
        elapsed_s: The time since the tick before.
        short: Whether the zone has no more memory free than is kept.
    """
    _update_latency(frame, sharing, elapsed_s)
    stalled = frame.protected_psi_memory_some_us
    later = elapsed_s > 0.0
    passed_us = where(later, 1e6 * elapsed_s, 1.0)
    share = minimum(maximum(stalled - sharing.stalled_us, 0.0) / passed_us, 1.0)
    weight = 1.0 - exp(elapsed_s / -STALL_SMOOTHING_S)
    moved = sharing.stall_share + weight * (share - sharing.stall_share)
    sharing.stall_share = where(later, moved, sharing.stall_share)
    sharing.stalled_us = stalled
    ratio = where(is_nan(sharing.latency_ratio), 0.0, sharing.latency_ratio)
    sharing.danger = maximum(
        ratio / numbers.latency_high, sharing.stall_share / numbers.stall_high_share
    )
    reserve = sharing.reserve_share
    grown = minimum(reserve + numbers.reserve_per_s * elapsed_s, numbers.most_reserve_share)
    fallen = reserve * exp(elapsed_s / -numbers.reserve_release_s)
    in_danger = sharing.danger >= 1.0
    grows = short & _lacks_memory(frame, sharing, elapsed_s)
    sharing.reserve_share = where(in_danger, where(grows, grown, reserve), fallen)


@model
def _lacks_memory(frame: Frame, sharing: Sharing, elapsed_s: float) -> bool:
    """Whether the application waits for memory, or reads pages again that it had."""
    refaulted, later = frame.protected_refault_pages, elapsed_s > 0.0
    per_s = maximum(refaulted - sharing.refaulted, 0.0) / where(later, elapsed_s, 1.0)
    weight = 1.0 - exp(elapsed_s / -REFAULT_SMOOTHING_S)
    moved = sharing.refaults_per_s + weight * (per_s - sharing.refaults_per_s)
    sharing.refaults_per_s = where(later, moved, sharing.refaults_per_s)
    sharing.refaulted = refaulted
    stalls = sharing.stall_share >= LACKING_STALL_SHARE
    return stalls | (sharing.refaults_per_s >= LACKING_REFAULTS_PER_S)


@model
def _update_latency(frame: Frame, sharing: Sharing, elapsed_s: float) -> None:
    newest, age_s = frame.latency_p95_ms / frame.slo_ms, frame.latency_age_s
    silent = is_nan(newest)
    forgotten = is_nan(age_s) | (age_s > FORGET_S)
    begin = where(is_nan(sharing.mean_ratio), newest, sharing.mean_ratio)
    weight = 1.0 - exp(elapsed_s / -LATENCY_SMOOTHING_S)
    mean = begin + weight * (newest - begin)
    kept = where(forgotten, math.nan, sharing.mean_ratio)
    sharing.mean_ratio = where(silent, kept, mean)
    sharing.latency_ratio = where(silent, kept, maximum(mean, NEWEST_WEIGHT * newest))


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
