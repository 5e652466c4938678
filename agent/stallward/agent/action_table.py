"""The action tables of learned policies: what each entry of a MultiDiscrete action may be.

A policy's file names the table that it was trained for. Every table has the same entries for each
slot, then entries for the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from stallward.agent.desired import LIMIT_RATIOS, PROFILES, SLOTS
from stallward.agent.set_points import KEPT, SHARING_TUNINGS, SlotShare

ActionTableName = Literal["levels", "set-points"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTable:
    """The entries of an action; the first choice of each is to leave things as they are."""

    name: ActionTableName
    slot_sizes: tuple[int, ...]
    """How many choices there are for each entry of a slot."""
    node_sizes: tuple[int, ...]
    """The same for the entries of the node."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The MultiDiscrete sizes."""
        return self.slot_sizes * SLOTS + self.node_sizes

    def entries(self, slots: Sequence[str]) -> list[tuple[str, list[str]] | None]:
        """What each entry and its choices are called; ``None`` for a slot that is not there.

        Args:
            slots: The names of the background groups.
        """
        named = self.choices()
        if self.name == "levels":
            of_slot = {"pause": ["no", "yes"], "limit": named["limit_ratios"]}
            of_node = {"profile": named["profiles"]}
        else:
            of_slot = {"share": named["shares"]}
            of_node = {"kept": named["kept"], "tuning": named["tunings"]}
        entries: list[tuple[str, list[str]] | None] = []
        for index in range(SLOTS):
            slot = slots[index] if index < len(slots) else None
            entries += [
                None if slot is None else (f"{slot}: {name}", labels)
                for name, labels in of_slot.items()
            ]
        return [*entries, *of_node.items()]

    def choices(self) -> dict[str, list[str]]:
        """The meaning of every choice, as it is written into a policy's schema."""
        if self.name == "levels":
            return {
                "limit_ratios": [f"{ratio:g}" for ratio in LIMIT_RATIOS],
                "profiles": [profile.name for profile in PROFILES],
            }
        return {
            "shares": [share.name.lower() for share in SlotShare],
            "kept": [kept.name for kept in KEPT],
            "tunings": ["auto" if tuning is None else tuning.name for tuning in SHARING_TUNINGS],
        }


LEVELS: Final = ActionTable(
    name="levels", slot_sizes=(2, len(LIMIT_RATIOS)), node_sizes=(len(PROFILES),)
)
"""Pause and limit level of each slot, then the tuning profile: the moves of rules."""
SET_POINTS: Final = ActionTable(
    name="set-points",
    slot_sizes=(len(SlotShare),),
    node_sizes=(len(KEPT), len(SHARING_TUNINGS)),
)
"""The share of each slot, then how much is kept and the tuning, for ``partition`` to follow."""
ACTION_TABLES: Final[dict[ActionTableName, ActionTable]] = {
    table.name: table for table in (LEVELS, SET_POINTS)
}


def find_action_table(name: object) -> ActionTable | None:
    """The action table of this name; ``None`` if there is none."""
    return next((table for table in ACTION_TABLES.values() if table.name == name), None)
