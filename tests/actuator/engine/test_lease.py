"""One holder at a time, and a lease lapses by itself."""

from __future__ import annotations

import pytest

from stallward.actuator.engine.lease import LeaseDesk
from stallward.actuator.errors import GuardError
from stallward.agent.desired import DesiredState, SlotDesire

PAUSE = DesiredState(slots=(SlotDesire(paused=True),))


def test_a_lease_lapses_on_time() -> None:
    desk = LeaseDesk()
    desk.take("a", PAUSE, 2.0, now_s=10.0)
    held = desk.current(11.9)
    assert held is not None
    assert held.desired == PAUSE
    assert desk.remaining_s(11.5) == pytest.approx(0.5)
    assert desk.current(12.0) is None
    assert desk.remaining_s(12.0) == 0.0


def test_the_holder_may_renew_and_change_it() -> None:
    desk = LeaseDesk()
    desk.take("a", PAUSE, 1.0, now_s=10.0)
    desk.take("a", DesiredState(), 1.0, now_s=10.9)
    held = desk.current(11.5)
    assert held is not None
    assert held.desired == DesiredState()


def test_nobody_else_may_take_or_end_it() -> None:
    desk = LeaseDesk()
    desk.take("a", PAUSE, 1.0, now_s=10.0)
    with pytest.raises(GuardError, match=r"'a' holds the lease for another 0\.5 s"):
        desk.take("b", PAUSE, 1.0, now_s=10.5)
    with pytest.raises(GuardError, match="'a' holds"):
        desk.give_back("b", now_s=10.5)
    desk.take("b", PAUSE, 1.0, now_s=11.0)


def test_giving_back_twice_is_harmless() -> None:
    desk = LeaseDesk()
    desk.take("a", PAUSE, 1.0, now_s=10.0)
    desk.give_back("a", now_s=10.1)
    desk.give_back("a", now_s=10.2)
    assert desk.current(10.2) is None
