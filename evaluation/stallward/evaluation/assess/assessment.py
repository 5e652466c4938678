"""Would it help here? The figures, and the answer. Pure.

docs/explanation/when-it-helps.md says what everything means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from stallward.actuator.guard.hold_budget import REFAULTS_PER_S, STALL_SHARE
from stallward.actuator.latency.counts import LEAST_STEPS, Resolution
from stallward.agent.desired import DEFAULT_FLOOR_BYTES
from stallward.agent.sharing.slow_swap import SlowSwapThresholds
from stallward.evaluation.assess.readings import (
    Array,
    Mask,
    Readings,
    Seconds,
    acted_rows,
    known_rows,
    seconds_of,
)
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.measures.bootstrap import RESAMPLES, block_counts, bootstrap_ratio
from stallward.evaluation.measures.intervals import share_interval
from stallward.evaluation.results.interval import Interval

# ---------- What the seconds that missed the target show signs of. Pure.
# docs/explanation/when-it-helps.md explains the rule.

USUAL: Final = 0.95
"""What is usual is this quantile of a signal over the seconds that met the target."""
LEAST_MET: Final = 60
"""With fewer seconds that met it, nothing is known to be usual."""


class Cause(StrEnum):
    """What a second shows a sign of."""

    MEMORY = "memory"
    """The application waited for memory, or read back pages that it had lost."""
    DISK = "disk"
    """It waited for a disk, and not for memory."""
    CPU = "cpu"
    """It waited for a processor."""
    LOAD = "load"
    """It had more requests than usual."""
    UNKNOWN = "unknown"
    """None of these."""


def causes_of(seconds: Seconds) -> dict[Cause, Mask]:
    """The seconds with requests that show a sign of each cause, whether they missed or not.

    A signal is a sign above a floor, which for memory is the guard's, and above what is usual. A
    wait for memory is one for the disk as well, because the page comes from there, and the kernel
    counts both (Documentation/accounting/psi.rst). So a second with a sign of memory has none of
    the disk. Otherwise a second may show several.
    """
    met = seconds.judged & ~seconds.missed
    memory = _above(seconds.stall, met, STALL_SHARE)
    memory |= _above(seconds.refaults_per_s, met, REFAULTS_PER_S)
    signs = {
        Cause.MEMORY: memory,
        Cause.DISK: _above(seconds.disk, met, STALL_SHARE) & ~memory,
        Cause.CPU: _above(seconds.cpu, met, STALL_SHARE),
        Cause.LOAD: _above(seconds.requests_per_s, met, None),
    }
    signs[Cause.UNKNOWN] = ~np.any(list(signs.values()), axis=0)
    return {cause: sign & seconds.judged for cause, sign in signs.items()}


def short_of_memory(seconds: Seconds) -> Mask:
    """The seconds in which the application waited for memory, however usual that is."""
    return (seconds.stall > STALL_SHARE) | (seconds.refaults_per_s > REFAULTS_PER_S)


def _above(signal: Array, met: Mask, floor: float | None) -> Mask:
    """Where a signal is above its floor, if it has one, and above what is usual, if that is known."""
    known = signal[met & np.isfinite(signal)]
    if known.size < LEAST_MET:
        return signal > (np.inf if floor is None else floor)
    usual = float(np.quantile(known, USUAL))
    return signal > (usual if floor is None else max(usual, floor))


# ---------- Would it help? The answers, and the reasons for all but the best. Pure

LEAST_S: Final = 600
"""With fewer seconds with requests nothing is said."""
LIKELY_SHARE: Final = 0.5
"""It likely helps if a share of the missed seconds that is certainly larger by this than that of the
others shows a sign of memory, and if the controller acts in more of them than this."""
RARE_SHARE: Final = 0.1
"""What certainly fewer of the missed seconds have than this is not why they miss."""
MOST_ACTED_SHARE: Final = 0.05
"""If the daemon acted for more of the time than this, the rest does not stand for all of it."""
SLOW_PAGE_US: Final = SlowSwapThresholds().slow_swap_us
"""The time from which on a page takes long to come back from swap."""
_LEAST_SWAP_S: Final = 10
"""With fewer readings of a page's cost nothing is said of it."""


class Verdict(StrEnum):
    """The answer. Of several the last holds."""

    HELPS_LIKELY = "helps-likely"
    MAY_HELP = "may-help"
    TOO_EARLY = "too-early"
    NO = "no"


