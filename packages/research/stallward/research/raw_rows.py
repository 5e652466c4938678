"""The raw frames of a recording, that observations are computed from, and its samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import PROFILES, SLOTS
from stallward.agent.observation.raw import NODE, NODE_COLUMNS, SLOT, SLOT_COLUMNS, RawFrame
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    PsiTotals,
    Sample,
    SlotState,
)
from stallward.env.recording.recording import Recording

Array = NDArray[np.float64]

_NODE_SUMS: Final[Mapping[str, tuple[str, ...]]] = {
    "zone_usage_bytes": ("zone_memory_usage_bytes",),
    "zone_limit_bytes": ("zone_memory_limit_bytes",),
    "zone_dirty_bytes": ("zone_dirty_bytes", "zone_writeback_bytes"),
    "swap_in_pages": ("node_swap_in_pages",),
    "swap_out_pages": ("node_swap_out_pages",),
    "protected_usage_bytes": ("protected_memory_usage_bytes",),
    "protected_refault_pages": ("protected_refault_file_pages", "protected_refault_anon_pages"),
    "latency_age_s": ("latency_last_completion_age_s",),
}
"""For raw columns of the node: the columns of a recording that add up to them."""
_SLOT_SUMS: Final[Mapping[str, tuple[str, ...]]] = {
    "usage_bytes": ("memory_usage_bytes",),
    "refault_pages": ("refault_file_pages", "refault_anon_pages"),
    **{
        name: (f"state_{name}",)
        for name in (
            "paused", "paused_for_s", "since_thaw_s", "paused_share", "limit_bytes",
            "reference_bytes",
        )
    },
}  # fmt: skip
"""For raw columns of a slot: the columns of a recording that add up to them, without prefix."""


def recorded_frames(recording: Recording) -> list[RawFrame]:
    """The raw frame of every tick, as it was on the node."""
    count = len(recording.ticks["time_s"])

    def total(names: tuple[str, ...]) -> Array:
        parts = np.array([recording.tick(name) for name in names])
        known = np.isfinite(parts).any(axis=0)
        return np.where(known, np.nansum(parts, axis=0), np.nan)

    node = np.full((count, len(NODE_COLUMNS)), np.nan)
    for name in NODE_COLUMNS:
        node[:, NODE[name]] = total(_NODE_SUMS.get(name, (name,)))
    swap = recording.tick("node_swap_total_bytes"), recording.tick("node_swap_free_bytes")
    node[:, NODE["swap_used_ratio"]] = 1.0 - swap[1] / np.where(swap[0] > 0.0, swap[0], np.nan)
    index = {profile.name: float(i) for i, profile in enumerate(PROFILES)}
    node[:, NODE["profile_index"]] = [index.get(str(p), 0.0) for p in recording.ticks["profile"]]
    slots = np.full((count, SLOTS, len(SLOT_COLUMNS)), np.nan)
    slots[:, :, SLOT["present"]] = 0.0
    for i in range(len(recording.run.slot_names)):
        for name in SLOT_COLUMNS:
            names = _SLOT_SUMS.get(name, (name,))
            slots[:, i, SLOT[name]] = total(tuple(f"slot{i}_{part}" for part in names))
        slots[:, i, SLOT["present"]] = 1.0
    return [RawFrame(node=n, slots=s) for n, s in zip(node.tolist(), slots.tolist(), strict=True)]


_NUMBERS: Final = {"int": int, "float": float, "bool": bool}


def recorded_samples(recording: Recording) -> list[Sample]:
    """The sample of every tick, without what recordings leave out: processes, threads, levers."""
    names, ticks = recording.run.slot_names, recording.ticks
    node = _read(recording, NodeSample, "node_")
    zone = _read(recording, GroupSample, "zone_", name="zone")
    protected = _read(recording, GroupSample, "protected_", name="protected")
    latency = _read(recording, LatencySample, "latency_")
    slots = [_read(recording, GroupSample, f"slot{i}_", name=n) for i, n in enumerate(names)]
    states = [_read(recording, SlotState, f"slot{i}_state_") for i in range(len(names))]
    return [
        Sample(
            sequence=k,
            time_s=time_s,
            node=node[k],
            zone=zone[k],
            protected=protected[k],
            slots=tuple(slot[k] for slot in slots),
            slot_states=tuple(state[k] for state in states),
            latency=latency[k] if "latency_completed" in ticks else None,
            profile=str(ticks["profile"][k]),
        )
        for k, time_s in enumerate(recording.tick("time_s").tolist())
    ]


def _read(recording: Recording, kind: type[Any], prefix: str, **given: Any) -> list[Any]:
    """One part of the sample at each tick; what was not recorded is absent in it."""
    rows: list[dict[str, Any]] = [dict(given) for _ in recording.ticks["time_s"]]
    for one in fields(kind):
        values: list[Any] = []
        if one.name == "psi":
            values = _read(recording, PsiTotals, f"{prefix}psi_")
        elif prefix + one.name in recording.ticks:
            number = _NUMBERS[str(one.type).partition(" ")[0]]
            column = recording.tick(prefix + one.name)
            values = [number(v) if np.isfinite(v) else None for v in column.tolist()]
        for row, value in zip(rows, values, strict=False):
            if value is not None:
                row[one.name] = value
    return [kind(**row) for row in rows]
