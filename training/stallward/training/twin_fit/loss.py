"""The loss of a fit, which compares a recording and the twin by distributions, not traces.

A recording is compared as a whole and in segments. The whole recording gives the best estimate of
the tail of latencies. Segments show the effects of random actions, which the mean would hide.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np

from stallward.agent.desired import SLOTS
from stallward.env.recording.recording import Recording
from stallward.env.twin.estimate.background import rate_while_running
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.physics.latency import Array
from stallward.env.twin.physics.pages import GROUPS

QUANTILES: Final = (0.5, 0.95, 0.99)
SEGMENT_S: Final = 10.0
NAMES: Final = (
    "log_p50", "log_p95", "log_p99",
    *(f"work_{i}" for i in range(SLOTS)),
    *(f"psi_{i}" for i in range(GROUPS)),
    *(f"usage_{i}" for i in range(GROUPS)),
    *(f"refaults_{i}" for i in range(GROUPS)),
    *(f"psi_io_{i}" for i in range(GROUPS)),
    "swap_in", "major_faults", "zone_psi_full",
    *(f"cores_{i}" for i in range(SLOTS)),
)  # fmt: skip
_SCALES: Final = np.array(
    [0.10, 0.15, 0.30]
    + [0.05] * SLOTS
    + [0.7] * GROUPS
    + [0.10] * GROUPS
    + [0.7] * GROUPS
    + [0.7] * GROUPS
    + [0.7, 0.7, 0.7]
    + [0.15] * SLOTS
)
"""The error of each figure that counts as one."""
_SEGMENT_SCALE: Final = 2.0
"""A factor on the scales of a segment, whose figures are less certain than a whole recording's."""
_WEIGHTS: Final = np.array([4.0] * (len(QUANTILES) + SLOTS) + [1.0] * (4 * GROUPS + 3 + SLOTS))
"""Latency and work count most, because decisions are judged by them; the rest explains them."""
_STALL: Final = 0.01
"""The share of time stalled below which ``log_share`` is about linear."""
_LEAST_REQUESTS: Final = (5, 40, 200)
"""The fewest requests from which each quantile is taken."""


def segment_edges_s(burn_in_s: float, length_s: float) -> list[float]:
    """The edges of the segments of a recording, in seconds from its start.

    Args:
        burn_in_s: The start of the first segment.
        length_s: The end of the last segment; a rest shorter than a segment belongs to the last.
    """
    count = max(int((length_s - burn_in_s) / SEGMENT_S), 1)
    return [*(burn_in_s + SEGMENT_S * k for k in range(count)), length_s]


def live_summary(recording: Recording, scenario: Exogenous) -> Array:
    """The figures of a recording: of the whole, then of each segment.

    Returns:
        The figures, ``(1 + segments, len(NAMES))``; NaN where a figure was not recorded.
    """
    run = recording.run
    edges = [run.start_s + s for s in segment_edges_s(run.burn_in_s, run.end_s - run.start_s)]
    spans = [(edges[0], edges[-1]), *itertools.pairwise(edges)]
    return np.array([_between(recording, scenario, *span) for span in spans])


def _between(recording: Recording, scenario: Exogenous, from_s: float, to_s: float) -> list[float]:
    """The figures of the time from ``from_s`` to ``to_s``."""
    time_s = recording.tick("time_s")
    ticks = (time_s >= from_s) & (time_s < to_s)
    held_s = recording.held_s(from_s, to_s)
    values = _log_quantiles(recording, from_s, to_s)
    for i in range(SLOTS):
        known = i < len(scenario.slots)
        rate = rate_while_running(recording, i, (from_s, to_s)) if known else None
        values.append(np.nan if rate is None else rate / scenario.slots[i].units_per_s)
    groups = ["protected_", *(f"slot{i}_" for i in range(SLOTS))]
    span_s = float(time_s[ticks][-1] - time_s[ticks][0]) if ticks.sum() > 1 else np.nan

    def change(column: str) -> float:
        values = recording.tick(column)[ticks]
        return float(values[-1] - values[0]) / span_s if len(values) > 1 else np.nan

    def stalls(columns: Sequence[str]) -> list[float]:
        return [float(v) for v in log_share(np.array([change(column) for column in columns]))]

    values += stalls([f"{g}psi_memory_some_us" for g in groups])
    for group in groups:
        used = recording.tick(f"{group}memory_usage_bytes")
        known_s = np.where(np.isfinite(used), held_s, 0.0)
        mean = np.nansum(used * known_s) / known_s.sum() if known_s.any() else np.nan
        values.append(float(mean) / scenario.zone_bytes)
    for group in groups:
        refaults = [change(f"{group}refault_{kind}_pages") for kind in ("file", "anon")]
        known_refaults = [v for v in refaults if np.isfinite(v)]
        values.append(float(np.log1p(sum(known_refaults))) if known_refaults else np.nan)
    values += stalls([f"{g}psi_io_some_us" for g in groups])
    values.append(float(np.log1p(max(change("node_swap_in_pages"), 0.0))))
    faults = change("protected_major_faults")
    values.append(float(np.log1p(faults)) if faults > 0.0 else np.nan)  # read() is no fault
    values += stalls(["zone_psi_memory_full_us"])
    values += [change(f"slot{i}_cpu_usage_us") * 1e-6 for i in range(SLOTS)]
    return values


def log_share(stalled_us_per_s: Array) -> Array:
    """The logarithm of the share of time stalled, in which small stalls count most."""
    return np.asarray(np.log1p(1e-6 * stalled_us_per_s / _STALL))


def _log_quantiles(recording: Recording, from_s: float, to_s: float) -> list[float]:
    """The log quantiles of latencies of requests scheduled in a span; NaN if there are too few."""
    requests = recording.requests
    inside = (requests.scheduled_s >= from_s) & (requests.scheduled_s < to_s)
    latencies = np.maximum(np.asarray(requests.sojourn_ms[inside]), 1e-3)
    return [
        float(np.log(np.quantile(latencies, q))) if len(latencies) >= least else np.nan
        for q, least in zip(QUANTILES, _LEAST_REQUESTS, strict=True)
    ]


def loss(live: Array, twin: Array) -> Array:
    """The distance between a recording and its twins, robust against single large errors.

    Args:
        live: The figures of the recording, from :func:`live_summary`.
        twin: The figures of ``N`` twins, ``(1 + segments, len(NAMES), N)``.

    Returns:
        The loss of each twin, ``(N,)``: the mean of that of the whole recording and the mean loss
        of its segments.
    """
    scales = np.full((len(live), 1), _SEGMENT_SCALE)
    scales[0] = 1.0
    error = (twin - live[..., None]) / (scales * _SCALES)[..., None]
    robust = np.log1p(np.square(error))
    weights = np.where(np.isfinite(robust), _WEIGHTS[:, None], 0.0)
    weighted = np.where(weights > 0.0, robust, 0.0) * weights
    rows = weighted.sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9)
    # A twin that answers no requests does not match a live run that did.
    unanswered = (~np.isfinite(twin[0, : len(QUANTILES)])).any(axis=0)
    broken = unanswered & np.isfinite(live[0, : len(QUANTILES)]).any()
    return np.asarray(0.5 * (rows[0] + rows[1:].mean(axis=0)) + 100.0 * broken)
