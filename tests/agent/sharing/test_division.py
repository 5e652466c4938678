"""The division of the room: shares, the whole, and turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.agent.sharing.division import Division, Turns, Want

FLOOR = 16.0


def want(size: float, *, whole: bool = False, floor: float = FLOOR) -> Want:
    return Want(bytes=size, floor_bytes=floor, whole=whole)


def divide(room: float, *wants: Want, coming: float = 0.0, in_danger: bool = False) -> Division:
    return Turns(15.0).divide(room, wants, 0.0, coming_bytes=coming, in_danger=in_danger)


def test_groups_that_can_use_a_part_share() -> None:
    division = divide(300.0, want(100.0), want(400.0))
    assert division.shares_bytes == (100.0, 200.0)
    assert division.waiting == ()


def test_what_nobody_wants_is_given_so_that_groups_can_grow() -> None:
    assert divide(300.0, want(100.0), want(150.0)).shares_bytes == (125.0, 175.0)


def test_of_two_that_need_the_whole_one_has_it_and_the_other_waits() -> None:
    division = divide(380.0, want(270.0, whole=True), want(270.0, whole=True))
    assert division.running == (0,)
    assert division.waiting == (1,)
    assert division.shares_bytes == (364.0, FLOOR)


def test_both_have_the_whole_where_both_fit() -> None:
    division = divide(600.0, want(270.0, whole=True), want(270.0, whole=True))
    assert division.running == (0, 1)
    assert division.shares_bytes == (300.0, 300.0)


def after(seconds: float, room: float, *wants: Want, in_danger: bool = False) -> Division:
    """The division at the end of a time in which nothing changed."""
    turns = Turns(15.0)
    for second in range(int(seconds)):
        turns.divide(room, wants, float(second), in_danger=in_danger)
    return turns.divide(room, wants, seconds, in_danger=in_danger)


def test_one_that_needs_more_than_there_is_has_what_the_others_leave() -> None:
    wants = want(270.0, whole=True), want(120.0, whole=True)
    assert after(10.0, 200.0, *wants).waiting == (0,), "it may fit again soon"
    division = after(20.0, 200.0, *wants)
    assert division.running == (1,)
    assert division.waiting == ()
    assert division.shares_bytes == (80.0, 120.0)


def test_those_that_need_more_than_there_is_share() -> None:
    wants = want(235.0, whole=True), want(110.0, whole=True)
    division = after(20.0, 117.0, *wants)
    assert division.running == division.waiting == ()
    assert division.shares_bytes == (58.5, 58.5)
    assert after(20.0, 117.0, *wants, in_danger=True).waiting == (0, 1)


def test_one_that_fits_again_has_the_whole_again() -> None:
    turns, hogs = Turns(15.0), [want(110.0, whole=True)] * 2
    for second in range(20):
        turns.divide(117.0, hogs, float(second))
    assert turns.divide(117.0, hogs, 20.0).waiting == ()
    assert len(turns.divide(140.0, hogs, 21.0).waiting) == 1
    assert len(turns.divide(117.0, hogs, 22.0).waiting) == 1, "a short lack changes nothing"


def test_one_that_will_fit_when_the_room_has_grown_waits_for_it() -> None:
    hog = want(110.0, whole=True)
    assert divide(117.0, hog, hog, coming=20.0).waiting == (0, 1)
    assert divide(117.0, hog, hog, coming=0.0).waiting == (1,)


def test_groups_that_share_keep_their_floor_beside_one_that_has_the_whole() -> None:
    division = divide(300.0, want(270.0, whole=True), want(400.0))
    assert division.running == (0,)
    assert division.shares_bytes == (270.0, 30.0)


def test_one_that_needs_more_than_there_is_waits_while_the_application_is_in_danger() -> None:
    large = want(500.0, whole=True)
    assert divide(300.0, large).shares_bytes == (300.0,)
    refused = divide(300.0, large, in_danger=True)
    assert refused.waiting == (0,)
    assert refused.shares_bytes == (FLOOR,)


def turns_of(turns: Turns, seconds: int, *wants: Want, room: float = 380.0) -> list[int]:
    return [turns.divide(room, wants, float(second)).running[0] for second in range(seconds)]


def test_turns_go_round() -> None:
    hog = want(270.0, whole=True)
    running = turns_of(Turns(15.0), 96, hog, hog, hog)
    lengths = [running.count(index) for index in range(3)]
    assert lengths == [32, 32, 32]
    assert running[:1] + running[16:17] + running[32:33] + running[48:49] == [0, 1, 2, 0]


def test_a_turn_does_not_end_while_nobody_waits() -> None:
    assert turns_of(Turns(5.0), 30, want(270.0, whole=True)) == [0] * 30


def test_a_turn_does_not_end_by_a_small_change_of_the_room() -> None:
    turns, hog = Turns(15.0), want(270.0, whole=True)
    first = turns.divide(287.0, [hog, hog], 0.0, in_danger=True)
    second = turns.divide(280.0, [hog, hog], 1.0, in_danger=True)
    assert first.running == second.running == (0,)
    assert turns.divide(250.0, [hog, hog], 2.0, in_danger=True).running == ()


def test_a_turn_ends_with_its_group() -> None:
    turns, hog = Turns(15.0), want(270.0, whole=True)
    turns.divide(380.0, [hog, hog], 0.0)
    division = turns.divide(380.0, [want(10.0), hog], 1.0)
    assert division.running == (1,)
    assert division.waiting == ()


def gains(room: float, more: float, *wants: Want) -> bool:
    turns = Turns(15.0)
    turns.divide(room, wants, 0.0)
    return turns.gains(room, more, wants)


def test_more_memory_is_a_gain_if_one_more_group_has_the_whole() -> None:
    hog = want(270.0, whole=True)
    assert gains(380.0, 200.0, hog, hog)
    assert not gains(380.0, 100.0, hog, hog)


def test_more_memory_is_a_gain_if_a_group_has_to_do_with_a_part() -> None:
    assert gains(300.0, 1.0, want(200.0), want(200.0))
    assert gains(300.0, 1.0, want(250.0, whole=True), want(200.0))
    assert gains(200.0, 1.0, want(270.0, whole=True))


def test_more_memory_is_no_gain_if_everybody_has_what_it_wants() -> None:
    assert not gains(500.0, 100.0, want(200.0), want(200.0))
    assert not gains(600.0, 100.0, want(270.0, whole=True), want(270.0, whole=True))


@given(
    st.floats(0.0, 1e3),
    st.lists(st.tuples(st.floats(0.0, 500.0), st.booleans()), min_size=1, max_size=5),
    st.booleans(),
)
def test_no_more_than_the_room_is_given(
    room: float, sizes: list[tuple[float, bool]], in_danger: bool
) -> None:
    turns = Turns(3.0)
    wants = [want(size, whole=whole) for size, whole in sizes]
    floors = FLOOR * len(wants)
    for second in range(8):
        division = turns.divide(room, wants, float(second), in_danger=in_danger)
        assert sum(division.shares_bytes) <= max(room, 0.0) + floors + 1e-6
        assert all(share >= FLOOR - 1e-9 for share in division.shares_bytes)
        assert not set(division.running) & set(division.waiting)
        for index in division.waiting:
            assert division.shares_bytes[index] == pytest.approx(FLOOR)


def test_a_group_that_no_limit_holds_waits_in_danger_and_only_then() -> None:
    turns = Turns(60.0)
    wants = [Want(bytes=300.0, floor_bytes=10.0, bound=False), Want(bytes=300.0, floor_bytes=10.0)]
    assert turns.divide(200.0, wants, 0.0).waiting == ()
    assert turns.divide(200.0, wants, 1.0, in_danger=True).waiting == (0,)
    assert turns.divide(200.0, wants, 2.0).waiting == ()


def test_it_waits_in_danger_although_it_has_its_turn() -> None:
    turns = Turns(60.0)
    wants = [Want(bytes=100.0, floor_bytes=10.0, whole=True, bound=False)]
    assert turns.divide(200.0, wants, 0.0).running == (0,)
    assert turns.divide(200.0, wants, 1.0, in_danger=True).waiting == (0,)
