"""The frames of twin nodes: the raw columns that observations are computed from."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.agent.observation.raw import NODE_COLUMNS, SLOT, SLOT_COLUMNS, RawFrame
from stallward.env.twin.inputs.exogenous import PAGE_BYTES
from stallward.env.twin.physics import levers
from stallward.env.twin.physics.others import World, other_at
from stallward.env.twin.physics.pages import ANON, COLD, FILE, GROUPS, POOLS
from stallward.env.twin.physics.state import (
    COMPLETED,
    LAST_S,
    MAX_MS,
    MEAN_MS,
    P95_MS,
    Node,
    PerSlot,
)
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Layout
from stallward.env.twin.simd.records import reader
from stallward.env.twin.simd.values import is_nan, maximum, negate, where

Array = NDArray[np.float64]


class Frame:
    """The columns of :mod:`stallward.agent.observation.raw` in order, then scales of features."""

    time_s: float
    zone_psi_memory_some_us: float
    zone_psi_memory_full_us: float
    zone_psi_io_some_us: float
    zone_psi_cpu_some_us: float
    zone_usage_bytes: float
    zone_limit_bytes: float
    zone_file_bytes: float
    zone_dirty_bytes: float
    swap_used_ratio: float
    swap_in_pages: float
    swap_out_pages: float
    protected_psi_memory_some_us: float
    protected_psi_memory_full_us: float
    protected_psi_io_some_us: float
    protected_usage_bytes: float
    protected_file_bytes: float
    protected_anon_bytes: float
    protected_swap_bytes: float
    protected_working_set_bytes: float
    protected_refault_pages: float
    protected_major_faults: float
    latency_completed: float
    latency_mean_ms: float
    latency_p95_ms: float
    latency_max_ms: float
    latency_age_s: float
    profile_index: float
    present: PerSlot
    psi_memory_some_us: PerSlot
    psi_io_some_us: PerSlot
    usage_bytes: PerSlot
    anon_bytes: PerSlot
    file_bytes: PerSlot
    swap_bytes: PerSlot
    refault_pages: PerSlot
    cpu_usage_us: PerSlot
    paused: PerSlot
    paused_for_s: PerSlot
    since_thaw_s: PerSlot
    paused_share: PerSlot
    limit_bytes: PerSlot
    reference_bytes: PerSlot
    slo_ms: float
    usual_ms: float
    """The latency baseline; the encoder sets it, and the next three."""
    demand_bytes: float
    room_bytes: float
    wanted_bytes: float
    one: float
    five: float
    in_phase: PerSlot
    """1 in a phase; the encoder sets it, and the next two."""
    phase_bytes: PerSlot
    since_phase_change_s: PerSlot
    largest_anon_share: float
    """Where there are several applications: the largest share of anonymous memory of one; else 0."""


FRAME: Final = Layout(Frame)
frame_at: Final = reader(Frame, FRAME)


@model
def fill_frame(node: Node, frame: Frame, slots: int) -> None:
    """Set the frames of the nodes. For slots without a group, only ``present`` is set."""
    frame.time_s = node.time_s
    frame.slo_ms, frame.one, frame.five = node.slo_ms, 1.0, 5.0
    frame.zone_psi_memory_some_us = node.psi_some_us[GROUPS]
    frame.zone_psi_memory_full_us = node.psi_full_us[GROUPS]
    frame.zone_psi_io_some_us = node.psi_io_us[GROUPS]
    frame.zone_psi_cpu_some_us = node.cpu_stall_us
    frame.zone_limit_bytes = node.zone_pages * PAGE_BYTES
    frame.swap_in_pages = node.swap_in_pages
    frame.swap_out_pages = node.swap_out_pages
    frame.protected_psi_memory_some_us = node.psi_some_us[0]
    frame.protected_psi_memory_full_us = node.psi_full_us[0]
    frame.protected_psi_io_some_us = node.psi_io_us[0]
    frame.protected_refault_pages = node.refault_pages[0]
    frame.protected_major_faults = node.major_faults
    frame.latency_completed = node.reported[COMPLETED]
    frame.latency_mean_ms = node.reported[MEAN_MS]
    frame.latency_p95_ms = node.reported[P95_MS]
    frame.latency_max_ms = node.reported[MAX_MS]
    frame.latency_age_s = node.time_s - node.reported[LAST_S]
    frame.profile_index = node.profile
    file = node.resident[FILE] + node.resident[COLD]
    used, dirty = node.resident[ANON] + file, node.dirty[0]
    swapped = node.wanted[ANON] - node.resident[ANON]
    frame.protected_usage_bytes = used * PAGE_BYTES
    frame.protected_file_bytes = file * PAGE_BYTES
    frame.protected_anon_bytes = node.resident[ANON] * PAGE_BYTES
    frame.protected_swap_bytes = swapped * PAGE_BYTES
    frame.protected_working_set_bytes = node.working_set_pages * PAGE_BYTES
    for i in range(slots):
        _fill_slot(node, frame, i)
        file = file + frame.file_bytes[i] / PAGE_BYTES
        used = used + frame.usage_bytes[i] / PAGE_BYTES
        swapped = swapped + frame.swap_bytes[i] / PAGE_BYTES
        dirty = dirty + node.dirty[1 + i]
    for i in range(slots, SLOTS):
        frame.present[i] = 0.0
    frame.zone_usage_bytes = used * PAGE_BYTES
    frame.zone_file_bytes = file * PAGE_BYTES
    frame.zone_dirty_bytes = dirty * PAGE_BYTES
    frame.swap_used_ratio = swapped / maximum(node.swap_pages, 1.0)


@model
def add_others(world: World, node: Node, frame: Frame, at: int, others: int) -> None:
    """Add the further applications to filled frames: all are one group for who decides.

    Sizes and counters add up, a stall is that of the application that stalled most, and the
    latencies are those of the one that is farthest from its target. A test holds this to
    :mod:`stallward.agent.applications`, which says so of samples.
    """
    if others > 0:
        frame.protected_psi_memory_some_us = node.joint_stall_us
        frame.protected_psi_memory_full_us = node.joint_stall_us
        frame.protected_psi_io_some_us = node.joint_io_us
        several = other_at(world, at, 1).has_application > 0.0
        frame.largest_anon_share = where(several, anon_share(node), 0.0)
        farthest = frame.latency_p95_ms / node.slo_ms
        for a in range(1, 1 + others):
            other = other_at(world, at, a)
            there = other.has_application > 0.0
            _add_pages(node, other, frame)
            frame.largest_anon_share = maximum(frame.largest_anon_share, anon_share(other))
            mine = other.working_set_pages * PAGE_BYTES
            both = frame.protected_working_set_bytes + mine
            frame.protected_working_set_bytes = where(
                there, both, frame.protected_working_set_bytes
            )
            frame.latency_completed = frame.latency_completed + other.reported[COMPLETED]
            distance = other.reported[P95_MS] / other.slo_ms
            known = there & negate(is_nan(distance))
            chosen = known & (is_nan(farthest) | (distance > farthest))
            farthest = where(chosen, distance, farthest)
            scale = node.slo_ms / other.slo_ms
            mean_ms, p95_ms = other.reported[MEAN_MS] * scale, other.reported[P95_MS] * scale
            max_ms, age_s = other.reported[MAX_MS] * scale, node.time_s - other.reported[LAST_S]
            frame.latency_mean_ms = where(chosen, mean_ms, frame.latency_mean_ms)
            frame.latency_p95_ms = where(chosen, p95_ms, frame.latency_p95_ms)
            frame.latency_max_ms = where(chosen, max_ms, frame.latency_max_ms)
            frame.latency_age_s = where(chosen, age_s, frame.latency_age_s)


@model
def anon_share(node: Node) -> float:
    """Return the share of anonymous pages, in swap or not, of what an application holds."""
    file = node.resident[FILE] + node.resident[COLD]
    return node.wanted[ANON] / maximum(node.wanted[ANON] + file, 1.0)


@model
def _add_pages(node: Node, other: Node, frame: Frame) -> None:
    anon = other.resident[ANON]
    file = other.resident[FILE] + other.resident[COLD]
    swapped = other.wanted[ANON] - anon
    used_bytes, file_bytes = (anon + file) * PAGE_BYTES, file * PAGE_BYTES
    frame.protected_usage_bytes = frame.protected_usage_bytes + used_bytes
    frame.protected_file_bytes = frame.protected_file_bytes + file_bytes
    frame.protected_anon_bytes = frame.protected_anon_bytes + anon * PAGE_BYTES
    frame.protected_swap_bytes = frame.protected_swap_bytes + swapped * PAGE_BYTES
    frame.protected_refault_pages = frame.protected_refault_pages + other.refault_pages[0]
    frame.protected_major_faults = frame.protected_major_faults + other.major_faults
    frame.zone_usage_bytes = frame.zone_usage_bytes + used_bytes
    frame.zone_file_bytes = frame.zone_file_bytes + file_bytes
    frame.swap_used_ratio = frame.swap_used_ratio + swapped / maximum(node.swap_pages, 1.0)


@model
def _fill_slot(node: Node, frame: Frame, i: int) -> None:
    first, group = (1 + i) * POOLS, 1 + i
    anon = node.resident[first + ANON]
    file = node.resident[first + FILE] + node.resident[first + COLD]
    frame.present[i] = node.has_group[i]
    frame.psi_memory_some_us[i] = node.psi_some_us[group]
    frame.psi_io_some_us[i] = node.psi_io_us[group]
    frame.usage_bytes[i] = (anon + file) * PAGE_BYTES
    frame.anon_bytes[i] = anon * PAGE_BYTES
    frame.file_bytes[i] = file * PAGE_BYTES
    frame.swap_bytes[i] = (node.wanted[first + ANON] - anon) * PAGE_BYTES
    frame.refault_pages[i] = node.refault_pages[group]
    frame.cpu_usage_us[i] = node.cpu_us[group]
    frame.paused[i] = node.paused[i]
    frame.paused_for_s[i] = node.paused_for_s[i]
    frame.since_thaw_s[i] = node.since_thaw_s[i]
    frame.paused_share[i] = levers.paused_share(node, i)
    frame.limit_bytes[i] = node.limit_bytes[i]
    frame.reference_bytes[i] = levers.reference_bytes(node, i)


def raw_frames(frames: Array, index: NDArray[np.int64]) -> list[RawFrame]:
    """Return the frames of the nodes ``index`` in a real node's form: absent slots are NaN."""
    rows = frames[index // WIDTH, :, index % WIDTH]
    count = len(NODE_COLUMNS)
    by_slot = rows[:, count : count + SLOTS * len(SLOT_COLUMNS)]
    slots = by_slot.reshape(len(index), len(SLOT_COLUMNS), SLOTS).swapaxes(1, 2).copy()
    slots[slots[:, :, SLOT["present"]] == 0.0, 1:] = np.nan
    pairs = zip(rows[:, :count].tolist(), slots.tolist(), strict=True)
    return [RawFrame(node=node_row, slots=slot_rows) for node_row, slot_rows in pairs]