class ReasonKind(StrEnum):
    """Why the answer is not better."""

    NO_REQUESTS = "no-requests"
    """No latency is known. Found, and needed: seconds."""
    TOO_LITTLE = "too-little"
    """There are too few seconds with requests. Found, and needed: seconds."""
    ACTED = "acted"
    """The daemon acted. Found, and allowed: the share of the time."""
    NOTHING_MISSED = "nothing-missed"
    """Found: missed seconds, 0; bound: seconds with requests."""
    NO_PRESSURE = "no-pressure"
    """The application hardly waited for memory. Found, and needed: the share of missed seconds."""
    AS_USUAL = "as-usual"
    """It waited, but not certainly more often than where it met the target. Found: by how much of
    the seconds at least; bound: what that should exceed."""
    NOTHING_HELD = "nothing-held"
    """Found: the bytes that the background held in missed seconds; bound: a floor."""
    COARSE = "coarse"
    """Found: the target in ms; bound: the least target for the steps of the source."""
    NO_SWAP = "no-swap"
    """Found: the bytes that limits could take from running groups; bound: what they hold."""
    SLOW_SWAP = "slow-swap"
    """Found: the stall for a page from swap in us; bound: from where it is slow."""
    RARELY_HELD = "rarely-held"
    """Found: the share of missed seconds in which something would have been held back; bound: what
    it should exceed."""

    @property
    def verdict(self) -> Verdict:
        """The best answer that it allows."""
        return _VERDICTS[self]


