"""``parties`` goes through the states of its source."""

from __future__ import annotations

from peer_samples import PeerNode

from stallward.papers.peers.parties import PartiesController
from stallward.papers.peers.shared_units import Resource


class Node(PeerNode):
    """A node under ``parties``, with a target of 100 ms."""

    def __init__(self, p95_ms: float) -> None:
        super().__init__("parties")
        self.p95_ms = p95_ms

    @property
    def units(self) -> dict[Resource, int]:
        assert isinstance(self.controller, PartiesController)
        return self.controller.background_units

    def moved(self, seconds: float) -> list[tuple[Resource, int]]:
        """Which units the background gained or lost in so much time, in their order."""
        moves: list[tuple[Resource, int]] = []
        for _ in range(round(10 * seconds)):
            before = self.units
            self.tick()
            moves += [(k, n - before[k]) for k, n in self.units.items() if n != before[k]]
        return moves


def test_everybody_begins_with_equal_parts() -> None:
    node = Node(90.0)
    # 16 units, an application and two groups.
    assert node.units == {"cpu": 11, "memory": 11}
    assert node.moved(5.0) == [], "a slack from 5 to 20 % is left alone"


def test_without_slack_the_application_gets_a_unit_every_500_ms() -> None:
    moves = Node(120.0).moved(2.05)
    assert [change for _, change in moves] == [-1] * 4


def test_a_resource_that_does_not_help_is_followed_by_the_other_and_the_unit_stays() -> None:
    moves = Node(120.0).moved(2.05)
    resources = [resource for resource, _ in moves]
    assert resources[0] != resources[1]
    assert resources[:2] == resources[2:4]


def test_a_resource_that_helps_is_kept() -> None:
    node = Node(200.0)
    resources = []
    for _ in range(40):
        resources += [resource for resource, _ in node.moved(0.1)]
        node.p95_ms = (node.p95_ms or 0.0) - 1.0
    assert len(set(resources)) == 1
    assert len(resources) >= 7


def test_the_background_keeps_a_unit_for_each_group() -> None:
    node = Node(500.0)
    node.run(60.0)
    assert node.units == {"cpu": 2, "memory": 2}


def test_with_much_slack_the_background_gets_units_and_the_application_keeps_one() -> None:
    node = Node(20.0)
    assert [change for _, change in node.moved(2.05)] == [1] * 4
    node.run(60.0)
    # 100 MiB of the application's pages are anonymous: 3 of 16 units of 600 MiB.
    assert node.units == {"cpu": 15, "memory": 13}


def test_a_unit_that_is_missed_is_taken_back_and_nothing_is_given_for_30_s() -> None:
    node = Node(20.0)
    given = node.moved(0.1)
    node.p95_ms = 97.0
    taken = node.moved(0.5)
    assert given[0][1] == 1
    assert taken == [(given[0][0], -1)]
    node.p95_ms = 20.0
    assert node.moved(29.5) == []
    again = node.moved(2.0)
    assert again[0] == (next(r for r in node.units if r != given[0][0]), 1)


def test_after_a_unit_was_taken_back_it_looks_on_before_it_acts() -> None:
    node = Node(20.0)
    node.moved(0.1)
    node.p95_ms = 130.0
    assert len(node.moved(0.5)) == 1
    assert node.moved(0.9) == [], "five readings, and five more because they were bad"
    assert [change for _, change in node.moved(0.2)] == [-1]
