"""Estimates the bursts in which a program reads its files again, from runs under pressure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.recording.recording import Recording
from stallward.env.twin.inputs.exogenous import PAGE_BYTES

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
