"""The windows of a block, and which of them met the target. Pure."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.measures.bootstrap import Array

_MIN_WINDOW_REQUESTS: Final = 20


def window_requests(quantile: float) -> int:
    """How many requests a window needs for its ``quantile`` to make sense: 20, or 100 for p99."""
    return max(_MIN_WINDOW_REQUESTS, math.ceil(round(1.0 / (1.0 - quantile), 6)))


def slo_windows(
    scheduled_s: Array, start_s: float, end_s: float, *, quantile: float = 0.95
) -> NDArray[np.int64]:
    """Cut a block into windows of whole seconds that hold enough scheduled requests.

    A window closes at the first whole second at which it holds enough requests; the remainder at
    the end joins the last window.

    Args:
        scheduled_s: Scheduled times of the requests, any order.
        start_s: Start of the measured part of the block.
        end_s: End of the measured part.
        quantile: The quantile that is judged in each window; see :func:`window_requests`.

    Returns:
        The window of each request, shape ``(requests,)``.
    """
    return _windows(scheduled_s, start_s, end_s, quantile)[0]


def _windows(
    scheduled_s: Array, start_s: float, end_s: float, quantile: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The window of each request, and that of each second of the block."""
    seconds = np.floor(scheduled_s - start_s).astype(np.int64)
    count = np.bincount(seconds, minlength=max(int(np.ceil(end_s - start_s)), 1))
    window_of = np.empty(count.size, dtype=np.int64)
    enough, window, held, opened = window_requests(quantile), 0, 0, 0
    for second, requests in enumerate(count):
        window_of[second] = window
        held += int(requests)
        if held >= enough:
            window, held, opened = window + 1, 0, second + 1
    if opened < count.size and window > 0:
        window_of[opened:] = window - 1
    return window_of[seconds], window_of


def slo_windows_met(
    scheduled_s: Array,
    latency_ms: Array,
    ok: NDArray[np.bool_],
    *,
    start_s: float,
    end_s: float,
    slo_ms: float,
    quantile: float = 0.95,
) -> NDArray[np.bool_]:
    """Which windows of a block met the SLO.

    A window meets it if at least the share ``quantile`` of the requests scheduled in it were
    answered within ``slo_ms``; requests that failed or never ended count as violations.

    Returns:
        One entry per window; empty if no request was scheduled.
    """
    if scheduled_s.size == 0:
        return np.zeros(0, dtype=bool)
    window = slo_windows(scheduled_s, start_s, end_s, quantile=quantile)
    good = np.bincount(window, weights=(ok & (latency_ms <= slo_ms)).astype(np.float64))
    total = np.bincount(window)
    present = total > 0
    return np.asarray(good[present] >= quantile * total[present] - 1e-9)


def slo_seconds_met(
    scheduled_s: Array,
    latency_ms: Array,
    ok: NDArray[np.bool_],
    *,
    start_s: float,
    end_s: float,
    slo_ms: float,
    quantile: float = 0.95,
) -> NDArray[np.bool_]:
    """For each second of a block, whether the window that it is in met the SLO.

    So applications with windows of different lengths can be looked at together.

    Returns:
        One entry per second, of which the last may be shorter; a window without requests met
        nothing.
    """
    window, of_second = _windows(scheduled_s, start_s, end_s, quantile)
    count = int(of_second[-1]) + 1
    within = (ok & (latency_ms <= slo_ms)).astype(np.float64)
    good = np.bincount(window, weights=within, minlength=count)
    total = np.bincount(window, minlength=count)
    met = (total > 0) & (good >= quantile * total - 1e-9)
    return np.asarray(met[of_second])
