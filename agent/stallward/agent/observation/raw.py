"""Samples as rows of numbers: the form that the node, the twin and recordings share.

A :class:`RawFrame` holds the raw counters of one tick. On a node it is made from a
:class:`~stallward.agent.sample.Sample`; twins and recordings make it directly. A value that is
absent is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from stallward.agent.desired import PROFILES, SLOTS
from stallward.agent.sample import GroupSample, PsiTotals, Sample, SlotState, or_nan

NODE_COLUMNS: Final = (
    "time_s",
    "zone_psi_memory_some_us",
    "zone_psi_memory_full_us",
    "zone_psi_io_some_us",
    "zone_psi_cpu_some_us",
    "zone_usage_bytes",
    "zone_limit_bytes",
    "zone_file_bytes",
    "zone_dirty_bytes",
    "swap_used_ratio",
    "swap_in_pages",
    "swap_out_pages",
    "protected_psi_memory_some_us",
    "protected_psi_memory_full_us",
    "protected_psi_io_some_us",
    "protected_usage_bytes",
    "protected_file_bytes",
    "protected_anon_bytes",
    "protected_swap_bytes",
    "protected_working_set_bytes",
    "protected_refault_pages",
    "protected_major_faults",
    "latency_completed",
    "latency_mean_ms",
    "latency_p95_ms",
    "latency_max_ms",
    "latency_age_s",
    "profile_index",
)
SLOT_COLUMNS: Final = (
    "present",
    "psi_memory_some_us",
    "psi_io_some_us",
    "usage_bytes",
    "anon_bytes",
    "file_bytes",
    "swap_bytes",
    "refault_pages",
    "cpu_usage_us",
    "paused",
    "paused_for_s",
    "since_thaw_s",
    "paused_share",
    "limit_bytes",
    "reference_bytes",
)
NODE: Final = {name: i for i, name in enumerate(NODE_COLUMNS)}
SLOT: Final = {name: i for i, name in enumerate(SLOT_COLUMNS)}
_NO_PSI: Final = PsiTotals()
_NO_SLOT: Final = [0.0 if name == "present" else math.nan for name in SLOT_COLUMNS]
_PROFILE_INDEX: Final = {profile.name: i for i, profile in enumerate(PROFILES)}


@dataclass(slots=True)
class RawFrame:
    """The raw counters of one tick."""

    node: list[float]
    """One number for each of ``NODE_COLUMNS``."""
    slots: list[list[float]]
    """For each of ``SLOTS``, one number for each of ``SLOT_COLUMNS``. An absent slot has
    ``present`` 0 and NaN for the rest."""

    @classmethod
    def empty(cls) -> RawFrame:
        """A frame in which everything is absent."""
        slots = [list(_NO_SLOT) for _ in range(SLOTS)]
        return cls(node=[math.nan] * len(NODE_COLUMNS), slots=slots)


def _sum(*values: int | None) -> float:
    """The sum of the values that are present; NaN when none is."""
    present = [v for v in values if v is not None]
    return float(sum(present)) if present else math.nan


def _slot_row(group: GroupSample, state: SlotState) -> list[float]:
    if not group.bound:
        return _NO_SLOT
    return [
        1.0,
        or_nan(group.psi.memory_some_us),
        or_nan(group.psi.io_some_us),
        or_nan(group.memory_usage_bytes),
        or_nan(group.anon_bytes),
        or_nan(group.file_bytes),
        or_nan(group.swap_bytes),
        _sum(group.refault_file_pages, group.refault_anon_pages),
        or_nan(group.cpu_usage_us),
        float(state.paused),
        state.paused_for_s,
        state.since_thaw_s,
        state.paused_share,
        or_nan(state.limit_bytes),
        or_nan(state.reference_bytes),
    ]


def _protected_psi(sample: Sample) -> PsiTotals:
    """The stall totals of the protected application; the zone's where it runs but has none.

    A process tree has no PSI of its own. The zone's ``some`` is never less than that of a part of
    it, and stopped processes do not stall, so a policy errs on the side of protecting. The zone's
    ``full`` is only similar: it needs every task in the zone to stall at once.
    """
    protected = sample.protected
    if protected.psi == _NO_PSI and protected.memory_usage_bytes is not None:
        return sample.zone.psi
    return protected.psi


def to_raw(sample: Sample) -> RawFrame:
    """The raw frame of one sample."""
    zone, protected, node, latency = sample.zone, sample.protected, sample.node, sample.latency
    psi = _protected_psi(sample)
    zone_limit = zone.memory_limit_bytes or node.memory_total_bytes
    swap_used = math.nan
    if node.swap_total_bytes and node.swap_free_bytes is not None:
        swap_used = 1.0 - node.swap_free_bytes / node.swap_total_bytes
    row = [
        sample.time_s,
        or_nan(zone.psi.memory_some_us),
        or_nan(zone.psi.memory_full_us),
        or_nan(zone.psi.io_some_us),
        or_nan(zone.psi.cpu_some_us),
        or_nan(zone.memory_usage_bytes),
        or_nan(zone_limit),
        or_nan(zone.file_bytes),
        _sum(zone.dirty_bytes, zone.writeback_bytes),
        swap_used,
        or_nan(node.swap_in_pages),
        or_nan(node.swap_out_pages),
        or_nan(psi.memory_some_us),
        or_nan(psi.memory_full_us),
        or_nan(psi.io_some_us),
        or_nan(protected.memory_usage_bytes),
        or_nan(protected.file_bytes),
        or_nan(protected.anon_bytes),
        or_nan(protected.swap_bytes),
        or_nan(protected.working_set_bytes),
        _sum(protected.refault_file_pages, protected.refault_anon_pages),
        or_nan(protected.major_faults),
        or_nan(latency.completed if latency else None),
        or_nan(latency.mean_ms if latency else None),
        or_nan(latency.p95_ms if latency else None),
        or_nan(latency.max_ms if latency else None),
        or_nan(latency.last_completion_age_s if latency else None),
        float(_PROFILE_INDEX.get(sample.profile, 0)),
    ]
    pairs = zip(sample.slots[:SLOTS], sample.slot_states[:SLOTS], strict=True)
    slots = [_slot_row(group, state) for group, state in pairs]
    slots += [_NO_SLOT] * (SLOTS - len(slots))
    return RawFrame(node=row, slots=slots)
