"""The seconds of a node without control: what the application waited for, and what was held. Pure.

Signals of the application are means over the time in which the slow requests of a second were under
way: the second itself, and before it as long as its p95.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.assess.readings import MOST_GAP_S, Array, Readings

Mask = NDArray[np.bool_]
_LONGEST_REACH_S: Final = 60
_SWAP_PAGES_PER_S: Final = 200.0
_SWAP_TO_FILE: Final = 4.0
"""The cost of a page is known where a slot reads as many a second back from swap, and four times as
many as of files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seconds:
    """Arrays with an entry, or with a row of slots, for each second; NaN where unknown."""

    p95_ms: Array
    target_ms: Array
    stall: Array
    """The share of the time in which a task of the application waited for memory."""
    refaults_per_s: Array
    """Pages that it read back."""
    disk: Array
    cpu: Array
    requests_per_s: Array
    asked: Mask
    """Whether a controller was asked that could have held something back."""
    paused: Mask
    """Whether it would have paused the slot."""
    taken_bytes: Array
    """What its limit would have taken from the slot."""
    held_bytes: Array
    least_bytes: Array
    """The least limit under which the slot may run, where that is bounded."""
    page_us: Array
    """The slot's stall for each page that it read back from swap."""

    @property
    def judged(self) -> Mask:
        """Those in which a request ended."""
        return np.isfinite(self.p95_ms) & np.isfinite(self.target_ms)

    @property
    def missed(self) -> Mask:
        """Those whose p95 was above the target."""
        return self.judged & (self.p95_ms > self.target_ms)

    @classmethod
    def joined(cls, parts: Sequence[Seconds], masks: Sequence[Mask]) -> Seconds:
        """The seconds of several recordings, each those that its mask has."""
        names = cls.__slots__
        pairs = [(part, mask) for part, mask in zip(parts, masks, strict=True)]
        return cls(
            **{n: np.concatenate([getattr(part, n)[mask] for part, mask in pairs]) for n in names}
        )


def known_rows(readings: Readings) -> Mask:
    """The rows that say something of the second before them, because there is a row just before."""
    passed_s = np.diff(readings.of("time_s"), prepend=np.nan)
    same = np.diff(readings.of("stretch"), prepend=np.nan) == 0.0
    return np.asarray(same & (passed_s > 0.0) & (passed_s <= MOST_GAP_S))


def acted_rows(readings: Readings) -> Mask:
    """The rows of stretches in which the daemon held anything: all of a stretch, or none.

    Its calm seconds alone would say too much good of no control.
    """
    held = (
        (np.nan_to_num(readings.of("tuned")) > 0.0)
        | (np.nan_to_num(readings.of_slots("slot{}_state_paused")) > 0.0).any(axis=1)
        | np.isfinite(readings.of_slots("slot{}_state_limit_bytes")).any(axis=1)
    )
    stretch = readings.of("stretch")
    return np.asarray(np.isin(stretch, np.unique(stretch[held])))


def seconds_of(readings: Readings) -> Seconds:
    """The seconds of all rows."""
    time_s, stretch, p95_ms = map(readings.of, ("time_s", "stretch", "latency_p95_ms"))
    reach = 1 + np.minimum(np.nan_to_num(p95_ms) // 1e3, _LONGEST_REACH_S).astype(np.int64)
    start = np.maximum(np.arange(time_s.size) - reach, np.searchsorted(stretch, stretch))

    def rate(total: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            grown = (total - total[start]) / (time_s - time_s[start])
        return np.asarray(np.where(grown >= 0.0, grown, np.nan))

    def stalls(of: str) -> Array:
        own = readings.of(f"protected_psi_{of}_some_us")
        if not np.isfinite(own).any():
            return rate(1e-6 * readings.of(f"node_psi_{of}_some_us"))
        turn_s = readings.of("protected_turn_read_s") if of == "cpu" else time_s
        return rate(1e-6 * _between_turns(own, turn_s, time_s))

    both = [readings.of(f"protected_refault_{kind}_pages") for kind in ("file", "anon")]
    counted = np.isfinite(both).any(axis=0)
    refaults = np.where(counted, np.nansum(both, axis=0), readings.of("protected_major_faults"))
    held_bytes = readings.of_slots("slot{}_memory_usage_bytes")
    limit_bytes = readings.of_slots("granted_slot{}_limit_bytes")
    return Seconds(
        p95_ms=p95_ms,
        target_ms=readings.of("target_ms"),
        stall=stalls("memory"),
        refaults_per_s=rate(refaults),
        disk=stalls("io"),
        cpu=stalls("cpu"),
        requests_per_s=rate(readings.of("latency_completed_total")),
        asked=readings.of("asked") > 0.0,
        paused=np.nan_to_num(readings.of_slots("granted_slot{}_paused")) > 0.0,
        taken_bytes=np.nan_to_num(np.maximum(held_bytes - limit_bytes, 0.0)),
        held_bytes=held_bytes,
        least_bytes=readings.of_slots("slot{}_state_least_limit_bytes"),
        page_us=_page_us(readings),
    )


def _between_turns(total: Array, turn_s: Array, time_s: Array) -> Array:
    """A counter as a line between its reads, if it is read in turn only.

    The wait for processors is: once in ten ticks, unless a policy sees it.
    """
    turn = np.isfinite(total) & (np.diff(turn_s, prepend=np.nan) != 0.0)
    if not turn.any() or (np.diff(total, prepend=total[:1])[~turn] > 0.0).any():
        return total
    return np.where(np.isfinite(total), np.interp(time_s, time_s[turn], total[turn]), np.nan)


def _page_us(readings: Readings) -> Array:
    """The stall of each slot for a page from swap; NaN where it read few."""
    anon, file, stall_us = (
        np.diff(readings.of_slots(f"slot{{}}_{name}"), axis=0, prepend=np.nan)
        for name in ("refault_anon_pages", "refault_file_pages", "psi_memory_some_us")
    )
    passed_s = np.diff(readings.of("time_s"), prepend=np.nan)[:, None]
    much = (anon >= _SWAP_PAGES_PER_S * passed_s) & (anon >= _SWAP_TO_FILE * file)
    return np.where(much, stall_us / np.maximum(anon, 1.0), np.nan)
