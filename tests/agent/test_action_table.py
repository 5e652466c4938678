"""The entries of an action have names, and so have their choices."""

from __future__ import annotations

import pytest

from stallward.agent.action_table import ACTION_TABLES, ActionTable
from stallward.agent.desired import SLOTS


@pytest.mark.parametrize("table", ACTION_TABLES.values(), ids=lambda table: table.name)
def test_every_choice_of_every_entry_has_a_name(table: ActionTable) -> None:
    named = table.entries([f"group-{index}" for index in range(SLOTS)])
    assert [len(one[1]) for one in named if one is not None] == list(table.sizes)
    assert len({one[0] for one in named if one is not None}) == len(table.sizes)


@pytest.mark.parametrize("table", ACTION_TABLES.values(), ids=lambda table: table.name)
def test_slots_that_are_not_there_have_none(table: ActionTable) -> None:
    named = table.entries(["only"])
    assert len(named) == len(table.sizes)
    absent = (SLOTS - 1) * len(table.slot_sizes)
    assert named.count(None) == absent
    assert all(one is not None for one in named[: len(table.slot_sizes)])
