"""Estimates of a background program from recordings: its work, its memory, when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.recording.recording import Recording
from stallward.env.twin.inputs.exogenous import PAGE_BYTES, SlotProgram

# ---------- Estimates the bursts in which a program reads its files again, from runs under pressure

Array = NDArray[np.float64]

_LEAST_PAGES_PER_S: Final = (64 << 20) / PAGE_BYTES
"""Slower reads are no burst: a disk serves them beside those of others."""
_PEAK: Final = 0.95
"""The quantile of reads in a second that counts as the peak."""
_LEAST_CONTRAST: Final = 2.5
"""How many times the mean rate the peak is, at least; else the program reads steadily."""
_LEAST_BURSTS: Final = 3
_LEAST_UNREAD: Final = 0.1
"""The smallest share of the pages that is taken as read from the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """Pages read in each burst, its length, and the time from one to the next."""

    pages: float = 0.0
    length_s: float = 1.0
    every_s: float = 1.0


def estimate_bursts(
    runs: Sequence[Recording], index: int, *, span_pages: float, full_units_per_s: float
) -> Bursts:
    """Estimate the bursts of one slot's program, in its own time.

    Args:
        runs: Runs under pressure. With memory for everything a program reads its files once.
        index: The index of the slot.
        span_pages: Distinct file pages that it owns; those in memory are not read.
        full_units_per_s: Its work per second with the node to itself.

    Returns:
        The medians over the runs in which there are bursts; none where most runs have none.
    """
    found = [_of_run(run, index, span_pages, full_units_per_s) for run in runs]
    known = [one for one in found if one is not None]
    if not known or 2 * len(known) < len(found):
        return Bursts()
    pages, length_s, every_s = np.median(
        [(one.pages, one.length_s, one.every_s) for one in known], axis=0
    )
    return Bursts(
        pages=float(pages), length_s=float(min(length_s, every_s)), every_s=float(every_s)
    )


def _of_run(
    run: Recording, index: int, span_pages: float, full_units_per_s: float
) -> Bursts | None:
    reads = _pages_per_s(run, f"slot{index}_io_read_bytes")
    if not len(reads):
        return None
    peak = float(np.quantile(reads, _PEAK))
    if peak < max(_LEAST_PAGES_PER_S, _LEAST_CONTRAST * reads.mean()):
        return None
    high = reads > 0.5 * peak
    count = int((high & ~np.concatenate([[False], high[:-1]])).sum())
    units = run.units.rate_per_s(index, run.run.measured_from_s, run.run.end_s)
    if count < _LEAST_BURSTS or not units:
        return None
    held = np.nanmean(run.tick(f"slot{index}_file_bytes")) / PAGE_BYTES
    unread = max(1.0 - float(held) / max(span_pages, 1.0), _LEAST_UNREAD)
    every_s = len(reads) / count * min(units / full_units_per_s, 1.0)
    return Bursts(
        pages=float(reads.sum()) / count / unread,
        length_s=every_s * float(high.mean()),
        every_s=every_s,
    )


def _pages_per_s(run: Recording, column: str) -> Array:
    """The pages read in each second of the measured part; empty if that was not recorded."""
    values, time_s = run.tick(column), run.tick("time_s")
    known = np.isfinite(values)
    seconds = np.arange(run.run.measured_from_s, run.run.end_s)
    if known.sum() < 2 or len(seconds) < 2:
        return np.zeros(0)
    counted = np.interp(seconds, time_s[known], values[known])
    return np.asarray(np.diff(counted).clip(0.0) / PAGE_BYTES)


_MIB_PAGES: Final = 256.0
_LEAST_UNITS: Final = 1e-6
_IDLE_BYTES: Final = 1 << 20
"""A group without processes may keep some pages; a group with a program has more than this."""
_LENGTH_TOLERANCE: Final = 0.9
_LEAST_TICK_S: Final = 0.05
_FILL_PAGES_PER_S: Final = (1e3, 1e6)

Mask = NDArray[np.bool_]


def background_slot(
    index: int, name: str, free: Sequence[Recording], together: Sequence[Recording]
) -> SlotProgram:
    """Estimate the program of one slot from recordings.

    Args:
        index: The index of the slot.
        name: The name of the program.
        free: Runs in which the program has all the memory it needs.
        together: Runs of the program together with the application.
    """
    prefix = f"slot{index}_"
    anon, file = _program(free, prefix)
    if max(anon) + max(file) < 1.0:
        anon, file = _program(together, prefix)
    rates = [rate_while_running(r, index) for r in (*free, *together)]
    full = max((rate for rate in rates if rate), default=_LEAST_UNITS)
    dirty = largest(free, f"{prefix}dirty_bytes") / PAGE_BYTES
    held = np.array(anon) + np.array(file)
    program = SlotProgram(
        name=name,
        units_per_s=full,
        anon_pages=anon,
        file_pages=file,
        loop_from_s=float(np.argmax(held >= 0.9 * held.max())),
        running=_typical_running((*free, *together), index),
        cores=_cores(free, prefix),
        fill_pages_per_s=_fill_pages_per_s(free or together, prefix),
    )
    span = max(file)
    if dirty > 4.0 * _MIB_PAGES and dirty > 0.02 * span:
        filled_s = float(np.argmax(np.array(file) >= 0.9 * span)) + 1.0
        bursts = estimate_bursts(together, index, span_pages=span, full_units_per_s=full)
        return replace(
            program,
            burst_pages=bursts.pages,
            burst_s=bursts.length_s,
            burst_every_s=bursts.every_s,
            file_pages=tuple(0.0 for _ in file),
            stream_pages_per_s=0.9 * span / filled_s,
            stream_span_pages=span,
            dirty_share=1.0,
        )
    return program


