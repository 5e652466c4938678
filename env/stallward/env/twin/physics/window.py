"""The latency source of twin nodes: figures of the requests answered in the last second.

This module also judges the windows of ``window_violated``, which consist of the requests that
arrived in them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stallward.env.twin.physics.latency import (
    REPORT_LOW,
    REPORT_RATIO,
    WINDOW_TICKS,
    Windows,
    pool_bin,
    report_bin,
    ticks_ahead,
)
from stallward.env.twin.physics.pages import total
from stallward.env.twin.physics.state import (
    COMPLETED,
    HORIZON_TICKS,
    LAST_S,
    MAX_MS,
    MEAN_MS,
    P95_MS,
    REPORT_BINS,
    SUBSTEPS,
    Node,
)
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.one_lane import add_to_lane, raise_lane, set_lane, value_of_lane
from stallward.env.twin.simd.values import maximum, minimum, where

_REPORTED_SHARE: Final = 0.95
_JUDGED_TICKS: Final = 10
_JUDGED_REQUESTS: Final = 20.0
_SLOW_SHARE: Final = 0.05
_MIDDLES: Final = REPORT_LOW * REPORT_RATIO ** (np.arange(REPORT_BINS) + 0.5)
"""The middle of each bin, relative to the target."""


@model
def schedule_answer(
    node: Node, windows: Windows, at: int, tick: int, k: int, offset_s: float
) -> None:
    """Schedule the answer to the request of sub-step ``k``, for the eight nodes from ``at`` on."""
    ms, weight = node.probe_ms[k], node.probe_weight[k]
    ahead, row = ticks_ahead(ms, offset_s), report_bin(ms, node.slo_ms)
    pool = pool_bin(ms)
    request = (tick % HORIZON_TICKS) * SUBSTEPS + k
    for lane in range(WIDTH):
        count = value_of_lane(weight, lane)
        if count > 0.0:
            n = at + lane
            answered = (tick + int(value_of_lane(ahead, lane))) % HORIZON_TICKS
            latency_ms = value_of_lane(ms, lane)
            windows.bins[n, request] = int(value_of_lane(row, lane))
            windows.weights[n, request] = count
            windows.following[n, request] = windows.first[n, answered]
            windows.first[n, answered] = request
            add_to_lane(node.sums_ms, answered, lane, count * latency_ms)
            raise_lane(node.worst_ms, answered, lane, latency_ms)
            windows.pooled[n, int(value_of_lane(pool, lane))] += count


@model
def report(node: Node, windows: Windows, at: int, tick: int) -> None:
    """Close the tick: set the latency source's figures of the eight nodes from ``at`` on."""
    now, old = tick % HORIZON_TICKS, (tick - WINDOW_TICKS) % HORIZON_TICKS
    for lane in range(WIDTH):
        if windows.first[at + lane, now] >= 0:
            _count(node, windows, at, lane, now, 1.0)
            set_lane(node.reported, LAST_S, lane, value_of_lane(node.time_s, lane))
        if windows.first[at + lane, old] >= 0:
            _count(node, windows, at, lane, old, -1.0)
            windows.first[at + lane, old] = -1
    node.sums_ms[old] = 0.0
    node.worst_ms[old] = 0.0
    sum_ms, worst_ms = node.sums_ms[now], node.worst_ms[now]
    for k in range(1, WINDOW_TICKS):
        before = (tick - k) % HORIZON_TICKS
        sum_ms = sum_ms + node.sums_ms[before]
        worst_ms = maximum(worst_ms, node.worst_ms[before])
    completed = total(node.window, REPORT_BINS)
    known = completed > 0.5
    node.reported[COMPLETED] = where(known, completed, 0.0)
    node.reported[MEAN_MS] = where(known, sum_ms / maximum(completed, 1e-9), np.nan)
    node.reported[P95_MS] = where(known, minimum(_p95_ms(node, completed), worst_ms), np.nan)
    node.reported[MAX_MS] = where(known, worst_ms, np.nan)


@model
def judge(node: Node) -> None:
    """Close the tick: judge whether the last window met the target.

    A window is as many whole seconds as contain 20 requests. The rule is that of
    ``slo_windows_met`` of the evaluation, for a target of the p95.
    """
    for k in range(SUBSTEPS):
        arrived = node.probe_weight[k]
        node.scheduled = node.scheduled + arrived
        node.slow = node.slow + where(node.probe_ms[k] > node.slo_ms, arrived, 0.0)
    node.judged_ticks = node.judged_ticks + 1.0
    second = node.judged_ticks >= _JUDGED_TICKS
    node.judged_ticks = where(second, 0.0, node.judged_ticks)
    full = second & (node.scheduled >= _JUDGED_REQUESTS)
    missed = where(node.slow > _SLOW_SHARE * node.scheduled + 1e-9, 1.0, 0.0)
    node.missed = where(full, missed, node.missed)
    node.scheduled = where(full, 0.0, node.scheduled)
    node.slow = where(full, 0.0, node.slow)


@model
def _count(node: Node, windows: Windows, at: int, lane: int, answered: int, sign: float) -> None:
    """Add the requests answered in a tick to the window of one node, or remove them."""
    request = int(windows.first[at + lane, answered])
    while request >= 0:
        row = int(windows.bins[at + lane, request])
        add_to_lane(node.window, row, lane, sign * windows.weights[at + lane, request])
        request = int(windows.following[at + lane, request])


@model
def _p95_ms(node: Node, completed: float) -> float:
    """Return the middle of the window's bin that contains the p95."""
    below = node.window[0]
    p95_ms: float = node.slo_ms * _MIDDLES[0]
    for row in range(1, REPORT_BINS):
        p95_ms = where(below < _REPORTED_SHARE * completed, node.slo_ms * _MIDDLES[row], p95_ms)
        below = below + node.window[row]
    return p95_ms
