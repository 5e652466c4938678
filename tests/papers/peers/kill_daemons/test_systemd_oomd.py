"""``systemd-oomd`` does what oomd.conf and its unit tests say."""

from __future__ import annotations

from itertools import pairwise

from peer_samples import ZONE_BYTES, PeerNode, kills_slot

from stallward.agent.controller import Decision
from stallward.agent.desired import MIB


def stalling(spec: str = "systemd-oomd") -> PeerNode:
    """A node on which everybody waits for memory, and reclaim works."""
    node = PeerNode(spec)
    node.full_share, node.scanned_per_s = 1.0, 1000
    return node


def first_kill_s(decisions: list[Decision]) -> float | None:
    """How long after the beginning a group is first killed."""
    return next((i / 10 for i, d in enumerate(decisions) if kills_slot(d) is not None), None)


def test_a_full_stall_kills_once_the_average_was_above_60_percent_for_30_s() -> None:
    first_s = first_kill_s(stalling().run(60.0))
    assert first_s is not None
    # avg10 passes 60 % after 10 s: 63.2 %.
    assert 40.0 <= first_s <= 41.5
    below = stalling()
    below.full_share = 0.6
    assert first_kill_s(below.run(60.0)) is None


def test_it_kills_only_where_reclaim_works() -> None:
    node = stalling()
    node.scanned_per_s = 0
    assert first_kill_s(node.run(60.0)) is None


def test_it_acts_every_15_s_at_most() -> None:
    decisions = stalling().run(80.0)
    begins = [
        i
        for i, (a, b) in enumerate(pairwise(decisions))
        if kills_slot(a) is None and kills_slot(b) is not None
    ]
    assert len(begins) == 3
    assert all(140 <= b - a <= 160 for a, b in pairwise(begins))


def test_the_group_that_reclaim_scans_most_is_killed_and_of_equal_ones_the_largest() -> None:
    scanned = stalling()
    scanned.slot_scanned_per_s, scanned.slot_bytes = [0, 10], [300 * MIB, 100 * MIB]
    assert {kills_slot(d) for d in scanned.run(45.0)} == {None, 1}
    equal = stalling()
    equal.slot_scanned_per_s, equal.slot_bytes = [10, 10], [300 * MIB, 100 * MIB]
    assert {kills_slot(d) for d in equal.run(45.0)} == {None, 0}


def full_swap(memory_free: float, swap_free: float, slot_swap: float) -> PeerNode:
    """A node with these per cents free, whose second group has so many per cent of swap."""
    node = PeerNode("systemd-oomd")
    node.available_bytes = round(memory_free / 100 * ZONE_BYTES)
    node.swap_total_bytes = 1000 * MIB
    node.swap_free_bytes = round(10 * swap_free * MIB)
    node.slot_swap_bytes = [MIB, round(10 * slot_swap * MIB)]
    return node


def test_full_memory_and_full_swap_kill_who_has_most_swap() -> None:
    assert kills_slot(full_swap(9, 9, 6).tick()) == 1
    assert kills_slot(full_swap(11, 9, 6).tick()) is None
    assert kills_slot(full_swap(9, 11, 6).tick()) is None
    assert kills_slot(full_swap(9, 9, 5).tick()) is None, "no more than 5 % of all swap"


def test_the_machine_of_its_unit_test_has_almost_no_swap_left_and_enough_memory() -> None:
    # test-oomd-util.c: MemTotal 32495256 kB, MemAvailable 21777088, SwapTotal 8388604, SwapFree
    # 7604. Swap is 99.9 % full, memory 33 %: nothing is done.
    node = full_swap(100 * 21777088 / 32495256, 100 * 7604 / 8388604, 50)
    assert kills_slot(node.tick()) is None


def test_with_its_kill_turned_off_it_only_says_whom() -> None:
    node = stalling("systemd-oomd:kill=0")
    decisions = node.run(50.0)
    assert all(kills_slot(d) is None for d in decisions)
    assert any("would kill hog0" in d.reason for d in decisions)