def _alive(run: Recording, prefix: str) -> Mask:
    """The ticks in which the slot's program runs, which is when the group holds memory."""
    held = np.nan_to_num(run.tick(prefix + "memory_usage_bytes")) + np.nan_to_num(
        run.tick(prefix + "swap_bytes")
    )
    return np.asarray(held > _IDLE_BYTES)


def recorded_running(recording: Recording, index: int) -> tuple[float, ...]:
    """For each second of a recording, 1 if the program of slot ``index`` ran, else 0."""
    time_s = recording.tick("time_s") - recording.run.start_s
    alive = _alive(recording, f"slot{index}_")
    if not alive.any():
        return (0.0,)
    seconds = np.arange(max(int(time_s[-1]), 1)) + 0.5
    at = np.clip(np.searchsorted(time_s, seconds), 0, len(time_s) - 1)
    return tuple(float(v) for v in alive[at])


def _typical_running(runs: Sequence[Recording], index: int) -> tuple[float, ...]:
    """The seconds in which a program runs, taken from the longest run.

    Of several about equally long runs, the one in which the program ran most is taken, because a
    rule may have terminated the program in the others.
    """
    series = [recorded_running(r, index) for r in runs]
    longest = max(len(seconds) for seconds in series)
    typical = max((s for s in series if len(s) >= _LENGTH_TOLERANCE * longest), key=sum)
    return typical if any(typical) else (1.0,)


def rate_while_running(
    run: Recording, index: int, span_s: tuple[float, float] | None = None
) -> float | None:
    """The work rate of a slot in units per second, over the time in which its program ran.

    Args:
        run: The recording.
        index: The index of the slot.
        span_s: Start and end of the time to look at, by default the measured part.
    """
    from_s, to_s = span_s or (run.run.measured_from_s, run.run.end_s)
    rate = run.units.rate_per_s(index, from_s, to_s)
    held_s = run.held_s(from_s, to_s)
    share = float(held_s[_alive(run, f"slot{index}_")].sum() / max(held_s.sum(), 1e-9))
    return rate / share if rate is not None and share > 0.0 else rate


def _program(
    runs: Sequence[Recording], prefix: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Anonymous and file pages in each second since the program's start, in its longest life."""
    lifetimes = [
        (run, first, last) for run in runs for first, last in _lifetimes(_alive(run, prefix))
    ]
    if not lifetimes:
        return (0.0,), (0.0,)
    run, first, last = max(lifetimes, key=lambda lifetime: lifetime[2] - lifetime[1])
    time_s = run.tick("time_s")[first:last]
    seconds = np.arange(max(int(time_s[-1] - time_s[0]), 1))
    anon = np.nan_to_num(run.tick(prefix + "anon_bytes")) + np.nan_to_num(
        run.tick(prefix + "swap_bytes")
    )
    file = np.nan_to_num(run.tick(prefix + "file_bytes"))

    def sampled(values: Array) -> tuple[float, ...]:
        pages = np.interp(seconds + 0.5, time_s - time_s[0], values[first:last] / PAGE_BYTES)
        return tuple(float(round(v)) for v in pages)

    return sampled(anon), sampled(file)


def _lifetimes(alive: Mask) -> list[tuple[int, int]]:
    """The first and the one-past-last index of every stretch of ``True``."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], alive.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _cores(runs: Sequence[Recording], prefix: str) -> float:
    rates = [growth_per_s(run, prefix + "cpu_usage_us") for run in runs]
    cores = [1e-6 * rate for rate in rates if rate is not None]
    return float(np.clip(np.mean(cores), 0.02, 8.0)) if cores else 1.0


def growth_per_s(run: Recording, column: str, *, since_s: float = -np.inf) -> float | None:
    """The growth of a counter per second since a moment; ``None`` if it was not recorded.

    Where it fell, it began anew, and that step adds nothing.
    """
    counted, time_s = run.tick(column), run.tick("time_s")
    known = np.isfinite(counted) & (time_s >= since_s)
    if known.sum() < 2:
        return None
    span_s = time_s[known][-1] - time_s[known][0]
    grown = np.maximum(np.diff(counted[known]), 0.0).sum()
    return float(grown / max(span_s, 1e-9))


def _fill_pages_per_s(runs: Sequence[Recording], prefix: str) -> float:
    """How fast a program reads files at first, until it holds half of its peak file pages."""
    rates = []
    for run in runs:
        file = np.nan_to_num(run.tick(prefix + "file_bytes")) / PAGE_BYTES
        time_s = run.tick("time_s")
        for first, last in _lifetimes(_alive(run, prefix)):
            half = first + int(np.argmax(file[first:last] >= 0.5 * file[first:last].max()))
            took_s = time_s[half] - time_s[max(first - 1, 0)]
            rates.append(file[half] / max(took_s, _LEAST_TICK_S))
    return float(np.clip(np.median(rates or [0.0]), *_FILL_PAGES_PER_S))


def largest(runs: Sequence[Recording], column: str) -> float:
    """The largest value of a column of ticks over all runs; 0 if no run has the column."""
    values = [np.nanmax(v) for r in runs if np.isfinite(v := r.tick(column)).any()]
    return float(max(values, default=0.0))
