"""``heracles`` follows the algorithms of the paper."""

from __future__ import annotations

import pytest
from peer_samples import PeerNode

from stallward.papers.peers.heracles import HeraclesController
from stallward.papers.peers.shared_units import Resource


class Node(PeerNode):
    """A node under ``heracles``, with a target of 100 ms."""

    def __init__(self, p95_ms: float, spec: str = "heracles") -> None:
        super().__init__(spec)
        self.p95_ms = p95_ms
        self.app_cores = 0.4

    @property
    def heracles(self) -> HeraclesController:
        assert isinstance(self.controller, HeraclesController)
        return self.controller

    @property
    def units(self) -> dict[Resource, int]:
        return self.heracles.background_units


def test_it_begins_with_a_core_and_a_tenth_of_the_memory_at_the_first_poll() -> None:
    node = Node(92.0)
    decision = node.tick()
    assert node.heracles.enabled
    assert node.units == {"cpu": 1, "memory": 2}
    assert not any(slot.paused for slot in decision.desired.slots)


def test_without_slack_the_background_is_disabled_for_five_minutes() -> None:
    node = Node(50.0)
    node.run(40.0)
    assert node.units["cpu"] > 1
    node.p95_ms = 150.0
    node.run(31.0)
    assert not node.heracles.enabled
    node.p95_ms = 50.0
    decisions = node.run(280.0)
    assert all(slot.paused for d in decisions for slot in d.desired.slots)
    node.run(35.0)
    assert node.heracles.enabled


def test_it_is_disabled_above_a_load_of_85_percent_and_enabled_below_80() -> None:
    node = Node(50.0)
    node.run(16.0)
    node.app_cores = 0.86 * 2
    node.run(31.0)
    assert not node.heracles.enabled
    node.app_cores = 0.82 * 2
    node.run(31.0)
    assert not node.heracles.enabled
    node.app_cores = 0.78 * 2
    node.run(31.0)
    assert node.heracles.enabled


def test_below_a_tenth_of_slack_nothing_grows_and_below_5_percent_two_cores_are_left() -> None:
    node = Node(80.0)
    # Growing memory does not lower the traffic, so cores follow.
    node.run(60.0)
    grown = node.units
    assert grown["cpu"] > 2
    node.p95_ms = 92.0
    node.run(31.0)
    stays = node.units
    node.run(30.0)
    assert node.units == stays
    node.p95_ms = 97.0
    node.run(31.0)
    assert node.units["cpu"] == 2


def test_memory_that_does_not_lower_the_traffic_is_taken_back_and_cores_are_next() -> None:
    node = Node(50.0)
    node.run(2.0)
    assert node.units == {"cpu": 1, "memory": 3}
    node.run(2.0)
    assert node.units == {"cpu": 2, "memory": 2}
    node.run(10.0)
    assert node.units == {"cpu": 7, "memory": 2}


def test_too_much_traffic_takes_the_cores_that_cause_it() -> None:
    node = Node(50.0)
    node.run(16.0)
    before = node.units["cpu"]
    node.io_share = 1.0
    node.run(4.1)
    # A tenth above the limit, and each core causes an equal part of all of it.
    assert before - node.units["cpu"] in range(1, before)
    assert node.units["cpu"] >= 1


def test_a_group_that_is_made_anew_is_no_load_and_no_lost_work() -> None:
    node = Node(50.0)
    node.app_cores = 0.82 * 2
    node.slot_cores = [0.5, 0.5]
    node.run(16.0)
    for name in ("app", "cpu0", "cpu1"):
        assert name in node._totals
        node._totals[name] = 0.0
    rates = []
    for _ in range(25):
        node.tick()
        rates.append(node.heracles._rate)
    assert rates == pytest.approx([1e6] * 25, rel=0.01), "no work was taken back"
    sample = node.sample()
    assert node.heracles._load(sample) == 0.0
