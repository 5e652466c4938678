"""Would it help here? The figures, and the answer. Pure.

docs/explanation/when-it-helps.md says what everything means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.evaluation.assess.causes import Cause, causes_of, short_of_memory
from stallward.evaluation.assess.readings import Readings
from stallward.evaluation.assess.seconds import Mask, Seconds, acted_rows, known_rows, seconds_of
from stallward.evaluation.assess.verdict import (
    Reason,
    Verdict,
    about_memory,
    about_the_node,
    about_the_record,
    by_weight,
)
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.measures.bootstrap import RESAMPLES, block_counts, bootstrap_ratio
from stallward.evaluation.measures.intervals import share_interval
from stallward.evaluation.results.interval import Interval

_STRETCHES: Final = 50
_LEAST_STRETCH_S: Final = 10
"""Intervals resample stretches of neighbouring seconds, which share their luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseShare:
    """How many seconds show a sign of one cause; of missed seconds, and of those that met."""

    cause: Cause
    missed_s: int
    of_missed: Interval
    of_met: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAdvice:
    """What would have been done to one slot: shares of the seconds in which anybody was asked."""

    name: str
    held_bytes: float | None
    """The median of its memory."""
    paused: float
    limited: float
    """Under a limit below what it held."""
    paused_of_missed: float | None
    limited_of_missed: float | None
    taken_bytes: float | None
    """The mean of what its limits would have taken, where they would have taken anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a controller would have done that was asked and not followed."""

    controllers: tuple[str, ...]
    asked_s: int
    held_s: int
    """In how many of these seconds it would have held something back."""
    missed_s: int
    """How many of them missed the target."""
    held_missed_s: int
    slots: tuple[SlotAdvice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The answer, and what it rests on."""

    verdict: Verdict
    reasons: tuple[Reason, ...]
    """Why it is not better; those that weigh most first."""
    target_ms: float | None
    """The last; ``None`` if none is known."""
    recorded_s: int
    acted_s: int
    """Seconds that are left out because the daemon acted."""
    judged_s: int
    """The others with requests."""
    missed_s: int
    missed: Interval
    """The share of the judged seconds that missed the target."""
    short_of_missed: Interval
    """The share of the missed seconds in which the application waited for memory, however usual that
    is."""
    short_of_met: float | None
    causes: tuple[CauseShare, ...]
    advice: Advice | None
    """``None`` if no controller was asked."""


def free_rows(readings: Readings) -> Mask:
    """The rows of seconds in which the daemon did not act."""
    return known_rows(readings) & ~acted_rows(readings)


def free_seconds(parts: Sequence[Readings]) -> Seconds:
    """These seconds of all recordings."""
    return Seconds.joined([seconds_of(part) for part in parts], [*map(free_rows, parts)])


def assess(parts: Sequence[Readings]) -> Assessment:
    """Assess the recordings of one node, in the order of time.

    Raises:
        MeasureError: If there is nothing to assess, or they are of different groups.
    """
    names = parts[0].slot_names
    if any(part.slot_names != names for part in parts):
        raise MeasureError(
            "The recordings are of different background groups.",
            next_step="Assess those of one configuration.",
        )
    recorded_s = int(sum(known_rows(part).sum() for part in parts))
    if not recorded_s:
        raise MeasureError("Less than two seconds are recorded.", next_step="Record longer.")
    seconds = free_seconds(parts)
    acted_s = recorded_s - seconds.p95_ms.size
    missed, met = seconds.missed, seconds.judged & ~seconds.missed
    short = short_of_memory(seconds)
    causes = tuple(
        CauseShare(
            cause=cause,
            missed_s=int((sign & missed).sum()),
            of_missed=_interval(sign, missed),
            of_met=_share(sign, met),
        )
        for cause, sign in causes_of(seconds).items()
    )
    asked = {
        part.controllers[int(number) - 1]: None
        for part in parts
        for number in np.unique(part.of("asked")[free_rows(part)])
        if number > 0.0
    }
    advice = _advice(seconds, names, tuple(asked))
    longest_ms = np.concatenate([part.of("latency_max_ms") for part in parts])
    reasons = [
        *about_the_record(seconds, acted_s / recorded_s, longest_ms),
        *about_the_node(seconds, float(parts[-1].of("node_swap_total_bytes")[-1])),
    ]
    short_of_missed = _interval(short, missed)
    if missed.any():
        held = None
        if advice is not None and advice.missed_s:
            held = advice.held_missed_s / advice.missed_s
        memory = causes[0]
        reasons += about_memory(memory.of_missed, memory.of_met, short_of_missed, held)
    targets = seconds.target_ms[np.isfinite(seconds.target_ms)]
    ordered = by_weight(reasons)
    return Assessment(
        verdict=ordered[0].kind.verdict if ordered else Verdict.HELPS_LIKELY,
        reasons=ordered,
        target_ms=float(targets[-1]) if targets.size else None,
        recorded_s=recorded_s,
        acted_s=acted_s,
        judged_s=int(seconds.judged.sum()),
        missed_s=int(missed.sum()),
        missed=_interval(missed, seconds.judged),
        short_of_missed=short_of_missed,
        short_of_met=_share(short, met),
        causes=causes,
        advice=advice,
    )


def _share(sign: Mask, among: Mask) -> float | None:
    return float((sign & among).sum() / among.sum()) if among.any() else None


def _interval(sign: Mask, among: Mask) -> Interval:
    """The share of some seconds that show a sign, with the interval from resampled stretches."""
    length = max(-(-among.size // _STRETCHES), _LEAST_STRETCH_S)
    starts = np.arange(0, max(among.size, 1), length)
    padded = [np.append(one, False)[: max(among.size, 1)] for one in (sign & among, among)]
    top, bottom = (np.add.reduceat(one.astype(np.float64), starts) for one in padded)
    top, bottom = top[bottom > 0.0], bottom[bottom > 0.0]
    counts = block_counts(max(bottom.size, 1), RESAMPLES, np.random.default_rng(1))
    draws = bootstrap_ratio(top, bottom, counts) if bottom.size else np.zeros(0)
    return share_interval(int(top.sum()), int(bottom.sum()), draws, units=bottom.size)


def _advice(
    seconds: Seconds, names: tuple[str, ...], controllers: tuple[str, ...]
) -> Advice | None:
    asked, missed = seconds.asked, seconds.asked & seconds.missed
    if not asked.any():
        return None
    held = (seconds.paused | (seconds.taken_bytes > 0.0)).any(axis=1)
    return Advice(
        controllers=controllers,
        asked_s=int(asked.sum()),
        held_s=int((held & asked).sum()),
        missed_s=int(missed.sum()),
        held_missed_s=int((held & missed).sum()),
        slots=tuple(_slot(name, seconds, number) for number, name in enumerate(names)),
    )


def _slot(name: str, seconds: Seconds, number: int) -> SlotAdvice:
    asked, missed = seconds.asked, seconds.asked & seconds.missed
    paused, taken = seconds.paused[:, number], seconds.taken_bytes[:, number]
    limited = taken > 0.0
    held = seconds.held_bytes[asked, number]
    return SlotAdvice(
        name=name,
        held_bytes=float(np.nanmedian(held)) if np.isfinite(held).any() else None,
        paused=_share(paused, asked) or 0.0,
        limited=_share(limited, asked) or 0.0,
        paused_of_missed=_share(paused, missed),
        limited_of_missed=_share(limited, missed),
        taken_bytes=float(taken[limited & asked].mean()) if (limited & asked).any() else None,
    )
