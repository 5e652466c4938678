"""The measures of one block, from its recording. Pure.

A block is cut into windows of one second, and every additive quantity is kept per window, so
that a single block can still be resampled (``stallward.evaluation.measures.bootstrap``).

A request that was not answered never helps an arm: it misses the target, and a failed request
counts as slower than every answered one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.recording.recording import Recording, load_recording
from stallward.evaluation.errors import MeasureError

Array = NDArray[np.float64]

# ---------- The windows of a block, and which of them met the target. Pure

_MIN_WINDOW_REQUESTS: Final = 20


def window_requests(quantile: float) -> int:
    """How many requests a window needs for its ``quantile`` to make sense: 20, or 100 for p99."""
    return max(_MIN_WINDOW_REQUESTS, math.ceil(round(1.0 / (1.0 - quantile), 6)))


def slo_windows(
    scheduled_s: Array, start_s: float, end_s: float, *, quantile: float = 0.95
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut a block into windows of whole seconds that hold enough scheduled requests.

    A window closes at the first whole second at which it holds enough requests; the remainder at
    the end joins the last window.

    Args:
        scheduled_s: Scheduled times of the requests, any order.
        start_s: Start of the measured part of the block.
        end_s: End of the measured part.
        quantile: The quantile that is judged in each window; see :func:`window_requests`.

    Returns:
        The window of each request, shape ``(requests,)``, and that of each second of the block.
    """
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
    by_second: bool = False,
) -> NDArray[np.bool_]:
    """Which windows of a block met the SLO.

    A window meets it if at least the share ``quantile`` of the requests scheduled in it were
    answered within ``slo_ms``; requests that failed or never ended count as violations.

    Args:
        scheduled_s: Scheduled times of the requests, any order.
        latency_ms: Their latencies.
        ok: Whether they were answered.
        start_s: Start of the measured part of the block.
        end_s: End of the measured part.
        slo_ms: The target.
        quantile: The quantile of each window that has to meet it.
        by_second: Give each second the answer of the window that it is in, so that applications
            with windows of different lengths can be looked at together. A window without requests
            met nothing then.

    Returns:
        One entry per window with requests, or per second, of which the last may be shorter.
    """
    window, of_second = slo_windows(scheduled_s, start_s, end_s, quantile=quantile)
    count = int(of_second[-1]) + 1
    within = (ok & (latency_ms <= slo_ms)).astype(np.float64)
    good = np.bincount(window, weights=within, minlength=count)
    total = np.bincount(window, minlength=count)
    met = (total > 0) & (good >= quantile * total - 1e-9)
    return np.asarray(met[of_second] if by_second else met[total > 0])


# ---------- The measures of one block

WINDOW_S: Final = 1.0
_CUT_OFF_S: Final = 0.1
"""A request that ends unanswered this close to the end of its block was cut off and did not
fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of one background group; arrays of the same length, in the order of time."""

    time_s: Array
    units: Array
    """Cumulative units of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSeries:
    """The series of one block, in monotonic seconds.

    Requests are those scheduled at any time; the reduction keeps the ones scheduled inside
    ``start_s..end_s``, the part after the burn-in.
    """

    start_s: float
    end_s: float
    scheduled_s: Array
    finished_s: Array
    """NaN for a request that had not ended when the block did."""
    ok: NDArray[np.bool_]
    progress: tuple[Progress, ...]
    """One for each background group; empty if no background ran."""
    tick_s: Array
    protected_psi_some_us: Array
    """Cumulative memory ``some`` stall of the protected group at each tick; NaN if unknown."""
    paused: Array
    """Shape ``(ticks, groups)``: the share of each group that was paused, 0..1."""
    terminated: int = 0
    """How many background processes the arm terminated, including the burn-in."""
    fallback_share: float = 0.0
    """Share of ticks at which the default controller decided, including the burn-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMeasures:
    """The measures of one block, with ``W`` windows of one second and ``G`` background groups."""

    duration_s: float
    scheduled_s: Array
    """Scheduled times of the requests, seconds since the start of the measured part."""
    latency_ms: Array
    """Time from the scheduled arrival to the answer. For a failed request it is at least the
    length of the block, so that failing at once is not fast. For a request that still waited at
    the end of the block it is the time waited, a lower bound."""
    ok: NDArray[np.bool_]
    units: Array
    """Units done, shape ``(W, G)``."""
    psi_some_s: Array
    """Stalled seconds of the protected group, shape ``(W,)``; NaN if unknown."""
    paused_s: Array
    """Seconds paused, as the mean over groups, shape ``(W,)``."""
    terminated: int = 0
    """How many background processes the arm terminated, including the burn-in: they do not come
    back."""
    fallback_share: float = 0.0
    """Share of ticks at which the default controller decided, including the burn-in."""
    others: Mapping[str, BlockMeasures] = field(default_factory=dict)
    """Name of a further protected application -> the same measures with its requests."""

    @property
    def windows(self) -> int:
        """How many whole windows of one second the block has."""
        return int(self.psi_some_s.size)

    def latency_windows(self) -> tuple[Array, ...]:
        """The latencies of the requests scheduled in each window; the last takes the remainder."""
        window = np.minimum(self.scheduled_s.astype(np.int64), self.windows - 1)
        return tuple(self.latency_ms[window == w] for w in range(self.windows))


