"""``sideloader`` leaves headroom, freezes on overload and kills when critical."""

from __future__ import annotations

import pytest
from peer_samples import PeerNode

from stallward.agent.controller import Decision
from stallward.agent.desired import MIB


def cores(decision: Decision) -> float | None:
    """The CPUs that the background has together."""
    limits = [slot.cpu_max_cores for slot in decision.desired.slots]
    return None if limits[0] is None else sum(limit or 0.0 for limit in limits)


def frozen(decision: Decision) -> bool:
    return all(slot.paused for slot in decision.desired.slots)


def killed(decision: Decision) -> bool:
    ends = {slot.terminated for slot in decision.desired.slots}
    assert len(ends) == 1
    assert decision.desired.kill_at_once == ends.pop()
    return decision.desired.kill_at_once


def test_the_background_has_what_is_idle_less_the_headroom() -> None:
    # The example of its document: 60 % are the main workload's, 15 % headroom, 25 % are left.
    node = PeerNode("sideloader:headroom_percent=15", cpus=10.0)
    node.idle_share, node.slot_cores = 0.4, [0.0, 0.0]
    assert cores(node.run(12.0)[-1]) == pytest.approx(2.5, rel=0.01)
    busy = PeerNode("sideloader:headroom_percent=15", cpus=10.0)
    busy.idle_share, busy.slot_cores = 0.15, [1.25, 1.25]
    assert cores(busy.run(12.0)[-1]) == pytest.approx(2.5, rel=0.01), "what it uses counts, too"


def test_it_has_a_twentieth_at_least() -> None:
    node = PeerNode("sideloader:min_avail_percent=0", cpus=10.0)
    node.idle_share = 0.0
    assert cores(node.run(5.0)[-1]) == pytest.approx(0.5)


def test_a_processor_that_went_offline_does_not_stop_it() -> None:
    """The kernel's totals leave out its idle time from then on, and begin anew when it is back."""
    node = PeerNode("sideloader:headroom_percent=15", cpus=10.0)
    node.idle_share, node.slot_cores = 0.9, [0.0, 0.0]
    node.run(12.0)
    for name in ("cpu", "idle"):
        node._totals[name] -= 1e8
    node.idle_share = 0.4
    assert cores(node.run(12.0)[-1]) == pytest.approx(2.5, rel=0.01)


def overloaded(spec: str = "sideloader:frozen_s=1000", seconds: float = 15.0) -> PeerNode:
    """A node whose application takes every CPU for so long."""
    node = PeerNode(spec, cpus=10.0)
    node.idle_share = 1.0
    node.run(12.0)
    node.idle_share = 0.0
    node.run(seconds)
    node.idle_share = 1.0
    return node


def frozen_s(node: PeerNode, seconds: float) -> float:
    """For how long of so much time everything is frozen."""
    return sum(frozen(decision) for decision in node.run(seconds)) / 10


def test_an_overload_freezes_and_each_one_holds_for_longer() -> None:
    node = overloaded()
    first = frozen_s(node, 16.0)
    node.idle_share = 0.0
    node.run(15.0)
    node.idle_share = 1.0
    second = frozen_s(node, 40.0)
    # A hold of 10 s, and one of 10 s and what about 10 calm seconds left of the first.
    assert 10.0 <= first <= 16.0
    assert first + 3.0 <= second <= 21.0


def test_a_memory_stall_of_half_a_minute_is_an_overload() -> None:
    node = PeerNode("sideloader:frozen_s=1000", cpus=10.0)
    node.idle_share, node.slot_full_share = 1.0, 1.0
    # avg60 passes 50 % after 42 s.
    assert not any(frozen(d) for d in node.run(40.0))
    assert frozen(node.run(4.0)[-1])


def test_what_was_frozen_for_30_s_is_killed() -> None:
    node = PeerNode("sideloader", cpus=10.0)
    node.idle_share = 1.0
    node.run(12.0)
    node.idle_share = 0.0
    decisions = node.run(50.0)
    began = next(i for i, d in enumerate(decisions) if frozen(d))
    ended = next(i for i, d in enumerate(decisions) if killed(d))
    assert ended - began == pytest.approx(300, abs=10)


def test_little_swap_left_is_critical_and_kills() -> None:
    node = PeerNode("sideloader", cpus=10.0)
    node.idle_share = 1.0
    node.swap_total_bytes, node.swap_free_bytes = 1000 * MIB, 51 * MIB
    assert not any(killed(d) for d in node.run(3.0))
    node.swap_free_bytes = 50 * MIB
    decisions = node.run(2.0)
    assert any(killed(d) for d in decisions)
    assert any(d.reason == "critical: swap" for d in decisions)
    saying = PeerNode("sideloader:kill=0", cpus=10.0)
    saying.swap_total_bytes = 1000 * MIB
    decisions = saying.run(40.0)
    assert frozen(decisions[-1])
    assert not any(killed(d) for d in decisions)