_VERDICTS: Final = {
    ReasonKind.NO_REQUESTS: Verdict.TOO_EARLY,
    ReasonKind.TOO_LITTLE: Verdict.TOO_EARLY,
    ReasonKind.ACTED: Verdict.TOO_EARLY,
    ReasonKind.NOTHING_MISSED: Verdict.NO,
    ReasonKind.NO_PRESSURE: Verdict.NO,
    ReasonKind.AS_USUAL: Verdict.MAY_HELP,
    ReasonKind.NOTHING_HELD: Verdict.NO,
    ReasonKind.COARSE: Verdict.NO,
    ReasonKind.NO_SWAP: Verdict.MAY_HELP,  # pauses protect even then
    ReasonKind.SLOW_SWAP: Verdict.MAY_HELP,
    ReasonKind.RARELY_HELD: Verdict.MAY_HELP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why the answer is not better."""

    kind: ReasonKind
    found: float
    bound: float


def by_weight(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """The reasons, those first that allow least."""
    order = list(Verdict)
    return tuple(sorted(reasons, key=lambda one: -order.index(one.kind.verdict)))


def about_the_record(seconds: Seconds, acted_share: float, sampled_ms: Array) -> Iterator[Reason]:
    """Whether the record can say anything.

    Args:
        seconds: The seconds without control.
        acted_share: The share of the recorded time that is left out because the daemon acted.
        sampled_ms: The longest latencies and the p95. Both are the source's own numbers, except that
            of a histogram the p95 lies within a bucket. So its bounds are not taken for steps.
    """
    if acted_share > MOST_ACTED_SHARE:
        yield Reason(kind=ReasonKind.ACTED, found=acted_share, bound=MOST_ACTED_SHARE)
    if acted_share == 1.0:
        return
    judged_s = int(seconds.judged.sum())
    if judged_s == 0:
        yield Reason(kind=ReasonKind.NO_REQUESTS, found=0.0, bound=LEAST_S)
        return
    if judged_s < LEAST_S:
        yield Reason(kind=ReasonKind.TOO_LITTLE, found=judged_s, bound=LEAST_S)
    elif not seconds.missed.any():
        yield Reason(kind=ReasonKind.NOTHING_MISSED, found=0.0, bound=judged_s)
    resolution, target_ms = Resolution(), float(np.nanmin(seconds.target_ms))
    resolution.take(sampled_ms.tolist())
    if target_ms < LEAST_STEPS * resolution.step_ms:
        bound = LEAST_STEPS * resolution.step_ms
        yield Reason(kind=ReasonKind.COARSE, found=target_ms, bound=bound)


def about_the_node(seconds: Seconds, swap_total_bytes: float) -> Iterator[Reason]:
    """Whether there is anything that could be taken, and given back."""
    held = _median_sum(seconds.held_bytes[seconds.missed])
    if held < DEFAULT_FLOOR_BYTES:
        yield Reason(kind=ReasonKind.NOTHING_HELD, found=held, bound=DEFAULT_FLOOR_BYTES)
    if swap_total_bytes == 0.0 and np.isfinite(seconds.least_bytes).any():  # else it is no v1
        found = _median_sum(np.maximum(seconds.held_bytes - seconds.least_bytes, 0.0))
        bound = _median_sum(seconds.held_bytes)
        yield Reason(kind=ReasonKind.NO_SWAP, found=found, bound=bound)
    pages = seconds.page_us[np.isfinite(seconds.page_us)]
    if pages.size >= _LEAST_SWAP_S and np.median(pages) > SLOW_PAGE_US:
        yield Reason(kind=ReasonKind.SLOW_SWAP, found=float(np.median(pages)), bound=SLOW_PAGE_US)


def about_memory(
    of_missed: Interval, of_met: float | None, short: Interval, held: float | None
) -> Iterator[Reason]:
    """Whether memory is why seconds were missed, and whether anything would have been done.

    Args:
        of_missed: The share of the missed seconds with a sign of memory.
        of_met: The same of those that met the target, if there are any.
        short: The share in which the application waited for memory, however usual that is.
        held: The share in which a controller would have held something back, if one was asked.
    """
    if short.high is not None and short.high < RARE_SHARE:
        yield Reason(kind=ReasonKind.NO_PRESSURE, found=short.value or 0.0, bound=RARE_SHARE)
        return
    more = max((of_missed.low or 0.0) - (of_met or 0.0), 0.0)
    if more < LIKELY_SHARE:
        yield Reason(kind=ReasonKind.AS_USUAL, found=more, bound=LIKELY_SHARE)
    if held is not None and held < LIKELY_SHARE:
        yield Reason(kind=ReasonKind.RARELY_HELD, found=held, bound=LIKELY_SHARE)


def _median_sum(of_slots: Array) -> float:
    """The median over seconds of the sum over slots; NaN if it is never known."""
    known = of_slots[np.isfinite(of_slots).any(axis=1)]
    return float(np.median(np.nansum(known, axis=1))) if known.size else float("nan")


# ---------- The figures of an assessment

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
class ApplicationShare:
    """How often one of several applications missed its own target."""

    name: str
    target_ms: float | None
    """The last; ``None`` if none is known."""
    judged_s: int
    """Seconds in which one of its requests ended."""
    missed_s: int
    missed: Interval
    """The share of these seconds that missed the target."""


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
    """Those that missed the target; where there are several applications, the target of any."""
    missed: Interval
    """The share of the judged seconds that missed the target."""
    short_of_missed: Interval
    """The share of the missed seconds in which the application waited for memory, however usual that
    is."""
    short_of_met: float | None
    causes: tuple[CauseShare, ...]
    advice: Advice | None
    """``None`` if no controller was asked."""
    applications: tuple[ApplicationShare, ...] = ()
    """Each of several applications, the one that missed most first; empty where there is one."""


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
    applications = parts[0].applications
    if any(part.applications != applications for part in parts):
        raise MeasureError(
            "The recordings are of different protected applications.",
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
    sampled_ms = np.concatenate(
        [part.of(name) for part in parts for name in ("latency_max_ms", "latency_p95_ms")]
    )
    reasons = [
        *about_the_record(seconds, acted_s / recorded_s, sampled_ms),
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
        applications=_applications(seconds, applications),
    )


def _applications(seconds: Seconds, names: Sequence[str]) -> tuple[ApplicationShare, ...]:
    """How often each application missed its target, the one that missed most first."""
    shares = []
    for number, name in enumerate(names):
        p95_ms, target_ms = seconds.own_p95_ms[:, number], seconds.own_target_ms[:, number]
        judged = np.isfinite(p95_ms) & np.isfinite(target_ms)
        missed = judged & (p95_ms > target_ms)
        known_ms = target_ms[np.isfinite(target_ms)]
        shares.append(
            ApplicationShare(
                name=name,
                target_ms=float(known_ms[-1]) if known_ms.size else None,
                judged_s=int(judged.sum()),
                missed_s=int(missed.sum()),
                missed=_interval(missed, judged),
            )
        )
    return tuple(sorted(shares, key=lambda one: -one.missed_s))


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
