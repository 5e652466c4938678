"""What the levers of each slot have been doing, kept between ticks. Pure: time comes in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from stallward.agent.sample import SlotState

SHARE_WINDOW_S: Final = 60.0
"""The window of ``SlotState.paused_share``."""
REFERENCE_DECAY_S: Final = 60.0
"""Time constant with which the reference forgets a group that now uses less."""
NEVER_PAUSED_S: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """What is known of one slot right after the levers moved."""

    paused: bool = False
    """The group is paused, or any of its processes is stopped."""
    limit_bytes: int | None = None
    usage_bytes: int | None = None


@dataclass(slots=True)
class _Track:
    paused_since_s: float | None = None
    thawed_s: float | None = None
    pauses: deque[tuple[float, float]] = field(default_factory=deque)
    limit_bytes: int | None = None
    reference_bytes: float | None = None
    reference_time_s: float = 0.0


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
            if not fact.paused and fact.limit_bytes is None and fact.usage_bytes is not None:
                _remember_usage(track, time_s, fact.usage_bytes)

    def states(self, time_s: float) -> tuple[SlotState, ...]:
        """The state of every slot as of ``time_s``."""
        return tuple(_state(track, time_s) for track in self._tracks)


def _remember_usage(track: _Track, time_s: float, usage_bytes: int) -> None:
    # Pressure pushes a group's pages out, so what it uses now can be far below what it wants:
    # the maximum is kept and forgotten slowly.
    if track.reference_bytes is None:
        kept = 0.0
    else:
        elapsed_s = max(time_s - track.reference_time_s, 0.0)
        kept = track.reference_bytes * math.exp(-elapsed_s / REFERENCE_DECAY_S)
    track.reference_bytes = max(kept, float(usage_bytes))
    track.reference_time_s = time_s


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
    reference = track.reference_bytes
    return SlotState(
        paused=track.paused_since_s is not None,
        paused_for_s=paused_for_s,
        since_thaw_s=since_thaw_s,
        paused_share=min(paused_s / SHARE_WINDOW_S, 1.0),
        limit_bytes=track.limit_bytes,
        reference_bytes=None if reference is None else int(reference),
    )
