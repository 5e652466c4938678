"""The action table: how actions are decoded, and which are refused."""

from __future__ import annotations

import pytest

from stallward.agent.desired import (
    ACTION_SIZES,
    LIMIT_RATIOS,
    MIB,
    PROFILES,
    decode_action,
    limit_bytes,
    limit_level,
)
from stallward.agent.errors import ActionError
from stallward.agent.sample import SlotState

STATES = (SlotState(reference_bytes=100 * MIB), SlotState())
FLOORS = (16 * MIB, 16 * MIB)


def test_an_action_sets_pause_limit_and_profile() -> None:
    desired = decode_action((1, 3, 0, 5, 0, 0, 0, 0, 2), STATES, FLOORS)
    assert desired.slots[0].paused
    assert desired.slots[0].limit_bytes == int(100 * MIB * LIMIT_RATIOS[3])
    assert desired.slots[1].limit_bytes is None, "a group that has not started is not limited"
    assert desired.tuning is PROFILES[2]


def test_recorded_actions_keep_their_profile() -> None:
    names = [decode_action((0,) * 8 + (i,), STATES, FLOORS).tuning.name for i in range(4)]
    assert names == ["default", "flush", "keep-cache", "keep-anon"]


def test_a_limit_is_never_below_the_floor() -> None:
    assert limit_bytes(5, 100 * MIB, 16 * MIB) == 16 * MIB


@pytest.mark.parametrize("level", range(len(LIMIT_RATIOS)))
def test_a_limit_in_bytes_maps_back_to_its_level(level: int) -> None:
    for reference in (1000 * MIB + 1, 333_333_333):
        assert limit_level(limit_bytes(level, reference, 0), reference) == level


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        ((0,) * 8, "9 entries, this one 8"),
        ((2, *(0,) * 8), "Entry 0 of the action is 2, outside 0..1"),
        ((0, -1, *(0,) * 7), "Entry 1 of the action is -1, outside 0..5"),
    ],
)
def test_an_action_outside_the_table_is_refused(action: tuple[int, ...], complaint: str) -> None:
    assert len(ACTION_SIZES) == 9
    with pytest.raises(ActionError, match=complaint):
        decode_action(action, STATES, FLOORS)


def test_a_limit_stays_while_the_reference_changes_only_slightly() -> None:
    in_force = limit_bytes(2, 1000 * MIB, 0)
    assert in_force is not None
    kept = limit_bytes(2, 1010 * MIB, 0, in_force_bytes=in_force)
    assert kept == in_force
    assert limit_level(kept, 1010 * MIB) == limit_level(kept, 990 * MIB) == 2
    assert limit_bytes(2, 1030 * MIB, 0, in_force_bytes=in_force) == int(0.6 * 1030 * MIB)
    assert limit_bytes(3, 1000 * MIB, 0, in_force_bytes=in_force) == 400 * MIB
    assert limit_bytes(2, 1010 * MIB, 700 * MIB, in_force_bytes=in_force) == 700 * MIB

    states = (SlotState(reference_bytes=1010 * MIB, limit_bytes=in_force),)
    desired = decode_action((0, 2, 0, 0, 0, 0, 0, 0, 0), states, (0,))
    assert desired.slots[0].limit_bytes == in_force
