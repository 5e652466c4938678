"""What the levers of each slot have been doing, kept between ticks. Pure: time comes in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
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


@dataclass(slots=True)
class _Track:
    paused_since_s: float | None = None
    thawed_s: float | None = None
    pauses: deque[tuple[float, float]] = field(default_factory=deque)
    limit_bytes: int | None = None
    updated_s: float | None = None
    kept_bytes: float = 0.0

    @property
    def reference_bytes(self) -> int | None:
        return int(self.kept_bytes) if self.kept_bytes >= STARTED_BYTES else None


class SlotTracker:
    """Keeps the :class:`SlotState` of every slot.

    Args:
        slots: How many slots there are.
    """

    def __init__(self, slots: int) -> None:
        self._tracks = tuple(_Track() for _ in range(slots))

    def update(self, time_s: float, facts: Sequence[SlotFacts]) -> None:
        """Take in what the levers did at ``time_s`` (CLOCK_MONOTONIC), one fact a slot."""
        for track, fact in zip(self._tracks, facts, strict=True):
            if fact.paused and track.paused_since_s is None:
                track.paused_since_s = time_s
            elif not fact.paused and track.paused_since_s is not None:
                track.pauses.append((track.paused_since_s, time_s))
                track.paused_since_s, track.thawed_s = None, time_s
            track.limit_bytes = fact.limit_bytes
            elapsed_s = 0.0 if track.updated_s is None else max(time_s - track.updated_s, 0.0)
            track.updated_s = time_s
            if not fact.paused and fact.held_bytes is not None:
                _learn(track, elapsed_s, fact.held_bytes)

    def states(self, time_s: float) -> tuple[SlotState, ...]:
        """The state of every slot as of ``time_s``."""
        return tuple(_state(track, time_s) for track in self._tracks)


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
    while track.pauses and track.pauses[0][1] <= start_s:
        track.pauses.popleft()
    paused_s = sum(end - max(begin, start_s) for begin, end in track.pauses)
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
