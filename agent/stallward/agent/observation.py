"""The one definition of the observation: features, units, scaling, history.

The node calls :class:`ObservationEncoder` with batch 1, the twin with thousands; the same code
runs in both. A feature is a number of order one: shares as they are, rates and ratios through a
logarithm. What is absent is 0 and, for latency and slots, flagged by a feature of its own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import ACTION_SIZES, LIMIT_RATIOS, PROFILES, SLOTS
from stallward.agent.raw import NODE, SLOT, RawFrame

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One number of a frame."""

    name: str
    meaning: str
    remembered: bool = False
    """Whether its fast and slow moving averages are part of the observation."""


NODE_FEATURES: Final = (
    Feature(name="zone_psi_memory_some_share", meaning="zone memory `some` stall, share of time"),
    Feature(
        name="zone_psi_memory_full_share",
        meaning="zone memory `full` stall, share of time",
        remembered=True,
    ),
    Feature(name="zone_psi_io_some_share", meaning="zone io `some` stall, share of time"),
    Feature(name="zone_psi_cpu_some_share", meaning="zone cpu `some` stall, share of time"),
    Feature(name="zone_usage_ratio", meaning="zone memory used / limit"),
    Feature(name="zone_file_ratio", meaning="zone file pages / limit"),
    Feature(name="zone_dirty_ratio", meaning="zone dirty and writeback / limit, times 10"),
    Feature(name="swap_used_ratio", meaning="swap used / total"),
    Feature(name="swap_in_rate", meaning="log(1 + pages/s swapped in) / 10"),
    Feature(name="swap_out_rate", meaning="log(1 + pages/s swapped out) / 10"),
    Feature(
        name="protected_psi_memory_some_share",
        meaning="protected memory `some` stall, share of time",
        remembered=True,
    ),
    Feature(
        name="protected_psi_memory_full_share",
        meaning="protected memory `full` stall, share of time",
    ),
    Feature(name="protected_psi_io_some_share", meaning="protected io `some`, share of time"),
    Feature(name="protected_usage_ratio", meaning="protected memory used / zone limit"),
    Feature(name="protected_file_ratio", meaning="protected file pages / zone limit"),
    Feature(
        name="protected_refault_rate",
        meaning="log(1 + protected refaults/s) / 10",
        remembered=True,
    ),
    Feature(name="protected_fault_rate", meaning="log(1 + protected major faults/s) / 10"),
    Feature(name="latency_known", meaning="1 if requests completed in the window, else 0"),
    Feature(
        name="latency_mean_ratio",
        meaning="log2(1 + mean latency / SLO) / 4",
        remembered=True,
    ),
    Feature(name="latency_p95_ratio", meaning="log2(1 + p95 latency / SLO) / 4", remembered=True),
    Feature(name="latency_max_ratio", meaning="log2(1 + worst latency / SLO) / 4"),
    Feature(name="latency_age", meaning="log2(1 + s since the last completion) / 4"),
    *(Feature(name=f"profile_{p.name}", meaning=f"1 if profile {p.name} is on") for p in PROFILES),
)
SLOT_FEATURES: Final = (
    Feature(name="present", meaning="1 if the slot holds a background group"),
    Feature(name="psi_memory_some_share", meaning="memory `some` stall of the group"),
    Feature(name="psi_io_some_share", meaning="io `some` stall of the group"),
    Feature(name="usage_ratio", meaning="memory used / zone limit"),
    Feature(name="file_ratio", meaning="file pages / zone limit"),
    Feature(name="swap_ratio", meaning="log2(1 + swapped / zone limit)"),
    Feature(name="refault_rate", meaning="log(1 + refaults/s) / 10", remembered=True),
    Feature(name="cpu_share", meaning="cores used", remembered=True),
    Feature(name="paused", meaning="1 if paused"),
    Feature(name="paused_for", meaning="s paused / 5, at most 2"),
    Feature(name="since_thaw", meaning="s since the thaw / 5, at most 2"),
    Feature(name="paused_share", meaning="share of the last minute paused"),
    Feature(name="limit_ratio", meaning="limit / use when unlimited; 1 without a limit"),
    Feature(name="reference_ratio", meaning="use when unlimited / zone limit, at most 4"),
)
HISTORY_S: Final = (1.0, 8.0)
"""Time constants of the fast and the slow moving average, seconds."""

