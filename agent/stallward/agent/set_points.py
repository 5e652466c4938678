"""Set-points: what a learned policy may say about the division of memory. Pure.

A policy chooses slowly, about once a second; ``partition`` divides at every tick within what it
chose (two levels, as in Autothrottle, NSDI 2024). The first choice of each entry is *auto*: what
``partition`` does by itself. A policy that always chooses it is ``partition``, so whatever else it
chooses is a deviation that it has to earn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from stallward.agent.desired import FLUSH, KEEP_ANON, KEEP_CACHE, SLOTS, Tuning, check_action


class SlotShare(IntEnum):
    """What a slot gets of the room."""

    AUTO = 0
    """What ``partition`` decides: a part, or the whole in turns if the group thrashes."""
    WAIT = 1
    """Nothing: it is paused as far as the guard allows, and squeezed to its floor."""
    WHOLE = 2
    """All that it wants, or nothing while that does not fit."""
    PART = 3
    """An equal part, although it may thrash."""
    LESS = 4
    """Half of an equal part."""
    MORE = 5
    """Twice an equal part."""


WEIGHTS: Final = (1.0, 1.0, 1.0, 1.0, 0.5, 2.0)
"""The weight of each of :class:`SlotShare` in the division."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How much memory is kept for the application, compared with its demand and the margin."""

    name: str
    lent_share: float | None = 0.0
    """The share of its idle memory that is lent; ``None`` where ``partition`` finds it out."""
    held_share: float | None = None
    """The share of its demand that is lent, anonymous pages included, whatever comes of it;
    ``None`` for a loan of idle memory."""
    reserve_share: float = 0.0
    """The share of the zone that is kept in addition."""


KEPT: Final = (
    Kept(name="auto", lent_share=None),
    Kept(name="lend 75 %", lent_share=0.75),
    Kept(name="lend 50 %", lent_share=0.5),
    Kept(name="lend 25 %", lent_share=0.25),
    Kept(name="demand"),
    Kept(name="reserve 5 %", reserve_share=0.05),
    Kept(name="reserve 15 %", reserve_share=0.15),
)
"""The choices for how much is kept, in action order."""

SHARING_TUNINGS: Final[tuple[Tuning | None, ...]] = (None, KEEP_ANON, FLUSH, KEEP_CACHE)
"""The choices for the tuning while memory is divided; ``None`` where ``partition`` decides."""

SET_POINT_SIZES: Final[tuple[int, ...]] = (len(SlotShare),) * SLOTS + (
    len(KEPT),
    len(SHARING_TUNINGS),
)
"""MultiDiscrete sizes: the share of each slot, then how much is kept, then the tuning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPoints:
    """The set-points of one node."""

    shares: tuple[SlotShare, ...] = (SlotShare.AUTO,) * SLOTS
    kept: Kept = KEPT[0]
    tuning: Tuning | None = None
    """``None`` where ``partition`` decides."""

    def share(self, slot: int) -> SlotShare:
        """The share of slot ``slot``; ``AUTO`` for slots that are not named."""
        return self.shares[slot] if slot < len(self.shares) else SlotShare.AUTO


AUTO: Final = SetPoints()
"""What ``partition`` does by itself."""


def decode_set_points(action: Sequence[int]) -> SetPoints:
    """Turn a MultiDiscrete action into set-points.

    Args:
        action: ``len(SET_POINT_SIZES)`` integers.

    Raises:
        ActionError: If the length is wrong or an entry is outside the table.
    """
    check_action(action, SET_POINT_SIZES)
    return SetPoints(
        shares=tuple(SlotShare(int(value)) for value in action[:SLOTS]),
        kept=KEPT[int(action[SLOTS])],
        tuning=SHARING_TUNINGS[int(action[SLOTS + 1])],
    )
