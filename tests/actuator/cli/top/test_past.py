"""What is kept of the seconds that are over."""

from __future__ import annotations

from top_ticks import tick

from stallward.actuator.cli.top.history import History
from stallward.actuator.cli.top.past import KEPT_S, Past


def test_one_moves_between_the_oldest_view_and_the_newest() -> None:
    past: Past[int] = Past()
    assert past.moved(None, -1) is None, "there is none yet"
    for second in range(KEPT_S + 100):
        past.add(second)
    assert len(past) == KEPT_S
    back = past.moved(None, -1)
    assert back is not None
    assert past.view(back) == KEPT_S + 99
    assert past.moved(back, 1) is None
    assert past.moved(None, 5) is None
    oldest = past.moved(back, -KEPT_S)
    assert oldest is not None
    assert past.view(oldest) == 100
    assert past.moved(oldest, -1) == oldest
    past.add(KEPT_S + 100)
    assert past.view(oldest) == 101, "it is not kept any more"


def test_the_last_tick_of_each_second_is_kept_also_where_the_node_starts_anew() -> None:
    history = History(60.0)
    for number in range(10):
        history.add(tick(number))
    assert [history.past.view(number).sequence for number in range(4)] == [1, 3, 5, 7]
    history.add(tick(0))
    history.add(tick(2))
    assert history.past.view(0).sequence == 1
    assert history.past.view(4).sequence == 0
