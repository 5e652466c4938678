"""``earlyoom`` does what its manual and its code say."""

from __future__ import annotations

import pytest
from peer_samples import PeerNode, process

from stallward.agent.desired import MIB
from stallward.papers.peers.kill_daemons.earlyoom import (
    EarlyoomNumbers,
    low_memory_signal,
    sleep_s,
)
from stallward.papers.peers.kill_daemons.victims import ZoneMemory

NUMBERS = EarlyoomNumbers()


def memory(available_mib: float, swap_free_mib: float = 0, swap_mib: float = 0) -> ZoneMemory:
    """1000 MiB that are either available or anonymous."""
    return ZoneMemory(
        total_bytes=1200 * MIB,
        available_bytes=round(available_mib * MIB),
        anon_bytes=round((1000 - available_mib) * MIB),
        swap_total_bytes=round(swap_mib * MIB),
        swap_free_bytes=round(swap_free_mib * MIB),
    )


@pytest.mark.parametrize(
    ("left", "signal"),
    [
        ((101,), None),
        ((100,), "SIGTERM"),
        ((51,), "SIGTERM"),
        ((50,), "SIGKILL"),
        ((10, 101, 1000), None),
        ((10, 100, 1000), "SIGTERM"),
        ((100, 10, 1000), "SIGTERM"),
        ((50, 50, 1000), "SIGKILL"),
    ],
)
def test_both_memory_and_swap_must_be_low(left: tuple[float, ...], signal: str | None) -> None:
    assert low_memory_signal(memory(*left), NUMBERS) == signal


def test_it_sleeps_for_as_long_as_memory_could_be_filled() -> None:
    assert sleep_s(memory(100), NUMBERS) == 0.1, "the shortest"
    # 100 MiB + 400 MiB of headroom, at 6000 and 800 MiB/s.
    assert sleep_s(memory(200, 500, 1000), NUMBERS) == pytest.approx(100 / 6000 + 400 / 800)
    assert sleep_s(memory(900, 10_000, 10_000), NUMBERS) == 1.0, "the longest"


def test_the_highest_score_is_ended_then_killed_and_the_application_never() -> None:
    node = PeerNode("earlyoom")
    node.processes = (
        process(10, score=900),
        process(11, score=900, slot=1, rss_mib=50),
        process(12, score=1000, slot=-1),
    )
    assert node.tick().desired.terminate is None
    node.run(1.0)
    node.available_bytes, node.anon_bytes = 9 * MIB, 91 * MIB
    decisions = node.run(1.1)
    ended = [d.desired.terminate for d in decisions if d.desired.terminate is not None]
    assert {ref.pid for ref in ended} == {11}, "of equal scores the largest"
    assert not decisions[-1].desired.kill_at_once
    node.available_bytes, node.anon_bytes = 5 * MIB, 95 * MIB
    assert node.tick().desired.kill_at_once
    assert any(d.desired.terminate is None for d in node.run(10.0)), "it waits for 10 s at most"


def test_it_goes_on_when_the_victim_has_exited() -> None:
    node = PeerNode("earlyoom")
    node.processes = (process(10, score=900), process(11, score=800))
    node.available_bytes, node.anon_bytes = 9 * MIB, 91 * MIB
    first = node.tick().desired.terminate
    assert first is not None
    assert first.pid == 10
    node.processes = (process(11, score=800),)
    assert node.tick().reason == "the victim exited"
    later = [d.desired.terminate for d in node.run(0.5) if d.desired.terminate is not None]
    assert {ref.pid for ref in later} == {11}


def test_with_its_kill_turned_off_it_only_says_whom() -> None:
    node = PeerNode("earlyoom:kill=0")
    node.processes = (process(10, score=900),)
    node.available_bytes, node.anon_bytes = 5 * MIB, 95 * MIB
    decisions = node.run(2.0)
    assert all(d.desired.terminate is None for d in decisions)
    assert decisions[0].reason == "would send SIGKILL to 10"