FRAME_NAMES: Final = tuple(f.name for f in NODE_FEATURES) + tuple(
    f"slot{i}_{f.name}" for i in range(SLOTS) for f in SLOT_FEATURES
)
_REMEMBERED: Final = np.array(
    [i for i, f in enumerate(NODE_FEATURES) if f.remembered]
    + [
        len(NODE_FEATURES) + s * len(SLOT_FEATURES) + i
        for s in range(SLOTS)
        for i, f in enumerate(SLOT_FEATURES)
        if f.remembered
    ]
)
OBSERVATION_NAMES: Final = FRAME_NAMES + tuple(
    f"{FRAME_NAMES[i]}_{tau_s:g}s" for tau_s in HISTORY_S for i in _REMEMBERED
)
OBSERVATION_SIZE: Final = len(OBSERVATION_NAMES)


def schema() -> dict[str, object]:
    """The observation and action schema, as written into a policy's metadata."""
    return {
        "observation": [
            *(f"{f.name}: {f.meaning}" for f in NODE_FEATURES),
            *(f"slot_{f.name}: {f.meaning}" for f in SLOT_FEATURES),
        ],
        "names": list(OBSERVATION_NAMES),
        "history_s": list(HISTORY_S),
        "slots": SLOTS,
        "action_sizes": list(ACTION_SIZES),
        "limit_ratios": list(LIMIT_RATIOS),
        "profiles": [p.name for p in PROFILES],
    }


def schema_hash() -> str:
    """SHA-256 of the schema's canonical JSON; a policy carries the one it was trained with."""
    return hashlib.sha256(json.dumps(schema(), sort_keys=True).encode()).hexdigest()


class ObservationEncoder:
    """Turns raw frames into observations, keeping the previous frame and the averages.

    Args:
        batch: Number of nodes encoded together, ``B``.
        slo_ms: Latency target; shape ``()`` or ``(B,)``.
    """

    def __init__(self, batch: int = 1, slo_ms: float | Array = 100.0) -> None:
        self._slo_ms = np.broadcast_to(np.asarray(slo_ms, dtype=np.float64), (batch,)).copy()
        self._previous = RawFrame.empty(batch)
        self._averages = np.zeros((batch, len(HISTORY_S), len(_REMEMBERED)))
        self._fresh = np.ones(batch, dtype=bool)

    def reset(self, rows: NDArray[np.bool_] | None = None) -> None:
        """Forget the history of the nodes in ``rows`` (bool mask ``(B,)``), or of all."""
        self._fresh[slice(None) if rows is None else rows] = True

    def set_slo(self, slo_ms: Array, rows: NDArray[np.bool_]) -> None:
        """Change the latency target of the nodes in ``rows``; ``slo_ms`` has shape ``(B,)``."""
        self._slo_ms[rows] = slo_ms[rows]

    def encode(self, frame: RawFrame) -> NDArray[np.float32]:
        """The observation of one tick.

        The first frame after a reset has no rates (they are 0): they need two samples.

        Args:
            frame: The raw counters; the encoder keeps a copy.

        Returns:
            Shape ``(B, OBSERVATION_SIZE)``, finite, float32.
        """
        if self._fresh.any():
            self._previous.node[self._fresh] = frame.node[self._fresh]
            self._previous.slots[self._fresh] = frame.slots[self._fresh]
        elapsed_s = frame.node[:, NODE["time_s"]] - self._previous.node[:, NODE["time_s"]]
        # Absent values are NaN until the last step makes them 0; they must not warn on the way.
        with np.errstate(all="ignore"):
            features = _frame_features(self._previous, frame, elapsed_s, self._slo_ms)
        remembered = features[:, _REMEMBERED]
        for k, tau_s in enumerate(HISTORY_S):
            weight = 1.0 - np.exp(-np.maximum(elapsed_s, 0.0) / tau_s)
            weight[self._fresh] = 1.0
            average = self._averages[:, k]
            average += weight[:, None] * (remembered - average)
        self._previous.node[:] = frame.node
        self._previous.slots[:] = frame.slots
        self._fresh[:] = False
        batch = features.shape[0]
        stacked = np.concatenate([features, self._averages.reshape(batch, -1)], axis=1)
        return stacked.astype(np.float32)


