"""A lease has one holder at a time and lapses by itself."""

from __future__ import annotations

import pytest

from stallward.actuator.engine.lease import Leases
from stallward.actuator.errors import GuardError
from stallward.agent.desired import DesiredState, SlotDesire

PAUSE = DesiredState(slots=(SlotDesire(paused=True),))


def test_a_lease_lapses_on_time() -> None:
    leases = Leases()
    leases.take("a", PAUSE, 2.0, now_s=10.0)
    held = leases.current(11.9)
    assert held is not None
    assert held.desired == PAUSE
    assert leases.remaining_s(11.5) == pytest.approx(0.5)
    assert leases.current(12.0) is None
    assert leases.remaining_s(12.0) == 0.0


def test_the_holder_may_renew_and_change_it() -> None:
    leases = Leases()
    leases.take("a", PAUSE, 1.0, now_s=10.0)
    leases.take("a", DesiredState(), 1.0, now_s=10.9)
    held = leases.current(11.5)
    assert held is not None
    assert held.desired == DesiredState()


def test_another_client_may_neither_take_nor_release_it() -> None:
    leases = Leases()
    leases.take("a", PAUSE, 1.0, now_s=10.0)
    with pytest.raises(GuardError, match=r"'a' holds the lease for another 0\.5 s"):
        leases.take("b", PAUSE, 1.0, now_s=10.5)
    with pytest.raises(GuardError, match="'a' holds"):
        leases.release("b", now_s=10.5)
    leases.take("b", PAUSE, 1.0, now_s=11.0)


def test_releasing_twice_is_harmless() -> None:
    leases = Leases()
    leases.take("a", PAUSE, 1.0, now_s=10.0)
    leases.release("a", now_s=10.1)
    leases.release("a", now_s=10.2)
    assert leases.current(10.2) is None
