"""``senpai`` computes what its source computes."""

from __future__ import annotations

import pytest
from peer_samples import PeerNode

from stallward.agent.desired import MIB
from stallward.papers.peers.senpai import SenpaiNumbers, backoff, probe

NUMBERS = SenpaiNumbers()


def test_the_formulas_at_the_numbers_that_its_comments_name() -> None:
    assert backoff(20_000, NUMBERS) == pytest.approx(0.01)
    assert backoff(200_000, NUMBERS) == pytest.approx(1.0)
    assert backoff(2_000_000, NUMBERS) == 1.0, "at most by all of itself"
    assert probe(1_000, NUMBERS) == pytest.approx(0.01)
    assert probe(5_000, NUMBERS) == pytest.approx(0.0004)
    assert probe(0, NUMBERS) == 0.01, "at most by 1 %"


def test_the_probe_of_the_log_in_its_readme() -> None:
    # README: "integral: 254" under a wanted stall of 1000 us is tightened by 0.00155.
    assert probe(254, SenpaiNumbers(pressure_us=1000)) == pytest.approx(0.00155, abs=5e-6)


def limits_mib(node: PeerNode, seconds: int) -> list[float]:
    """The limit of the first group, second by second; each is put in force."""
    limits = []
    for _ in range(seconds):
        decision = node.run(1.0)[-1]
        node.slot_limits_bytes = [slot.limit_bytes for slot in decision.desired.slots]
        limits.append((node.slot_limits_bytes[0] or 0) / MIB)
    return limits


def test_a_limit_begins_at_what_is_held_and_is_tightened_after_six_calm_seconds() -> None:
    node = PeerNode("senpai")
    limits = limits_mib(node, 14)
    assert limits[:7] == [200.0] * 7
    assert limits[7] == pytest.approx(198.0, abs=0.01)
    assert limits[7:13] == [limits[7]] * 6
    assert limits[13] == pytest.approx(198.0 * 0.99, abs=0.02)


def test_a_stall_loosens_it_at_once() -> None:
    node = PeerNode("senpai")
    limits_mib(node, 3)
    node.slot_some_share = 0.02
    # 2 ms until the first second, and 22 ms until the next: 2.2 times the wanted stall.
    limits = limits_mib(node, 2)
    assert limits[0] == 200.0
    assert limits[1] == pytest.approx(200.0 * (1.0 + (2.2 / 20) ** 2), rel=1e-4)


def test_it_is_never_below_100_mib_and_begins_anew_where_something_else_changed_it() -> None:
    node = PeerNode("senpai")
    node.slot_bytes = [50 * MIB, 50 * MIB]
    assert limits_mib(node, 9) == [100.0] * 9
    changed = PeerNode("senpai")
    limits_mib(changed, 5)
    changed.slot_limits_bytes = [None, None]
    changed.slot_bytes = [300 * MIB, 300 * MIB]
    for _ in range(3):
        changed.run(1.0)
    decision = changed.run(1.0)[-1]
    assert decision.desired.slots[0].limit_bytes == 300 * MIB
