"""Would it help? The answers, and the reasons for all but the best. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from stallward.actuator.latency.counts import LEAST_STEPS, Resolution
from stallward.agent.desired import DEFAULT_FLOOR_BYTES
from stallward.evaluation.assess.readings import Array
from stallward.evaluation.assess.seconds import Seconds
from stallward.evaluation.results.interval import Interval

LEAST_S: Final = 600
"""With fewer seconds with requests nothing is said."""
LIKELY_SHARE: Final = 0.5
"""It likely helps if a share of the missed seconds that is certainly larger by this than that of the
others shows a sign of memory, and if the controller acts in more of them than this."""
RARE_SHARE: Final = 0.1
"""What certainly fewer of the missed seconds have than this is not why they miss."""
MOST_ACTED_SHARE: Final = 0.05
"""If the daemon acted for more of the time than this, the rest does not stand for all of it."""
SLOW_PAGE_US: Final = 150.0
"""Fast disks took 15 to 65 us of stall for a page from swap, slow ones 218 to 580
(docs/lab/disk-and-cpu.md)."""
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


def about_the_record(seconds: Seconds, acted_share: float, longest_ms: Array) -> Iterator[Reason]:
    """Whether the record can say anything.

    Args:
        seconds: The seconds without control.
        acted_share: The share of the recorded time that is left out because the daemon acted.
        longest_ms: The longest latencies, which are the source's own numbers; a p95 may lie between
            two of them.
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
    resolution.take(longest_ms.tolist())
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
