"""What a node in the twin would report: raw frames for many, a sample for one."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import PROFILES
from stallward.agent.raw import NODE, SLOT, RawFrame
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    ProcessSample,
    PsiTotals,
    Sample,
    SlotState,
)
from stallward.env.twin.core import TwinBatch
from stallward.env.twin.levers import LeverStates
from stallward.env.twin.pages import ANON, FILE, GROUPS
from stallward.env.twin.scenario import PAGE_BYTES

Array = NDArray[np.float64]
FIRST_PID: Final = 1000
"""Slot ``i`` of a twin node runs as one process with the pid ``FIRST_PID + i``."""
_OOM_SCORE_FULL: Final = 1000


def fill_frame(frame: RawFrame, twin: TwinBatch, levers: LeverStates, profile: Array) -> None:
    """Fill ``frame`` (of the twin's batch) with what the nodes report now.

    Args:
        frame: To be filled.
        twin: The nodes.
        levers: Their levers.
        profile: Index of the tuning profile in force, ``(B,)``.
    """
    c = twin.columns
    used = twin.memory.resident.sum(axis=1)
    total = used.sum(axis=0)
    completed, mean, p95, worst, age = twin.application.reported
    swapped = (twin.memory.wanted[:, ANON] - twin.memory.resident[:, ANON]).sum(axis=0)
    files = twin.memory.resident[:, FILE:].sum(axis=1)
    values: dict[str, Array] = {
        "time_s": twin.time_s,
        "zone_psi_memory_some_us": twin.counters.psi_some_us[GROUPS],
        "zone_psi_memory_full_us": twin.counters.psi_full_us[GROUPS],
        "zone_psi_io_some_us": twin.counters.psi_io_us[GROUPS],
        "zone_psi_cpu_some_us": twin.counters.cpu_stall_us,
        "zone_usage_bytes": total * PAGE_BYTES,
        "zone_limit_bytes": c.zone_pages * PAGE_BYTES,
        "zone_file_bytes": files.sum(axis=0) * PAGE_BYTES,
        "zone_dirty_bytes": twin.memory.dirty.sum(axis=0) * PAGE_BYTES,
        "swap_used_ratio": swapped / np.maximum(c.swap_pages, 1.0),
        "swap_in_pages": twin.counters.swap_in_pages,
        "swap_out_pages": twin.counters.swap_out_pages,
        "protected_psi_memory_some_us": twin.counters.psi_some_us[0],
        "protected_psi_memory_full_us": twin.counters.psi_full_us[0],
        "protected_psi_io_some_us": twin.counters.psi_io_us[0],
        "protected_usage_bytes": used[0] * PAGE_BYTES,
        "protected_file_bytes": files[0] * PAGE_BYTES,
        "protected_refault_pages": twin.counters.refault_pages[0],
        "protected_major_faults": twin.counters.major_faults[0],
        "latency_completed": completed,
        "latency_mean_ms": mean,
        "latency_p95_ms": p95,
        "latency_max_ms": worst,
        "latency_age_s": age,
        "profile_index": profile,
    }
    for name, value in values.items():
        frame.node[:, NODE[name]] = value
    slot_values: dict[str, Array] = {
        "present": c.there,
        "psi_memory_some_us": twin.counters.psi_some_us[1:GROUPS],
        "psi_io_some_us": twin.counters.psi_io_us[1:GROUPS],
        "usage_bytes": used[1:] * PAGE_BYTES,
        "anon_bytes": twin.memory.resident[1:, ANON] * PAGE_BYTES,
        "file_bytes": files[1:] * PAGE_BYTES,
        "swap_bytes": (twin.memory.wanted[1:, ANON] - twin.memory.resident[1:, ANON]) * PAGE_BYTES,
        "refault_pages": twin.counters.refault_pages[1:],
        "cpu_usage_us": twin.counters.cpu_us[1:],
        "paused": levers.paused.astype(np.float64),
        "paused_for_s": levers.paused_for_s,
        "since_thaw_s": levers.since_thaw_s,
        "paused_share": levers.paused_share,
        "limit_bytes": levers.limit_bytes,
        "reference_bytes": levers.reference_bytes,
    }
    for name, value in slot_values.items():
        frame.slots[:, :, SLOT[name]] = value.T
    frame.slots[c.there.T == 0, 1:] = np.nan


def held_bytes(twin: TwinBatch) -> Array:
    """What each slot holds in memory and swap, ``(SLOTS, B)``."""
    # What is not resident of the file pools is on disk anyway.
    pages = twin.memory.wanted[1:, ANON] + twin.memory.resident[1:, FILE:].sum(axis=1)
    return np.asarray(pages * PAGE_BYTES)


def _count(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def to_sample(
    frame: RawFrame, row: int, sequence: int, twin: TwinBatch, stopped: frozenset[int]
) -> Sample:
    """One node's sample, processes included.

    Args:
        frame: As filled by :func:`fill_frame`.
        row: Which node.
        sequence: The tick's number.
        twin: Where the frame came from.
        stopped: Slots whose process is stopped.
    """
    node, slots = frame.node[row], frame.slots[row]
    scenario = twin.columns.table.scenarios[int(twin.columns.scenario[row])]
    latency_known = not np.isnan(node[NODE["latency_age_s"]])
    present = range(len(scenario.slots))
    swap_total = scenario.swap_bytes
    swap_free = int(swap_total * (1.0 - node[NODE["swap_used_ratio"]]))
    zone_limit = scenario.zone_bytes
    return Sample(
        sequence=sequence,
        time_s=float(node[NODE["time_s"]]),
        node=NodeSample(
            psi=_psi(node, "zone_"),
            memory_total_bytes=zone_limit,
            memory_available_bytes=_available(node, zone_limit),
            swap_total_bytes=swap_total,
            swap_free_bytes=swap_free,
            swap_in_pages=_count(node[NODE["swap_in_pages"]]),
            swap_out_pages=_count(node[NODE["swap_out_pages"]]),
        ),
        zone=GroupSample(
            name="zone",
            psi=_psi(node, "zone_"),
            memory_usage_bytes=_count(node[NODE["zone_usage_bytes"]]),
            memory_limit_bytes=zone_limit,
            file_bytes=_count(node[NODE["zone_file_bytes"]]),
            inactive_file_bytes=_count(0.5 * node[NODE["zone_file_bytes"]]),
            dirty_bytes=_count(node[NODE["zone_dirty_bytes"]]),
            writeback_bytes=0,
            swap_bytes=swap_total - swap_free,
        ),
        protected=GroupSample(
            name="protected",
            psi=_psi(node, "protected_"),
            memory_usage_bytes=_count(node[NODE["protected_usage_bytes"]]),
            file_bytes=_count(node[NODE["protected_file_bytes"]]),
            refault_file_pages=_count(node[NODE["protected_refault_pages"]]),
            major_faults=_count(node[NODE["protected_major_faults"]]),
            frozen=False,
        ),
        slots=tuple(_group(slots[i], scenario.slots[i].name) for i in present),
        slot_states=tuple(_state(slots[i]) for i in present),
        latency=LatencySample(
            completed=int(node[NODE["latency_completed"]]),
            mean_ms=_number(node[NODE["latency_mean_ms"]]),
            p95_ms=_number(node[NODE["latency_p95_ms"]]),
            max_ms=_number(node[NODE["latency_max_ms"]]),
            last_completion_age_s=_number(node[NODE["latency_age_s"]]),
        )
        if latency_known
        else LatencySample(),
        processes=tuple(
            _process(i, slots[i], zone_limit, i in stopped)
            for i in present
            if twin.columns.present[i, row] > 0
        ),
        profile=PROFILES[int(node[NODE["profile_index"]])].name,
    )


def _psi(node: Array, prefix: str) -> PsiTotals:
    full = f"{prefix}psi_memory_full_us"
    cpu = f"{prefix}psi_cpu_some_us"
    return PsiTotals(
        memory_some_us=_count(node[NODE[f"{prefix}psi_memory_some_us"]]),
        memory_full_us=_count(node[NODE[full]]),
        io_some_us=_count(node[NODE[f"{prefix}psi_io_some_us"]]),
        cpu_some_us=_count(node[NODE[cpu]]) if cpu in NODE else None,
    )


def _available(node: Array, zone_limit: int) -> int:
    used = node[NODE["zone_usage_bytes"]] - 0.5 * node[NODE["zone_file_bytes"]]
    return max(int(zone_limit - used), 0)


def _group(row: Array, name: str) -> GroupSample:
    return GroupSample(
        name=name,
        psi=PsiTotals(
            memory_some_us=_count(row[SLOT["psi_memory_some_us"]]),
            memory_full_us=_count(row[SLOT["psi_memory_some_us"]]),
            io_some_us=_count(row[SLOT["psi_io_some_us"]]),
        ),
        memory_usage_bytes=_count(row[SLOT["usage_bytes"]]),
        memory_limit_bytes=_count(row[SLOT["limit_bytes"]]),
        anon_bytes=_count(row[SLOT["anon_bytes"]]),
        file_bytes=_count(row[SLOT["file_bytes"]]),
        swap_bytes=_count(row[SLOT["swap_bytes"]]),
        refault_anon_pages=_count(row[SLOT["refault_pages"]]),
        cpu_usage_us=_count(row[SLOT["cpu_usage_us"]]),
        frozen=bool(row[SLOT["paused"]]),
    )


def _state(row: Array) -> SlotState:
    return SlotState(
        paused=bool(row[SLOT["paused"]]),
        paused_for_s=float(row[SLOT["paused_for_s"]]),
        since_thaw_s=float(row[SLOT["since_thaw_s"]]),
        paused_share=float(row[SLOT["paused_share"]]),
        limit_bytes=_count(row[SLOT["limit_bytes"]]),
        reference_bytes=_count(row[SLOT["reference_bytes"]]),
    )


def _process(slot: int, row: Array, zone_limit: int, stopped: bool) -> ProcessSample:
    # As the kernel scores: resident and swapped anonymous memory against what there is.
    held = row[SLOT["usage_bytes"]] + row[SLOT["swap_bytes"]]
    return ProcessSample(
        pid=FIRST_PID + slot,
        start_time_ticks=slot,
        slot=slot,
        oom_score=int(min(_OOM_SCORE_FULL * held / (2 * zone_limit), 1999)),
        stopped=stopped,
        rss_bytes=int(row[SLOT["usage_bytes"]]),
    )
