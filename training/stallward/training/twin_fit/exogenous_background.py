"""What a recording shows of a background program: its work, its sizes, when it ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.recording.recording import Recording
from stallward.env.twin.inputs.exogenous import PAGE_BYTES, SlotProgram
from stallward.env.twin.physics.latency import Array

_MIB_PAGES: Final = 256.0


_LEAST_UNITS: Final = 1e-6


_IDLE_BYTES: Final = 1 << 20
"""A group without processes may keep some pages; one with a program has more than this."""


_NEARLY: Final = 0.9


_LEAST_TICK_S: Final = 0.05


_FILL_PAGES_PER_S: Final = (1e3, 1e6)


Mask = NDArray[np.bool_]


def background_slot(
    index: int, name: str, free: Sequence[Recording], together: Sequence[Recording]
) -> SlotProgram:
    """The program of one slot, as its recordings show it.

    Args:
        index: The slot's place.
        name: Its name.
        free: Runs in which nothing holds it back.
        together: Runs beside the application, from which follows when it works.
    """
    prefix = f"slot{index}_"
    anon, file = _program(free, prefix)
    if max(anon) + max(file) < 1.0:
        anon, file = _program(together, prefix)
    rates = [rate_while_on(r, index) for r in (*free, *together)]
    full = max((rate for rate in rates if rate), default=_LEAST_UNITS)
    dirty = largest(free, f"{prefix}dirty_bytes") / PAGE_BYTES
    held = np.array(anon) + np.array(file)
    program = SlotProgram(
        name=name,
        units_per_s=full,
        anon_pages=anon,
        file_pages=file,
        loop_from_s=float(np.argmax(held >= 0.9 * held.max())),
        running=_usual_running((*free, *together), index),
        cores=_cores(free, prefix),
        fill_pages_per_s=_fill_pages_per_s(free or together, prefix),
    )
    span = max(file)
    if dirty > 4.0 * _MIB_PAGES and dirty > 0.02 * span:
        filled_s = float(np.argmax(np.array(file) >= 0.9 * span)) + 1.0
        return replace(
            program,
            file_pages=tuple(0.0 for _ in file),
            stream_pages_per_s=0.9 * span / filled_s,
            stream_span_pages=span,
            dirty_share=1.0,
        )
    return program


def _alive(run: Recording, prefix: str) -> Mask:
    """In which ticks somebody runs the slot's program: the group holds memory."""
    held = np.nan_to_num(run.tick(prefix + "memory_usage_bytes")) + np.nan_to_num(
        run.tick(prefix + "swap_bytes")
    )
    return np.asarray(held > _IDLE_BYTES)


def running(recording: Recording, index: int) -> tuple[float, ...]:
    """For each second of a recording, 1 if somebody ran the program of slot ``index``, else 0."""
    time_s = recording.tick("time_s") - recording.run.start_s
    alive = _alive(recording, f"slot{index}_")
    if not alive.any():
        return (0.0,)
    seconds = np.arange(max(int(time_s[-1]), 1)) + 0.5
    at = np.clip(np.searchsorted(time_s, seconds), 0, len(time_s) - 1)
    return tuple(float(v) for v in alive[at])


def _usual_running(runs: Sequence[Recording], index: int) -> tuple[float, ...]:
    """When a program comes and goes, as the longest run shows it in which nobody ended it."""
    found = [running(r, index) for r in runs]
    longest = max(len(seconds) for seconds in found)
    whole = max((s for s in found if len(s) >= _NEARLY * longest), key=sum)
    return whole if any(whole) else (1.0,)


def rate_while_on(
    run: Recording, index: int, span_s: tuple[float, float] | None = None
) -> float | None:
    """Units per second of a slot, over the time in which its program ran.

    Args:
        run: The recording.
        index: Of the slot.
        span_s: From when to when; all that was measured by default.
    """
    from_s, to_s = span_s or (run.run.measured_from_s, run.run.end_s)
    rate = run.units.rate_per_s(index, from_s, to_s)
    time_s = run.tick("time_s")
    mine = (time_s >= from_s) & (time_s < to_s)
    share = float(_alive(run, f"slot{index}_")[mine].mean()) if mine.any() else 0.0
    return rate / share if rate is not None and share > 0.0 else rate


def _program(
    runs: Sequence[Recording], prefix: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What a slot uses over its own time, second by second, from its longest life."""
    lives = [(run, first, last) for run in runs for first, last in _lives(_alive(run, prefix))]
    if not lives:
        return (0.0,), (0.0,)
    run, first, last = max(lives, key=lambda life: life[2] - life[1])
    time_s = run.tick("time_s")[first:last]
    seconds = np.arange(max(int(time_s[-1] - time_s[0]), 1))
    owned = np.nan_to_num(run.tick(prefix + "anon_bytes")) + np.nan_to_num(
        run.tick(prefix + "swap_bytes")
    )
    file = np.nan_to_num(run.tick(prefix + "file_bytes"))

    def sampled(values: Array) -> tuple[float, ...]:
        found = np.interp(seconds + 0.5, time_s - time_s[0], values[first:last] / PAGE_BYTES)
        return tuple(float(round(v)) for v in found)

    return sampled(owned), sampled(file)


def _lives(alive: Mask) -> list[tuple[int, int]]:
    """First and one-past-last index of every stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], alive.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _cores(runs: Sequence[Recording], prefix: str) -> float:
    found = [growth_per_s(run, prefix + "cpu_usage_us") for run in runs]
    shares = [1e-6 * rate for rate in found if rate is not None]
    return float(np.clip(np.mean(shares), 0.02, 8.0)) if shares else 1.0


def growth_per_s(run: Recording, column: str, *, since_s: float = -np.inf) -> float | None:
    """How fast a counter grew from one moment on; ``None`` where that was not seen."""
    counted, time_s = run.tick(column), run.tick("time_s")
    known = np.isfinite(counted) & (time_s >= since_s)
    if known.sum() < 2:
        return None
    span_s = time_s[known][-1] - time_s[known][0]
    return float((counted[known][-1] - counted[known][0]) / max(span_s, 1e-9))


def _fill_pages_per_s(runs: Sequence[Recording], prefix: str) -> float:
    """How fast a program reads files for the first time: until it holds half of what it will."""
    rates = []
    for run in runs:
        file = np.nan_to_num(run.tick(prefix + "file_bytes")) / PAGE_BYTES
        time_s = run.tick("time_s")
        for first, last in _lives(_alive(run, prefix)):
            half = first + int(np.argmax(file[first:last] >= 0.5 * file[first:last].max()))
            took_s = time_s[half] - time_s[max(first - 1, 0)]
            rates.append(file[half] / max(took_s, _LEAST_TICK_S))
    return float(np.clip(np.median(rates or [0.0]), *_FILL_PAGES_PER_S))


def largest(runs: Sequence[Recording], column: str) -> float:
    """The largest value of a column of ticks over all runs; 0 where nobody has it."""
    values = [np.nanmax(v) for r in runs if np.isfinite(v := r.tick(column)).any()]
    return float(max(values, default=0.0))
