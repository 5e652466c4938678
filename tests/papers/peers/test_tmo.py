"""``tmo`` reclaims what the plugin of oomd reclaims."""

from __future__ import annotations

from dataclasses import replace

import pytest
from peer_samples import PeerNode

from stallward.agent.desired import MIB
from stallward.agent.sample import GroupSample
from stallward.papers.peers.tmo import TmoNumbers, reclaim_bytes

GROUP = GroupSample(
    name="a", memory_usage_bytes=1124 * MIB, file_bytes=524 * MIB, anon_bytes=600 * MIB
)


def test_one_percent_of_what_can_be_reclaimed_above_100_mib() -> None:
    # (1124 - 100) MiB, of which 1 % in whole pages.
    assert reclaim_bytes(GROUP, 10_000 * MIB, TmoNumbers()) == 1024 * MIB // 100 // 4096 * 4096


def test_what_has_no_swap_cannot_be_reclaimed() -> None:
    size = reclaim_bytes(GROUP, 0, TmoNumbers())
    assert size == pytest.approx(0.01 * (524 - 100) * MIB, abs=4096)
    small = replace(GROUP, memory_usage_bytes=90 * MIB, file_bytes=90 * MIB, anon_bytes=0)
    assert reclaim_bytes(small, 0, TmoNumbers()) == 0


def targets(node: PeerNode, seconds: int) -> list[int | None]:
    """What the first group is reclaimed to, second by second."""
    return [node.run(1.0)[0].desired.slots[0].reclaim_to_bytes for _ in range(seconds)]


def test_it_rests_for_six_runs_and_reclaims_at_the_seventh() -> None:
    node = PeerNode("tmo")
    node.swap_free_bytes = 1000 * MIB
    first = targets(node, 21)
    times = [second for second, target in enumerate(first) if target is not None]
    assert times == [6, 13, 20]
    assert first[6] == 199 * MIB


@pytest.mark.parametrize(("some_share", "reclaims"), [(0.0005, True), (0.002, False)])
def test_it_waits_while_the_group_stalls_for_a_thousandth(
    some_share: float, reclaims: bool
) -> None:
    node = PeerNode("tmo")
    node.swap_free_bytes, node.slot_some_share = 1000 * MIB, some_share
    targets(node, 120)
    assert any(target is not None for target in targets(node, 14)) == reclaims