def reduce(series: BlockSeries) -> BlockMeasures:
    """Reduce the series of a block to its measures.

    Raises:
        MeasureError: If the measured part is shorter than a window.
    """
    duration_s = series.end_s - series.start_s
    windows = int(duration_s / WINDOW_S + 1e-9)
    if windows < 1:
        raise MeasureError(
            f"The measured part of the block lasts {duration_s:.2f} s, less than {WINDOW_S:g} s.",
            next_step="Use longer blocks or a shorter burn-in.",
        )
    inside = (series.scheduled_s >= series.start_s) & (series.scheduled_s < series.end_s)
    scheduled, finished = series.scheduled_s[inside], series.finished_s[inside]
    ended = np.isfinite(finished)
    ok = series.ok[inside] & ended
    waited_s = np.where(ended, finished, series.end_s) - scheduled
    failed = ~ok & ended & (finished < series.end_s - _CUT_OFF_S)
    edges = series.start_s + WINDOW_S * np.arange(windows + 1, dtype=np.float64)
    units = [_growth(edges, p.time_s, p.units) for p in series.progress]
    return BlockMeasures(
        duration_s=duration_s,
        scheduled_s=scheduled - series.start_s,
        latency_ms=1e3 * np.where(failed, np.maximum(waited_s, duration_s), waited_s),
        ok=ok,
        units=np.stack(units, axis=1) if units else np.zeros((windows, 0)),
        psi_some_s=1e-6 * _growth(edges, series.tick_s, series.protected_psi_some_us),
        paused_s=_paused_s(edges, series.tick_s, series.paused),
        terminated=series.terminated,
        fallback_share=series.fallback_share,
    )


def _growth(edges: Array, time_s: Array, cumulative: Array) -> Array:
    """The growth of a cumulative counter between ``edges``, linear between readings.

    It is unknown (NaN) for a counter with fewer than two known readings.
    """
    known = np.isfinite(cumulative)
    if known.sum() < 2:
        return np.full(edges.size - 1, np.nan)
    return np.asarray(np.diff(np.interp(edges, time_s[known], cumulative[known])))


def _paused_s(edges: Array, tick_s: Array, paused: Array) -> Array:
    """Seconds paused in each window, mean over groups; a state holds until the next tick."""
    if tick_s.size < 2 or paused.shape[1] == 0:
        return np.zeros(edges.size - 1)
    held_s = np.diff(tick_s, append=tick_s[-1])
    total = np.concatenate([[0.0], np.cumsum(paused.mean(axis=1) * held_s)])
    return np.asarray(np.diff(np.interp(edges, np.append(tick_s, tick_s[-1]), total)))


def series_of(recording: Recording) -> BlockSeries:
    """The series of a loaded recording."""
    run, ticks = recording.run, recording.ticks
    slots = len(run.slot_names) if run.condition != "alone" else 0
    tick_s = np.asarray(ticks["time_s"], dtype=np.float64)
    paused = [paused_share(recording, slot) for slot in range(slots)]
    return BlockSeries(
        start_s=run.measured_from_s,
        end_s=run.end_s,
        scheduled_s=recording.requests.scheduled_s,
        finished_s=recording.requests.end_s,
        ok=recording.requests.ok,
        progress=tuple(_progress(recording, slot) for slot in range(slots)),
        tick_s=tick_s,
        protected_psi_some_us=recording.tick("protected_psi_memory_some_us"),
        paused=np.stack(paused, axis=1) if paused else np.zeros((tick_s.size, 0)),
        terminated=terminated_processes(recording),
        fallback_share=fallback_share(recording),
    )


def _progress(recording: Recording, slot: int) -> Progress:
    """The progress of a group over the whole block, from 0 at its start.

    A group that was terminated or paused before its first report has done nothing. If that counted
    as unknown, an arm's work would be the mean of the groups that it did not touch.
    """
    run, units = recording.run, recording.units
    in_slot = units.slot == slot
    time_s, done = units.time_s[in_slot], units.units[in_slot]
    first_s, last_s = min([run.start_s, *time_s[:1]]), max([run.end_s, *time_s[-1:]])
    total = done[-1] if done.size else 0.0
    return Progress(
        time_s=np.concatenate([[first_s], time_s, [last_s]]),
        units=np.concatenate([[0.0], done, [total]]),
    )


def terminated_processes(recording: Recording) -> int:
    """How many background processes the arm terminated: by its levers, or as a peer."""
    changes = (json.loads(text) for text in recording.actions.get("applied", ()) if text)
    return recording.run.peer_kills + sum(
        str(lever).startswith("terminate:") and bool(ok)
        for tick in changes
        for lever, _value, ok, *_ in tick
    )


def fallback_share(recording: Recording) -> float:
    """Share of ticks at which the default controller decided in place of the one in force."""
    fallbacks = np.asarray(recording.actions.get("fallback", ()), dtype=np.float64)
    return float(fallbacks.mean()) if fallbacks.size else 0.0


def paused_share(recording: Recording, slot: int) -> Array:
    """The share of a group that was paused at each tick: all of it, or its stopped processes."""
    whole = np.nan_to_num(recording.tick(f"slot{slot}_state_paused"))
    stopped = recording.tick(f"slot{slot}_stopped_processes")
    processes = recording.tick(f"slot{slot}_processes")
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(stopped / processes, nan=0.0, posinf=0.0)
    return np.maximum(whole, share)


def measure_recording(path: Path) -> BlockMeasures:
    """Load the recording at ``path`` and reduce it.

    Raises:
        RecordingError: If it cannot be opened.
        MeasureError: If it is too short to be measured.
    """
    recording = load_recording(path, several=True)
    series = series_of(recording)
    others = {
        name: reduce(replace(series, scheduled_s=one.scheduled_s, finished_s=one.end_s, ok=one.ok))
        for name, one in recording.others.items()
    }
    return replace(reduce(series), others=others)
