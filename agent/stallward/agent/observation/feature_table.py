"""The features of one frame: names, meanings, and what each is computed from.

A feature is a number of order one: shares as they are, rates and ratios through a logarithm.
What is absent is 0 and, for latency and slots, flagged by a feature of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Final

from stallward.agent.desired import PROFILES, SLOTS


class Kind(IntEnum):
    """How a feature comes from its raw column."""

    STALL = 0
    """Growth of a counter of microseconds per time passed."""
    RATE = 1
    """log(1 + growth of a counter per second) / 10."""
    LOG = 2
    """log2(1 + value / scale) / fold."""
    OVER = 3
    """log2(value / scale) / fold, 0 up to the scale."""
    RATIO = 4
    """value / scale."""
    LIMIT = 5
    """value / scale, 1 without a value."""
    ROOM = 6
    """value / scale, ``most`` where the scale is 0."""
    FLAG = 7
    """1 if the value is above 0, else 0."""
    PROFILE = 8
    """1 if the value is the index of the profile, else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One number of a frame: min(what its kind says, most) * gain."""

    name: str
    meaning: str
    column: str
    """The raw column, of the node or of the slot."""
    kind: Kind
    scale: str = "one"
    """A raw column (of the node or of the same slot) or a constant of :data:`CONSTANTS`."""
    fold: float = 1.0
    most: float = math.inf
    gain: float = 1.0
    remembered: bool = False
    """Whether its fast and slow moving averages are part of the observation."""


CONSTANTS: Final = {
    "one": 1.0,
    "five": 5.0,
    "slo_ms": math.nan,
    "usual_ms": math.nan,
    "demand_bytes": 0.0,
    "room_bytes": 0.0,
    "wanted_bytes": 0.0,
}
"""Columns and scales that are no raw column. ``slo_ms``, the latency target, is each node's own,
and so are those that change: ``usual_ms`` (:mod:`stallward.agent.observation.latency_baseline`),
``demand_bytes`` (:mod:`stallward.agent.observation.demand`), ``room_bytes``, what the demand
leaves of the zone, and ``wanted_bytes``, what the slots hold in memory and in swap."""

_stall = partial(Feature, kind=Kind.STALL, most=1.0)
_rate = partial(Feature, kind=Kind.RATE)
_of_limit = partial(Feature, kind=Kind.RATIO, scale="zone_limit_bytes", most=2.0)
_of_slo = partial(Feature, kind=Kind.LOG, scale="slo_ms", fold=4.0, most=3.0)
_of_usual = partial(Feature, kind=Kind.OVER, scale="usual_ms", fold=4.0, most=3.0)
_duration = partial(Feature, kind=Kind.RATIO, scale="five", most=2.0)
_plain = partial(Feature, kind=Kind.RATIO)

NODE_FEATURES: Final = (
    _stall(
        name="zone_psi_memory_some_share",
        column="zone_psi_memory_some_us",
        meaning="zone memory `some` stall, share of time",
    ),
    _stall(
        name="zone_psi_memory_full_share",
        column="zone_psi_memory_full_us",
        meaning="zone memory `full` stall, share of time",
        remembered=True,
    ),
    _stall(
        name="zone_psi_io_some_share",
        column="zone_psi_io_some_us",
        meaning="zone io `some` stall, share of time",
    ),
    _stall(
        name="zone_psi_cpu_some_share",
        column="zone_psi_cpu_some_us",
        meaning="zone cpu `some` stall, share of time",
    ),
    _of_limit(
        name="zone_usage_ratio", column="zone_usage_bytes", meaning="zone memory used / limit"
    ),
    _of_limit(name="zone_file_ratio", column="zone_file_bytes", meaning="zone file pages / limit"),
    _of_limit(
        name="zone_dirty_ratio",
        column="zone_dirty_bytes",
        meaning="zone dirty and writeback / limit, times 10",
        gain=10.0,
    ),
    _plain(name="swap_used_ratio", column="swap_used_ratio", meaning="swap used / total"),
    _rate(name="swap_in_rate", column="swap_in_pages", meaning="log(1 + pages/s swapped in) / 10"),
    _rate(
        name="swap_out_rate",
        column="swap_out_pages",
        meaning="log(1 + pages/s swapped out) / 10",
    ),
    _stall(
        name="protected_psi_memory_some_share",
        column="protected_psi_memory_some_us",
        meaning="protected memory `some` stall, share of time",
        remembered=True,
    ),
    _stall(
        name="protected_psi_memory_full_share",
        column="protected_psi_memory_full_us",
        meaning="protected memory `full` stall, share of time",
    ),
    _stall(
        name="protected_psi_io_some_share",
        column="protected_psi_io_some_us",
        meaning="protected io `some`, share of time",
    ),
    _of_limit(
        name="protected_usage_ratio",
        column="protected_usage_bytes",
        meaning="protected memory used / zone limit",
    ),
    _of_limit(
        name="protected_file_ratio",
        column="protected_file_bytes",
        meaning="protected file pages / zone limit",
    ),
    _of_limit(
        name="protected_anon_ratio",
        column="protected_anon_bytes",
        meaning="protected anonymous pages in memory / zone limit",
        remembered=True,
    ),
    _of_limit(
        name="protected_swap_ratio",
        column="protected_swap_bytes",
        most=0.5,
        gain=10.0,
        meaning="protected pages in swap / zone limit, at most 0.5, times 10",
        remembered=True,
    ),
    _of_limit(
        name="demand_ratio",
        column="demand_bytes",
        meaning="demand (the most memory that the application was seen to need) / zone limit",
        remembered=True,
    ),
    Feature(
        name="room_ratio",
        column="room_bytes",
        kind=Kind.ROOM,
        scale="wanted_bytes",
        most=2.0,
        meaning="zone limit without demand / what the slots hold and have in swap, at most 2;"
        " 2 if that is nothing",
        remembered=True,
    ),
    _rate(
        name="protected_refault_rate",
        column="protected_refault_pages",
        meaning="log(1 + protected refaults/s) / 10",
        remembered=True,
    ),
    _rate(
        name="protected_fault_rate",
        column="protected_major_faults",
        meaning="log(1 + protected major faults/s) / 10",
    ),
    Feature(
        name="latency_known",
        column="latency_completed",
        kind=Kind.FLAG,
        meaning="1 if requests completed in the window, else 0",
    ),
    _of_slo(
        name="latency_mean_ratio",
        column="latency_mean_ms",
        meaning="log2(1 + mean latency / SLO) / 4",
        remembered=True,
    ),
    _of_slo(
        name="latency_p95_ratio",
        column="latency_p95_ms",
        meaning="log2(1 + p95 latency / SLO) / 4",
        remembered=True,
    ),
    _of_slo(
        name="latency_max_ratio",
        column="latency_max_ms",
        meaning="log2(1 + worst latency / SLO) / 4",
    ),
    Feature(
        name="latency_age",
        column="latency_age_s",
        kind=Kind.LOG,
        fold=4.0,
        most=2.0,
        meaning="log2(1 + s since the last completion) / 4",
    ),
    Feature(
        name="target_scale",
        column="slo_ms",
        kind=Kind.LOG,
        fold=8.0,
        meaning="log2(1 + SLO in ms) / 8",
    ),
    Feature(
        name="request_scale",
        column="latency_completed",
        kind=Kind.LOG,
        fold=10.0,
        most=2.0,
        meaning="log2(1 + requests completed in the window) / 10",
    ),
    _of_usual(
        name="latency_mean_over_usual",
        column="latency_mean_ms",
        meaning="log2(mean latency / what is usual) / 4; 0 below or while that is not known",
        remembered=True,
    ),
    _of_usual(
        name="latency_p95_over_usual",
        column="latency_p95_ms",
        meaning="log2(p95 latency / usual mean latency) / 4; 0 below or while that is not known",
        remembered=True,
    ),
    *(
        Feature(
            name=f"profile_{p.name}",
            column="profile_index",
            kind=Kind.PROFILE,
            meaning=f"1 if profile {p.name} is on",
        )
        for p in PROFILES
    ),
)
SLOT_FEATURES: Final = (
    _plain(name="present", column="present", meaning="1 if the slot holds a background group"),
    _stall(
        name="psi_memory_some_share",
        column="psi_memory_some_us",
        meaning="memory `some` stall of the group",
    ),
    _stall(
        name="psi_io_some_share", column="psi_io_some_us", meaning="io `some` stall of the group"
    ),
    _of_limit(name="usage_ratio", column="usage_bytes", meaning="memory used / zone limit"),
    _of_limit(name="file_ratio", column="file_bytes", meaning="file pages / zone limit"),
    Feature(
        name="swap_ratio",
        column="swap_bytes",
        kind=Kind.LOG,
        scale="zone_limit_bytes",
        meaning="log2(1 + swapped / zone limit)",
    ),
    _rate(
        name="refault_rate",
        column="refault_pages",
        meaning="log(1 + refaults/s) / 10",
        remembered=True,
    ),
    _stall(
        name="cpu_share", column="cpu_usage_us", meaning="cores used", most=4.0, remembered=True
    ),
    _plain(name="paused", column="paused", meaning="1 if paused"),
    _duration(name="paused_for", column="paused_for_s", meaning="s paused / 5, at most 2"),
    _duration(name="since_thaw", column="since_thaw_s", meaning="s since the thaw / 5, at most 2"),
    _plain(name="paused_share", column="paused_share", meaning="share of the last minute paused"),
    Feature(
        name="limit_ratio",
        column="limit_bytes",
        kind=Kind.LIMIT,
        scale="reference_bytes",
        most=1.0,
        meaning="limit / use when unlimited; 1 without a limit",
    ),
    Feature(
        name="reference_ratio",
        column="reference_bytes",
        kind=Kind.RATIO,
        scale="zone_limit_bytes",
        most=4.0,
        meaning="use when unlimited / zone limit, at most 4",
    ),
)
"""Of each of the ``SLOTS`` slots; all 0 where there is no group."""

PHASE_COLUMNS: Final = ("in_phase", "phase_bytes", "since_phase_change_s")
"""What :mod:`stallward.agent.observation.phase_change` knows of a slot."""
PHASE_FEATURES: Final = (
    _plain(
        name="in_phase",
        column="in_phase",
        meaning="1 in a phase, in which the group keeps its size; 0 in a transition",
    ),
    _of_limit(
        name="phase_ratio",
        column="phase_bytes",
        meaning="mean size in this phase, in memory and swap / zone limit; 0 in a transition",
    ),
    Feature(
        name="since_phase_change",
        column="since_phase_change_s",
        kind=Kind.LOG,
        fold=4.0,
        most=2.0,
        meaning="log2(1 + s since a phase ended) / 4, at most 2; 2 before the first end",
    ),
)
"""Of each of the ``SLOTS`` slots; all 0 where there is no group. They end an observation, and only
policies that name them in their schema read them."""

FRAME_NAMES: Final = tuple(f.name for f in NODE_FEATURES) + tuple(
    f"slot{i}_{f.name}" for i in range(SLOTS) for f in SLOT_FEATURES
)
FRAME_FEATURES: Final = NODE_FEATURES + SLOT_FEATURES * SLOTS
"""The feature behind each of :data:`FRAME_NAMES`."""
