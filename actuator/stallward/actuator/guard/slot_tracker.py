"""What the levers of each slot have been doing, kept between ticks. Pure: time comes in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from stallward.agent.desired import MIB
from stallward.agent.sample import SlotState

SHARE_WINDOW_S: Final = 60.0
"""The window of ``SlotState.paused_share``."""
REFERENCE_DECAY_S: Final = 60.0
"""Time constant with which the reference forgets a free group that now holds less."""
STARTED_BYTES: Final = 4 * MIB
"""The reference is known once a group has held this much."""
NEVER_PAUSED_S: Final = 1e6
"""Longer than anything that is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """What is known of one slot right after the levers moved."""

    paused: bool = False
    """The group is paused, or any of its processes is stopped."""
    limit_bytes: int | None = None
    usage_bytes: int | None = None
    swap_bytes: int | None = None

    @property
    def held_bytes(self) -> int | None:
        """What the group holds in memory and swap; ``None`` if its usage could not be read.

        Pressure and limits move anonymous pages to swap, so usage alone falls far below what
        the group wants. Without swap accounting it is all there is.
        """
        return None if self.usage_bytes is None else self.usage_bytes + (self.swap_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseHistory:
    """How one slot was paused lately, CLOCK_MONOTONIC."""

    since_s: float | None = None
    """Since when it is paused; ``None`` if it runs."""
    thawed_s: float | None = None
    """When it was last thawed; ``None`` if it is paused or never was."""
    pauses: tuple[tuple[float, float], ...] = ()
    """Pauses that have ended: begin and end, in order."""


@dataclass(slots=True)
class _Track:
    paused_since_s: float | None = None
    thawed_s: float | None = None
    pauses: deque[tuple[float, float]] = field(default_factory=deque)
    """Pauses that ended inside the window, and perhaps one that began before it; in order."""
    pauses_s: float = 0.0
    """Their lengths summed, so that a tick does not have to."""
    changes: int = 0
    """How often a pause began or ended."""
    limit_bytes: int | None = None
    updated_s: float | None = None
    kept_bytes: float = 0.0

    @property
    def reference_bytes(self) -> int | None:
        return int(self.kept_bytes) if self.kept_bytes >= STARTED_BYTES else None


class SlotTracker:
    """Keeps the :class:`SlotState` of every slot.

    Times that go back are taken for the latest one seen.

    Args:
        slots: How many slots there are.
    """

    def __init__(self, slots: int) -> None:
        self._tracks = tuple(_Track() for _ in range(slots))
        self._latest_s = -math.inf

    @classmethod
    def after_restart(
        cls,
        time_s: float,
        worst_s: Sequence[float],
        still_paused: Sequence[bool] = (),
        histories: Sequence[PauseHistory | None] = (),
    ) -> SlotTracker:
        """A tracker that starts where another was lost.

        A pause that the other had not seen end is taken to last until now. What is not known at
        all is assumed at its worst, so that budgets hold across the restart: the pauses are
        taken to have been the latest ones, and what stands still to have done so for ever.

        Args:
            time_s: Now, CLOCK_MONOTONIC.
            worst_s: How long each slot may have been paused in the last minute.
            still_paused: Which slots are paused now; none by default.
            histories: What the other left of each slot; nothing by default.
        """
        tracker = cls(len(worst_s))
        tracker._latest_s = time_s
        for index, (track, length_s) in enumerate(zip(tracker._tracks, worst_s, strict=True)):
            known = histories[index] if index < len(histories) else None
            still = index < len(still_paused) and still_paused[index]
            if known is None:
                known = PauseHistory(since_s=time_s - length_s)
                if still:
                    known = PauseHistory(since_s=time_s - NEVER_PAUSED_S)
            _go_on(track, known, time_s, still=still)
        return tracker

    def changes(self) -> tuple[int, ...]:
        """Of each slot, a number that is another one when its history is."""
        return tuple(track.changes for track in self._tracks)

    def history(self, slot: int) -> PauseHistory:
        """How a slot was paused lately."""
        track = self._tracks[slot]
        return PauseHistory(
            since_s=track.paused_since_s, thawed_s=track.thawed_s, pauses=tuple(track.pauses)
        )

    def begin(self, time_s: float, slots: Iterable[int]) -> None:
        """Take in that the levers will now pause ``slots``; :meth:`update` says what they did."""
        time_s = self._not_back(time_s)
        for slot in slots:
            _pause(self._tracks[slot], time_s)

    def update(
        self, time_s: float, facts: Sequence[SlotFacts], done_s: float | None = None
    ) -> None:
        """Take in what the levers did, one fact a slot.

        Args:
            time_s: Just before they moved, CLOCK_MONOTONIC: pauses count from here.
            facts: What is so since.
            done_s: Just after: pauses count until here, running from here. ``time_s`` if not
                given.
        """
        time_s = self._not_back(time_s)
        done_s = time_s if done_s is None else self._not_back(done_s)
        for track, fact in zip(self._tracks, facts, strict=True):
            if fact.paused:
                _pause(track, time_s)
            else:
                _thaw(track, done_s)
            track.limit_bytes = fact.limit_bytes
            elapsed_s = 0.0 if track.updated_s is None else max(time_s - track.updated_s, 0.0)
            track.updated_s = time_s
            if not fact.paused and fact.held_bytes is not None:
                _learn(track, elapsed_s, fact.held_bytes)

    def states(self, time_s: float) -> tuple[SlotState, ...]:
        """The state of every slot as of ``time_s``."""
        time_s = self._not_back(time_s)
        return tuple(_state(track, time_s) for track in self._tracks)

    def _not_back(self, time_s: float) -> float:
        self._latest_s = max(self._latest_s, time_s)  # the latest one beside a NaN too
        return self._latest_s


def _pause(track: _Track, time_s: float) -> None:
    """Note that a pause begins, unless one goes on."""
    if track.paused_since_s is None:
        track.paused_since_s, track.thawed_s = time_s, None
        track.changes += 1


def _thaw(track: _Track, time_s: float) -> None:
    """Note that the pause, if any, has ended."""
    if track.paused_since_s is not None:
        _add(track, track.paused_since_s, time_s)
        track.paused_since_s, track.thawed_s = None, time_s
        track.changes += 1


def _go_on(track: _Track, known: PauseHistory, time_s: float, *, still: bool) -> None:
    """Start a track where ``known`` ends."""
    for begin_s, end_s in known.pauses:
        _add(track, begin_s, min(end_s, time_s))
    track.thawed_s = known.thawed_s
    if known.since_s is not None:
        track.paused_since_s, track.thawed_s = min(known.since_s, time_s), None
    elif still:  # somebody else's, since nobody knows when
        track.paused_since_s, track.thawed_s = time_s - NEVER_PAUSED_S, None
    track.changes += 1
    if not still:
        _thaw(track, time_s)


def _add(track: _Track, begin_s: float, end_s: float) -> None:
    """Note a pause that has ended."""
    if end_s > begin_s:
        track.pauses.append((begin_s, end_s))
        track.pauses_s += end_s - begin_s


def _paused_before_now_s(track: _Track, start_s: float) -> float:
    """How long the pauses that have ended lasted, from ``start_s`` on."""
    while track.pauses and track.pauses[0][1] <= start_s:
        begin_s, end_s = track.pauses.popleft()
        track.pauses_s -= end_s - begin_s
    if not track.pauses:
        track.pauses_s = 0.0  # what rounding left
        return 0.0
    return max(track.pauses_s - max(start_s - track.pauses[0][0], 0.0), 0.0)


def _learn(track: _Track, elapsed_s: float, held_bytes: int) -> None:
    """Take in what a running group holds.

    Only free time forgets a larger past: a limited group may hold less than it wants. What it
    keeps in swap still shows a limited group grow, so a limit set while it starts follows it.
    """
    if track.limit_bytes is None:
        track.kept_bytes *= math.exp(-elapsed_s / REFERENCE_DECAY_S)
    track.kept_bytes = max(track.kept_bytes, float(held_bytes))


def _state(track: _Track, time_s: float) -> SlotState:
    start_s = time_s - SHARE_WINDOW_S
    paused_s = _paused_before_now_s(track, start_s)
    paused_for_s = 0.0
    if track.paused_since_s is not None:
        paused_for_s = max(time_s - track.paused_since_s, 0.0)
        paused_s += min(paused_for_s, SHARE_WINDOW_S)
    since_thaw_s = 0.0
    if track.paused_since_s is None:
        thawed_s = track.thawed_s
        since_thaw_s = NEVER_PAUSED_S if thawed_s is None else max(time_s - thawed_s, 0.0)
    return SlotState(
        paused=track.paused_since_s is not None,
        paused_for_s=paused_for_s,
        since_thaw_s=since_thaw_s,
        paused_share=min(paused_s / SHARE_WINDOW_S, 1.0),
        limit_bytes=track.limit_bytes,
        reference_bytes=track.reference_bytes,
    )
