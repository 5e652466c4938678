"""Tracks each slot's pauses, limits and memory between ticks. Pure: the time is an argument."""

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
"""The time constant with which the reference falls when an unlimited group uses less."""
STARTED_BYTES: Final = 4 * MIB
"""The reference is known once a group has used this much memory."""
NEVER_PAUSED_S: Final = 1e6
"""The time since the last thaw of a slot that was never paused: longer than any budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """The state of one slot right after the levers moved."""

    paused: bool = False
    """The group is paused, or any of its processes is stopped."""
    limit_bytes: int | None = None
    usage_bytes: int | None = None
    swap_bytes: int | None = None

    @property
    def held_bytes(self) -> int | None:
        """The group's memory and swap together; ``None`` if its usage could not be read.

        Pressure and limits move anonymous pages to swap, so memory alone falls far below what the
        group needs. Without swap accounting only the memory is counted.
        """
        return None if self.usage_bytes is None else self.usage_bytes + (self.swap_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseHistory:
    """The recent pauses of one slot; times are CLOCK_MONOTONIC."""

    since_s: float | None = None
    """The begin of the current pause; ``None`` if the slot runs."""
    thawed_s: float | None = None
    """The time of the last thaw; ``None`` if the slot is paused or never was."""
    pauses: tuple[tuple[float, float], ...] = ()
    """The pauses that have ended, in order: begin and end of each."""


@dataclass(slots=True)
class _Track:
    """The state of one slot."""

    paused_since_s: float | None = None
    thawed_s: float | None = None
    pauses: deque[tuple[float, float]] = field(default_factory=deque)
    """Pauses that ended inside the window, in order; the first may have begun before it."""
    pauses_s: float = 0.0
    """The sum of their lengths, kept so that a tick does not compute it."""
    changes: int = 0
    """How often a pause began or ended."""
    limit_bytes: int | None = None
    memory_waits: int = 0
    updated_s: float | None = None
    peak_bytes: float = 0.0
    """The largest memory that the group held, decaying while it is not limited."""

    @property
    def reference_bytes(self) -> int | None:
        return int(self.peak_bytes) if self.peak_bytes >= STARTED_BYTES else None


class SlotTracker:
    """Keeps the :class:`SlotState` of every slot.

    A time earlier than the latest one seen is replaced by it.

    Args:
        slots: The number of slots.
    """

    def __init__(self, slots: int) -> None:
        self._tracks = [_Track() for _ in range(slots)]
        self._latest_s = -math.inf

    @classmethod
    def after_restart(
        cls,
        time_s: float,
        worst_s: Sequence[float],
        still_paused: Sequence[bool] = (),
        histories: Sequence[PauseHistory | None] = (),
    ) -> SlotTracker:
        """A tracker that continues from the history of one that was lost.

        A pause whose end was not recorded counts until now. For a slot without a history the
        worst is assumed, so that budgets hold across the restart: that it was paused for its
        ``worst_s`` until now, and for ever if it is still paused.

        Args:
            time_s: Now, CLOCK_MONOTONIC.
            worst_s: How long each slot may have been paused in the last minute.
            still_paused: Whether each slot is paused now; not, by default.
            histories: The recorded history of each slot; none by default.
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
            _continue(track, known, time_s, still=still)
        return tracker

    def changes(self) -> tuple[int, ...]:
        """A number for each slot, which changes whenever the slot's history changes."""
        return tuple(track.changes for track in self._tracks)

    def history(self, slot: int) -> PauseHistory:
        """The recent pauses of a slot."""
        track = self._tracks[slot]
        return PauseHistory(
            since_s=track.paused_since_s, thawed_s=track.thawed_s, pauses=tuple(track.pauses)
        )

    def forget(self, slot: int) -> None:
        """Start again with a slot that has lost its group."""
        self._tracks[slot] = _Track(changes=self._tracks[slot].changes + 1)

    def resume(self, slot: int, history: PauseHistory) -> None:
        """Go on with a slot whose group was there before, from its history then.

        Args:
            slot: The slot.
            history: Its history, in which no pause goes on.
        """
        track = _Track(changes=self._tracks[slot].changes)
        _continue(track, history, self._latest_s, still=False)
        self._tracks[slot] = track

    def begin(self, time_s: float, slots: Iterable[int]) -> None:
        """Note that the levers are about to pause ``slots``; :meth:`update` has to follow."""
        time_s = self._monotonic(time_s)
        for slot in slots:
            _pause(self._tracks[slot], time_s)

    def update(
        self, time_s: float, facts: Sequence[SlotFacts], done_s: float | None = None
    ) -> None:
        """Note what the levers did.

        Args:
            time_s: The time just before they moved, CLOCK_MONOTONIC; a new pause counts from it.
            facts: The state of each slot after they moved.
            done_s: The time just after they moved; a pause that ended counts until it. ``time_s``
                by default.
        """
        time_s = self._monotonic(time_s)
        done_s = time_s if done_s is None else self._monotonic(done_s)
        for track, fact in zip(self._tracks, facts, strict=True):
            if fact.paused:
                _pause(track, time_s)
            else:
                _thaw(track, done_s)
            track.limit_bytes = fact.limit_bytes
            elapsed_s = 0.0 if track.updated_s is None else max(time_s - track.updated_s, 0.0)
            track.updated_s = time_s
            if not fact.paused and fact.held_bytes is not None:
                _update_reference(track, elapsed_s, fact.held_bytes)

    def note_waits(self, waits: Sequence[int]) -> None:
        """Note how often each slot had to wait for memory under a limit so far."""
        for track, total in zip(self._tracks, waits, strict=True):
            track.memory_waits = total

    def states(self, time_s: float) -> tuple[SlotState, ...]:
        """The state of every slot as of ``time_s``."""
        time_s = self._monotonic(time_s)
        return tuple(_state(track, time_s) for track in self._tracks)

    def _monotonic(self, time_s: float) -> float:
        self._latest_s = max(self._latest_s, time_s)  # a NaN does not replace the latest time
        return self._latest_s


