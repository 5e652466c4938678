"""The distance between two runs, signal by signal: the earth mover's distance of their values.

A signal is a series with one value a second (for latency, one a request). Distributions are
compared, not the order of values, because the time of a burst is luck. Each distance is divided by
the variation of the signal over all live runs of the scenario, so that signals can be averaged.

In one dimension, the earth mover's distance is the area between the quantile functions
(Vallender 1973).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from stallward.agent.desired import SLOTS
from stallward.env.recording.recording import Recording
from stallward.evaluation.measures.block_measures import Array, BlockMeasures

Signals = Mapping[str, Array]
"""Name of a signal -> its values; signals that a run does not have are left out."""

_GRID: Final = (np.arange(200) + 0.5) / 200.0
_LEAST_VALUES: Final = 5
_STALLS: Final = {
    "protected stalled for memory": "protected_psi_memory_some_us",
    "protected stalled for io": "protected_psi_io_some_us",
    "zone stalled": "zone_psi_memory_some_us",
    "zone stalled, nobody running": "zone_psi_memory_full_us",
    "zone stalled for io": "zone_psi_io_some_us",
    **{f"slot {i} stalled": f"slot{i}_psi_memory_some_us" for i in range(SLOTS)},
}
_RATES: Final = {
    "pages swapped in": ("node_swap_in_pages",),
    "refaults": ("protected_refault_file_pages", "protected_refault_anon_pages"),
}
_LEVELS: Final = {
    "protected memory": "protected_memory_usage_bytes",
    "protected file pages": "protected_file_bytes",
    "dirty pages": "zone_dirty_bytes",
    **{f"slot {i} memory": f"slot{i}_memory_usage_bytes" for i in range(SLOTS)},
}
_LEAST_SPAN: Final = {**dict.fromkeys(_STALLS, 0.005), **dict.fromkeys(_LEVELS, float(4 << 20))}
"""A signal that varies less than this counts as constant: stalls in seconds a second, levels in
bytes. Otherwise a distance of a few pages, as in the few files of a memcached, would outweigh
everything else."""


def signals_of(recording: Recording, measures: BlockMeasures) -> Signals:
    """The signals of a recording, after its burn-in.

    Args:
        recording: The recording, for its ticks.
        measures: Its measures, for latencies and work.
    """
    signals: dict[str, Array] = {"latency": np.log(np.maximum(measures.latency_ms, 1e-3))}
    for slot in range(measures.units.shape[1]):
        signals[f"slot {slot} work"] = measures.units[:, slot]
    seconds = np.arange(recording.run.measured_from_s, recording.run.end_s, 1.0)
    for name, column in _STALLS.items():
        signals[name] = 1e-6 * _growth(recording, (column,), seconds)
    for name, columns in _RATES.items():
        signals[name] = np.log1p(np.maximum(_growth(recording, columns, seconds), 0.0))
    for name, column in _LEVELS.items():
        signals[name] = recording.tick_at(column, seconds)
    kept = {name: values[np.isfinite(values)] for name, values in signals.items()}
    return {name: values for name, values in kept.items() if len(values) >= _LEAST_VALUES}


def _growth(recording: Recording, columns: Sequence[str], seconds: Array) -> Array:
    """The growth per second of a sum of counters; a counter that was never read counts as 0."""
    time_s, total = recording.tick("time_s"), np.zeros(len(seconds))
    read = False
    for column in columns:
        values = recording.tick(column)
        known = np.isfinite(values)
        if known.any():
            total += np.interp(seconds, time_s[known], values[known])
            read = True
    return np.diff(total) if read else np.zeros(0)


def pooled(runs: Sequence[Signals]) -> Signals:
    """The signals of several runs, joined."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: np.concatenate([run[name] for run in runs if name in run]) for name in names}


def halves(run: Signals) -> tuple[Signals, Signals]:
    """The first and the second half of a run, whose values are in the order of time."""
    parts = {name: np.array_split(values, 2) for name, values in run.items()}
    first, second = ({name: part[k] for name, part in parts.items()} for k in (0, 1))
    return first, second


def scales_of(live: Sequence[Signals]) -> dict[str, float]:
    """The variation of each signal over live runs: from the 5th to the 95th percentile.

    Signals that hardly vary are left out, because there is nothing to predict.
    """
    spans = {
        name: float(np.subtract(*np.quantile(values, [0.95, 0.05])))
        for name, values in pooled(live).items()
    }
    return {name: span for name, span in spans.items() if span > _LEAST_SPAN.get(name, 1e-9)}


def distances(one: Signals, two: Signals, scales: Mapping[str, float]) -> dict[str, float]:
    """The earth mover's distance of each signal that both runs have, in units of ``scales``."""
    return {
        name: float(np.abs(_quantiles(one[name]) - _quantiles(two[name])).mean()) / scale
        for name, scale in scales.items()
        if name in one and name in two
    }


def _quantiles(values: Array) -> Array:
    return np.asarray(np.quantile(values, _GRID))
