"""Set-points say what ``partition`` does not decide by itself."""

from __future__ import annotations

import pytest

from stallward.agent.desired import PROFILES, SLOTS
from stallward.agent.errors import ActionError
from stallward.agent.set_points import (
    AUTO,
    KEPT,
    SET_POINT_SIZES,
    SHARING_TUNINGS,
    SetPoints,
    SlotShare,
    decode_set_points,
)

AUTO_ACTION = (0,) * len(SET_POINT_SIZES)


def test_the_first_choices_leave_everything_to_partition() -> None:
    assert decode_set_points(AUTO_ACTION) == AUTO
    assert SetPoints() == AUTO
    assert AUTO.kept.lent_share is None
    assert AUTO.tuning is None


def test_every_entry_has_its_own_meaning() -> None:
    action = list(AUTO_ACTION)
    action[1], action[SLOTS], action[SLOTS + 1] = SlotShare.WAIT, 2, 1
    assert decode_set_points(action) == SetPoints(
        shares=(SlotShare.AUTO, SlotShare.WAIT, SlotShare.AUTO, SlotShare.AUTO),
        kept=KEPT[2],
        tuning=SHARING_TUNINGS[1],
    )


def test_a_slot_that_is_not_named_is_left_to_partition() -> None:
    assert SetPoints(shares=(SlotShare.WAIT,)).share(3) is SlotShare.AUTO


def test_tunings_are_profiles_that_the_twin_and_recordings_know() -> None:
    assert set(SHARING_TUNINGS) - {None} <= set(PROFILES)


@pytest.mark.parametrize("action", [(0,) * 5, (6, 0, 0, 0, 0, 0), (0, 0, 0, 0, 7, 0), (0,) * 9])
def test_an_action_outside_of_the_table_is_refused(action: tuple[int, ...]) -> None:
    with pytest.raises(ActionError):
        decode_set_points(action)
