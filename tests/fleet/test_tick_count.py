"""Every tick that does not arrive is counted once, where it was lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stallward.fleet import TickCount


@given(
    st.lists(st.sampled_from(["arrives", "dropped", "lost", "away"]), max_size=60),
    st.booleans(),
)
def test_all_ticks_between_the_first_and_the_last_are_accounted_for(
    fates: list[str], ends_away: bool
) -> None:
    """Whatever happens to the ticks of a node, the counts add up to all of them."""
    count, skipped, away = TickCount(), 0, False
    count.open()
    count.take(0, 0)
    numbers = dict.fromkeys(("arrives", "dropped", "lost", "away"), 0)
    pending = dict(numbers)
    for sequence, fate in enumerate(fates, start=1):
        if fate == "arrives":
            if away:
                count.open()
                skipped, away = 0, False
            count.take(sequence, skipped)
            numbers["arrives"] += 1
            for name, number in pending.items():
                numbers[name] += number
            pending = dict.fromkeys(pending, 0)
            continue
        if fate == "away" and not away:
            count.close("gone")
            away = True
        if fate == "dropped" and not away:
            skipped += 1
        pending["away" if away else fate] += 1
    last = max((k for k, fate in enumerate(fates, start=1) if fate == "arrives"), default=0)
    assert count.received + count.lost + count.unwatched + count.unexplained == last + 1
    assert count.received == numbers["arrives"] + 1
    assert count.restarts == 0


def test_where_ticks_were_lost_is_told_apart() -> None:
    count = TickCount()
    count.open()
    count.take(10, 0)
    count.take(14, 3)  # 11 to 13 were dropped for this watcher
    count.take(16, 3)  # 15 had no sample
    assert (count.lost, count.unexplained) == (3, 1)
    count.close("The daemon is gone.")
    assert count.problem
    count.open()
    count.take(20, 0)  # 17 to 19 were made meanwhile
    assert (count.unwatched, count.problem) == (3, "")
    count.close("")
    count.open()
    count.take(2, 0)  # another loop, which counts from 0
    assert (count.restarts, count.unwatched, count.received) == (1, 3, 5)


def test_of_every_fifth_tick_only_the_wanted_ones_are_missed() -> None:
    count = TickCount(every=5)
    count.open()
    for sequence in (0, 5, 20):
        count.take(sequence, 0)
    assert (count.received, count.unexplained) == (3, 2)


def test_ticks_that_nobody_wanted_are_not_lost() -> None:
    count = TickCount(every=10)
    count.open()
    count.take(10, 0)
    count.take(20, 5)  # some of 11 to 19 were dropped
    count.take(50, 25)  # 30 and 40 were, with others around them
    assert (count.received, count.lost, count.unexplained) == (3, 2, 0)
