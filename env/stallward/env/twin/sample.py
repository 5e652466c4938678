"""Turns the frame of a twin node into a sample like that of a real node."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from stallward.actuator.sensors.combined_groups import CombinedGroups
from stallward.agent.applications import joint_latency
from stallward.agent.desired import PROFILES
from stallward.agent.observation.raw import NODE, SLOT, RawFrame
from stallward.agent.sample import (
    ApplicationSample,
    GroupSample,
    LatencySample,
    NodeSample,
    ProcessSample,
    PsiTotals,
    Sample,
    SlotState,
)
from stallward.env.twin.inputs.exogenous import Exogenous

FIRST_PID: Final = 1000
"""The program of slot ``i`` of a twin node is one process with the pid ``FIRST_PID + i``."""
_OOM_SCORE_FULL: Final = 1000


def _count(value: float) -> int | None:
    return None if math.isnan(value) else int(value)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def to_sample(
    frame: RawFrame,
    sequence: int,
    scenario: Exogenous,
    inactive_share: float,
    alive: frozenset[int],
    stopped: frozenset[int],
    refault_anon_pages: int,
) -> Sample:
    """Make the sample of one node, with its processes.

    Args:
        frame: The node's frame.
        sequence: The number of the tick.
        scenario: The exogenous description of the node.
        inactive_share: The share of file pages that is on the inactive list.
        alive: The slots whose process has not ended.
        stopped: The slots whose process is stopped.
        refault_anon_pages: The part of the protected group's refaults that came from swap.
    """
    node, slots = frame.node, frame.slots
    present = range(len(scenario.slots))
    swap_total = scenario.swap_bytes
    swap_free = int(swap_total * (1.0 - node[NODE["swap_used_ratio"]]))
    zone_limit = scenario.zone_bytes
    inactive = inactive_share * node[NODE["zone_file_bytes"]]
    return Sample(
        sequence=sequence,
        time_s=float(node[NODE["time_s"]]),
        node=NodeSample(
            psi=_psi(node, "zone_"),
            memory_total_bytes=zone_limit,
            memory_available_bytes=max(
                int(zone_limit - node[NODE["zone_usage_bytes"]] + inactive), 0
            ),
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
            inactive_file_bytes=_count(inactive),
            dirty_bytes=_count(node[NODE["zone_dirty_bytes"]]),
            writeback_bytes=0,
            swap_bytes=swap_total - swap_free,
        ),
        protected=protected_group(frame, refault_anon_pages),
        slots=tuple(_group(slots[i], scenario.slots[i].name) for i in present),
        slot_states=tuple(_state(slots[i]) for i in present),
        latency=latency_sample(frame),
        processes=tuple(
            _process(i, slots[i], scenario, i in stopped) for i in present if i in alive
        ),
        profile=PROFILES[int(node[NODE["profile_index"]])].name,
    )


def protected_group(frame: RawFrame, refault_anon_pages: int) -> GroupSample:
    """The group of a protected application, from the frame of its node or of its own records."""
    node = frame.node
    refaults = int(node[NODE["protected_refault_pages"]])
    return GroupSample(
        name="protected",
        psi=_psi(node, "protected_"),
        memory_usage_bytes=_count(node[NODE["protected_usage_bytes"]]),
        anon_bytes=_count(node[NODE["protected_anon_bytes"]]),
        file_bytes=_count(node[NODE["protected_file_bytes"]]),
        swap_bytes=_count(node[NODE["protected_swap_bytes"]]),
        working_set_bytes=_count(node[NODE["protected_working_set_bytes"]]),
        refault_file_pages=refaults - refault_anon_pages,
        refault_anon_pages=refault_anon_pages,
        major_faults=_count(node[NODE["protected_major_faults"]]),
        frozen=False,
    )


def latency_sample(frame: RawFrame) -> LatencySample:
    """The latencies of an application, from the same frame."""
    node = frame.node
    if math.isnan(node[NODE["latency_age_s"]]):
        return LatencySample()
    return LatencySample(
        completed=int(node[NODE["latency_completed"]]),
        mean_ms=_number(node[NODE["latency_mean_ms"]]),
        p95_ms=_number(node[NODE["latency_p95_ms"]]),
        max_ms=_number(node[NODE["latency_max_ms"]]),
        last_completion_age_s=_number(node[NODE["latency_age_s"]]),
    )


def with_applications(
    sample: Sample,
    applications: tuple[ApplicationSample, ...],
    combined: CombinedGroups,
    slo_ms: float,
) -> Sample:
    """The sample of a node with several applications, put together as on a real one.

    Args:
        sample: Its sample without them.
        applications: Each of them.
        combined: Makes one group of theirs, tick by tick.
        slo_ms: The target of the node.
    """
    groups = (replace(one.group, name=one.name, turn_read_s=sample.time_s) for one in applications)
    return replace(
        sample,
        protected=combined.combine(groups),
        latency=joint_latency(applications, slo_ms),
        applications=applications,
    )


def _psi(node: list[float], prefix: str) -> PsiTotals:
    full = f"{prefix}psi_memory_full_us"
    cpu = f"{prefix}psi_cpu_some_us"
    return PsiTotals(
        memory_some_us=_count(node[NODE[f"{prefix}psi_memory_some_us"]]),
        memory_full_us=_count(node[NODE[full]]),
        io_some_us=_count(node[NODE[f"{prefix}psi_io_some_us"]]),
        cpu_some_us=_count(node[NODE[cpu]]) if cpu in NODE else None,
    )


def _group(row: list[float], name: str) -> GroupSample:
    return GroupSample(
        name=name,
        psi=PsiTotals(
            memory_some_us=_count(row[SLOT["psi_memory_some_us"]]),
            memory_full_us=_count(row[SLOT["psi_memory_some_us"]]),
            io_some_us=_count(row[SLOT["psi_io_some_us"]]),
            io_full_us=_count(row[SLOT["psi_io_some_us"]]),
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


def _state(row: list[float]) -> SlotState:
    return SlotState(
        paused=bool(row[SLOT["paused"]]),
        paused_for_s=float(row[SLOT["paused_for_s"]]),
        since_thaw_s=float(row[SLOT["since_thaw_s"]]),
        paused_share=float(row[SLOT["paused_share"]]),
        limit_bytes=_count(row[SLOT["limit_bytes"]]),
        reference_bytes=_count(row[SLOT["reference_bytes"]]),
    )


def _process(slot: int, row: list[float], scenario: Exogenous, stopped: bool) -> ProcessSample:
    # Whole numbers, as in the kernel's proc_oom_score. So programs of a few hundred megabytes have
    # the same score on a machine of many gigabytes, and the oldest comes first.
    held_bytes = int(row[SLOT["usage_bytes"]] + row[SLOT["swap_bytes"]])
    badness = held_bytes * _OOM_SCORE_FULL // (scenario.memory_bytes + scenario.swap_bytes)
    return ProcessSample(
        pid=FIRST_PID + slot,
        start_time_ticks=slot,
        slot=slot,
        oom_score=(_OOM_SCORE_FULL + badness) * 2 // 3,
        stopped=stopped,
        rss_bytes=int(row[SLOT["usage_bytes"]]),
    )