def _frame_features(before: RawFrame, now: RawFrame, elapsed_s: Array, slo_ms: Array) -> Array:
    """Features of one tick, shape ``(B, len(FRAME_NAMES))``, finite."""
    per_s = np.where(elapsed_s > 1e-6, 1.0 / np.maximum(elapsed_s, 1e-6), 0.0)
    node = _node_features(before.node, now.node, per_s, slo_ms)
    zone_limit = now.node[:, NODE["zone_limit_bytes"], None]
    slots = _slot_features(before.slots, now.slots, per_s[:, None], zone_limit)
    batch = node.shape[0]
    features = np.concatenate([node, slots.reshape(batch, -1)], axis=1)
    return np.asarray(np.nan_to_num(features, nan=0.0, posinf=8.0, neginf=0.0))


def _node_features(before: Array, now: Array, per_s: Array, slo_ms: Array) -> Array:
    change = np.maximum(now - before, 0.0)  # a counter that went back was reset: no rate

    def share(name: str) -> Array:
        return np.asarray(np.minimum(change[:, NODE[name]] * per_s * 1e-6, 1.0))

    def rate(name: str) -> Array:
        return np.asarray(np.log1p(change[:, NODE[name]] * per_s) / 10.0)

    limit = now[:, NODE["zone_limit_bytes"]]

    def of_limit(name: str) -> Array:
        return np.asarray(np.minimum(now[:, NODE[name]] / limit, 2.0))

    def of_slo(name: str) -> Array:
        return np.asarray(np.minimum(np.log2(1.0 + now[:, NODE[name]] / slo_ms) / 4.0, 3.0))

    profile = now[:, NODE["profile_index"]]
    return np.stack(
        [
            share("zone_psi_memory_some_us"),
            share("zone_psi_memory_full_us"),
            share("zone_psi_io_some_us"),
            share("zone_psi_cpu_some_us"),
            of_limit("zone_usage_bytes"),
            of_limit("zone_file_bytes"),
            10.0 * of_limit("zone_dirty_bytes"),
            now[:, NODE["swap_used_ratio"]],
            rate("swap_in_pages"),
            rate("swap_out_pages"),
            share("protected_psi_memory_some_us"),
            share("protected_psi_memory_full_us"),
            share("protected_psi_io_some_us"),
            of_limit("protected_usage_bytes"),
            of_limit("protected_file_bytes"),
            rate("protected_refault_pages"),
            rate("protected_major_faults"),
            (now[:, NODE["latency_completed"]] > 0).astype(np.float64),
            of_slo("latency_mean_ms"),
            of_slo("latency_p95_ms"),
            of_slo("latency_max_ms"),
            np.minimum(np.log2(1.0 + now[:, NODE["latency_age_s"]]) / 4.0, 2.0),
            *((profile == i).astype(np.float64) for i in range(len(PROFILES))),
        ],
        axis=1,
    )


def _slot_features(before: Array, now: Array, per_s: Array, zone_limit: Array) -> Array:
    change = np.maximum(now - before, 0.0)

    def share(name: str) -> Array:
        return np.asarray(np.minimum(change[..., SLOT[name]] * per_s * 1e-6, 1.0))

    def raw(name: str) -> Array:
        return np.asarray(now[..., SLOT[name]])

    reference = raw("reference_bytes")
    limit_ratio = np.where(np.isnan(raw("limit_bytes")), 1.0, raw("limit_bytes") / reference)
    present = raw("present") > 0
    features = np.stack(
        [
            raw("present"),
            share("psi_memory_some_us"),
            share("psi_io_some_us"),
            np.minimum(raw("usage_bytes") / zone_limit, 2.0),
            np.minimum(raw("file_bytes") / zone_limit, 2.0),
            np.log2(1.0 + raw("swap_bytes") / zone_limit),
            np.log1p(change[..., SLOT["refault_pages"]] * per_s) / 10.0,
            np.minimum(change[..., SLOT["cpu_usage_us"]] * per_s * 1e-6, 4.0),
            raw("paused"),
            np.minimum(raw("paused_for_s") / 5.0, 2.0),
            np.minimum(raw("since_thaw_s") / 5.0, 2.0),
            raw("paused_share"),
            np.minimum(limit_ratio, 1.0),
            np.minimum(reference / zone_limit, 4.0),
        ],
        axis=-1,
    )
    return np.asarray(np.where(present[..., None], features, 0.0))
