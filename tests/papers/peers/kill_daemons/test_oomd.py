"""``oomd`` does what its shipped rulesets and the tests of its plugins say."""

from __future__ import annotations

import pytest
from peer_samples import PeerNode, kills_slot

from stallward.agent.desired import MIB
from stallward.papers.peers.kill_daemons.oomd import OomdNumbers, rank_by_size_or_growth


def test_what_holds_more_than_half_goes_first() -> None:
    # CorePluginsTest.cpp, KillMemoryGrowth, KillsBigCgroup: 60, 20 and 20.
    assert rank_by_size_or_growth([60, 20, 20], [60, 5, 20], OomdNumbers())[0] == 0


@pytest.mark.parametrize(
    ("percentile", "ratio", "victim"),
    [(50, 1.25, 1), (20, 1.25, 0), (67, 1.25, 2), (20, 10, 2)],
)
def test_growth_counts_for_the_largest_only(percentile: float, ratio: float, victim: int) -> None:
    # CorePluginsTest.cpp, DoesntGrowthKillBelowUsageThreshold: what three groups hold and held.
    numbers = OomdNumbers(growing_percentile=percentile, growth_ratio=ratio)
    assert rank_by_size_or_growth([40, 50, 60], [7, 30, 60], numbers)[0] == victim


def stalling(spec: str = "oomd") -> PeerNode:
    """A node on which everybody waits for memory, and reclaim works."""
    node = PeerNode(spec)
    node.full_share, node.scanned_per_s = 1.0, 1000
    node.slot_bytes = [100 * MIB, 300 * MIB]
    return node


def test_a_stall_above_60_percent_for_30_s_kills_the_largest_and_rests_for_15_s() -> None:
    kills = [kills_slot(d) for d in stalling().run(58.0)]
    first = kills.index(1)
    assert 400 <= first <= 415, "avg10 passes 60 % after 10 s"
    assert set(kills) == {None, 1}
    assert kills[first + 10 : first + 149] == [None] * 139
    assert 1 in kills[first + 149 :]


def test_a_stall_kills_nobody_where_reclaim_does_not_work() -> None:
    node = stalling()
    node.scanned_per_s = 0
    assert {kills_slot(d) for d in node.run(60.0)} == {None}


def test_less_than_a_tenth_of_swap_kills_who_has_most_of_it() -> None:
    node = PeerNode("oomd")
    node.swap_total_bytes, node.slot_swap_bytes = 1000 * MIB, [500 * MIB, 400 * MIB]
    node.swap_free_bytes = 100 * MIB
    assert {kills_slot(d) for d in node.run(3.0)} == {None}
    node.swap_free_bytes = 99 * MIB
    assert {kills_slot(d) for d in node.run(3.0)} == {None, 0}


def test_with_its_kill_turned_off_it_only_says_whom() -> None:
    decisions = stalling("oomd:kill=0").run(50.0)
    assert all(kills_slot(d) is None for d in decisions)
    assert any("would kill hog1" in d.reason for d in decisions)
