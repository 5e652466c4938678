"""What shows that memory is short, or would be if nothing were held back. Pure.

What holding back itself causes is no sign. A limit makes its group stall, refault and swap, and so
does the way back of what was swapped, and the stall of the zone includes that of its groups. If
that counted, holds would explain themselves. What memory has no part in is no sign either, such as
files that are read for the first time, or kswapd on a machine whose memory is full of files.

Where pressure cannot be seen at all, that counts as a sign: releasing what was needed costs the
application more than holding back for nothing costs the background.

docs/reference/guard.md has the reasons.
"""

from __future__ import annotations

from typing import Final

from stallward.agent.sample import Sample

STALL_SHARE: Final = 0.01
"""The share of the time since the last tick from which a stall on memory is a sign."""
REFAULTS_PER_S: Final = 100.0
"""The refaults of the application from which they are a sign."""
DIRECT_SCANS_PER_S: Final = 100.0
"""The pages that the machine's own tasks have to scan for memory, from which that is a sign."""
SPARE_PART: Final = 10
"""Memory is short when less than this part of it, a tenth, would be left if everything were
released."""

Totals = tuple[int | None, int | None, int | None, int | None]
"""Stall of the application and of the zone in microseconds, the application's refaults, and the
machine's direct scans; each counts up, and is ``None`` where it was not read yet."""
NO_TOTALS: Final[Totals] = (None, None, None, None)
"""What is known before the first sample."""


def read_totals(sample: Sample) -> Totals:
    """The totals of a sample."""
    protected, node = sample.protected, sample.node
    return (
        protected.psi.memory_some_us,
        sample.zone.psi.memory_some_us,
        protected.refaulted_pages,
        node.scan_direct_pages,
    )


def newest(now: Totals, before: Totals) -> Totals:
    """The newest totals; those that cannot be read now keep their last value."""
    if None not in now:
        return now
    stall, zone_stall, refaults, scans = now
    return (
        before[0] if stall is None else stall,
        before[1] if zone_stall is None else zone_stall,
        before[2] if refaults is None else refaults,
        before[3] if scans is None else scans,
    )


def is_sign(
    sample: Sample,
    *,
    before: Totals,
    now: Totals,
    passed_s: float,
    disturbed: bool,
    zone_limit_bytes: int | None,
) -> bool:
    """Whether a sample is a sign of memory pressure, also where pressure cannot be seen at all.

    Args:
        sample: The sample.
        before: The totals at the last tick.
        now: The totals of this sample.
        passed_s: The time since the last tick.
        disturbed: Whether memory was taken from a slot in the last hour, so that the zone's
            stall may be that slot's, which reads back what was swapped.
        zone_limit_bytes: The memory of the zone, used where the sample does not have it.
    """
    seen = _grew_by_a_sign(before, now, passed_s, disturbed=disturbed)
    short = _would_be_short(sample, zone_limit_bytes)
    return seen is None or seen or short is None or short


def _grew_by_a_sign(
    before: Totals, now: Totals, passed_s: float, *, disturbed: bool
) -> bool | None:
    """Whether a total has grown so much that it is a sign; ``None`` if no stall can be seen."""
    least_us = STALL_SHARE * 1e6 * passed_s
    stall, zone_stall, refaults, scans = now
    if stall is None and refaults is None and (disturbed or zone_stall is None):
        return None
    return (
        _grew(before[0], stall, least_us)
        or (not disturbed and _grew(before[1], zone_stall, least_us))
        or _grew(before[2], refaults, REFAULTS_PER_S * passed_s)
        or _grew(before[3], scans, DIRECT_SCANS_PER_S * passed_s)
    )


def _grew(before: int | None, now: int | None, least: float) -> bool:
    return before is not None and now is not None and now - before > 0 and now - before >= least


def _would_be_short(sample: Sample, zone_limit_bytes: int | None) -> bool | None:
    """Whether the machine or the zone would be short of memory if nothing were held back.

    ``None`` if that is not known. Whole numbers are compared, since a broken sample may hold one
    that no float can.
    """
    wanted = _held_off_bytes(sample)
    node, zone = sample.node, sample.zone
    total, available = node.memory_total_bytes, node.memory_available_bytes
    short: bool | None = None
    if total and available is not None:
        short = SPARE_PART * (available - wanted) < total
    limit, used = zone.memory_limit_bytes or zone_limit_bytes, zone.memory_usage_bytes
    if short or not limit or (total and limit >= total):
        return short
    if used is None:
        return None
    used -= zone.inactive_file_bytes or 0
    return SPARE_PART * (limit - used - wanted) < limit


def _held_off_bytes(sample: Sample) -> int:
    """What the slots would use more if nothing held them back."""
    wanted = 0
    for group, state in zip(sample.slots, sample.slot_states, strict=False):
        usage, reference = group.memory_usage_bytes, state.reference_bytes
        if usage is not None and reference is not None and reference > usage:
            wanted += reference - usage
    return wanted
