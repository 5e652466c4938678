"""How many background groups fit into the memory that is left for them, by what is lent. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stallward.agent.control_law.water_filling import water_fill
from stallward.agent.sharing.division import Want

FORGET_S: Final = 60.0
"""The time in which the most that a group wanted falls to nothing: groups come and go."""
FITS_RATIO: Final = 0.97
"""A group that has this share of what it wants has all of it."""


class Room:
    """Remembers what groups wanted lately, and the memory that was available."""

    def __init__(self) -> None:
        self._base_bytes = 0.0
        self._demand_bytes = 0.0
        self._wants: Sequence[Want] = ()
        self._most_bytes: list[float] = []

    def update(
        self, base_bytes: float, demand_bytes: float, wants: Sequence[Want], elapsed_s: float
    ) -> None:
        """Take one more look.

        Args:
            base_bytes: The memory that is left for the background without a loan.
            demand_bytes: The application's demand.
            wants: What each group wants.
            elapsed_s: The time since the look before.
        """
        self._base_bytes, self._demand_bytes, self._wants = base_bytes, demand_bytes, wants
        self._most_bytes += [0.0] * (len(wants) - len(self._most_bytes))
        kept = max(1.0 - elapsed_s / FORGET_S, 0.0)
        for index, want in enumerate(wants):
            self._most_bytes[index] = max(want.bytes, kept * self._most_bytes[index])

    def fitting(self, lent_share: float) -> int:
        """How many groups would have all that they wanted lately.

        Args:
            lent_share: The share of the application's demand that is lent.
        """
        room = max(self._base_bytes + lent_share * self._demand_bytes, 0.0)
        parts, _ = water_fill(
            room,
            self._most_bytes,
            [want.floor_bytes for want in self._wants],
            [want.weight for want in self._wants],
        )
        return sum(
            part >= FITS_RATIO * most for part, most in zip(parts, self._most_bytes, strict=True)
        )