def _pause(track: _Track, time_s: float) -> None:
    """Note that a pause begins, unless the slot is paused already."""
    if track.paused_since_s is None:
        track.paused_since_s, track.thawed_s = time_s, None
        track.changes += 1


def _thaw(track: _Track, time_s: float) -> None:
    """Note that the pause has ended, if there is one."""
    if track.paused_since_s is not None:
        _add(track, track.paused_since_s, time_s)
        track.paused_since_s, track.thawed_s = None, time_s
        track.changes += 1


def _continue(track: _Track, known: PauseHistory, time_s: float, *, still: bool) -> None:
    """Fill a new track from the history ``known``."""
    for begin_s, end_s in known.pauses:
        _add(track, begin_s, min(end_s, time_s))
    track.thawed_s = known.thawed_s
    if known.since_s is not None:
        track.paused_since_s, track.thawed_s = min(known.since_s, time_s), None
    elif still:  # another program paused it, at an unknown time
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
    """The length of the ended pauses after ``start_s``; drops those that ended before it."""
    while track.pauses and track.pauses[0][1] <= start_s:
        begin_s, end_s = track.pauses.popleft()
        track.pauses_s -= end_s - begin_s
    if not track.pauses:
        track.pauses_s = 0.0  # removes rounding errors
        return 0.0
    return max(track.pauses_s - max(start_s - track.pauses[0][0], 0.0), 0.0)


def _update_reference(track: _Track, elapsed_s: float, held_bytes: int) -> None:
    """Update the reference with the memory and swap of a running group.

    The reference decays only without a limit, because a limited group may hold less than it
    needs. Its swap still shows that a limited group grows, so a limit set while it starts rises
    with it.
    """
    if track.limit_bytes is None:
        track.peak_bytes *= math.exp(-elapsed_s / REFERENCE_DECAY_S)
    track.peak_bytes = max(track.peak_bytes, float(held_bytes))


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
        memory_waits=track.memory_waits,
    )
