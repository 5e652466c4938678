"""``nohang`` does what its configuration for desktops says."""

from __future__ import annotations

import pytest
from peer_samples import ZONE_BYTES, PeerNode, process

from stallward.agent.desired import MIB
from stallward.papers.peers.kill_daemons.nohang import (
    NohangNumbers,
    StallCheck,
    memory_signal,
    sleep_s,
)
from stallward.papers.peers.kill_daemons.victims import ZoneMemory

NUMBERS = NohangNumbers()


def memory(available: float, swap: float, swap_total_mib: int = 1000) -> ZoneMemory:
    """1000 MiB, of which these per cents are available and free."""
    return ZoneMemory(
        total_bytes=1000 * MIB,
        available_bytes=round(10 * available * MIB),
        anon_bytes=0,
        swap_total_bytes=swap_total_mib * MIB,
        swap_free_bytes=round(swap / 100 * swap_total_mib * MIB),
    )


@pytest.mark.parametrize(
    ("available", "swap", "signal"),
    [
        (5.1, 0, None),
        (5, 10.1, None),
        (5, 10, "SIGTERM"),
        (2, 4.1, "SIGTERM"),
        (2, 4, "SIGKILL"),
        (2.1, 4, "SIGTERM"),
    ],
)
def test_the_thresholds_of_its_configuration(
    available: float, swap: float, signal: str | None
) -> None:
    assert memory_signal(memory(available, swap), NUMBERS) == signal


def stall_signals(full: float, memory_left: ZoneMemory, seconds: int) -> list[tuple[int, str]]:
    """When a stall that goes on calls for which signal; nothing is ever acted on."""
    check = StallCheck(NUMBERS, 0.0)
    signals = [(s, check.signal(full, memory_left, float(s))) for s in range(seconds)]
    return [(s, signal) for s, signal in signals if signal is not None]


def test_a_stall_must_last_for_30_s_while_memory_is_low() -> None:
    assert stall_signals(40.0, memory(5, 50), 40)[0] == (30, "SIGTERM")
    assert stall_signals(90.0, memory(2, 50), 40)[0] == (30, "SIGKILL")
    assert stall_signals(39.9, memory(5, 50), 60) == []
    assert stall_signals(90.0, memory(6, 50), 60) == []
    assert stall_signals(90.0, memory(2, 0, 0), 60) == [], "without swap it does not look"


def test_a_stall_calls_for_nothing_so_soon_after_an_action() -> None:
    check = StallCheck(NUMBERS, 0.0)
    low = memory(5, 50)
    for second in range(31):
        check.signal(50.0, low, float(second))
    check.action_s = 30.0
    signals = [check.signal(50.0, low, float(second)) for second in range(31, 46)]
    assert signals == [None] * 14 + ["SIGTERM"]


def test_it_sleeps_for_as_long_as_memory_could_be_filled() -> None:
    assert sleep_s(memory(5, 0), NUMBERS) == 0.1
    # 600 MiB + 400 MiB of headroom, at 6000 and 2000 MiB/s.
    assert sleep_s(memory(65, 50), NUMBERS) == pytest.approx(0.1 + 0.2)
    assert sleep_s(memory(95, 100, 20_000), NUMBERS) == 3.0


def test_sigkill_follows_sigterm_after_10_s() -> None:
    node = PeerNode("nohang")
    node.processes = (process(10, score=900), process(11, score=0, slot=1))
    node.available_bytes = ZONE_BYTES * 4 // 100
    decisions = node.run(12.0)
    kills = [d.desired.kill_at_once for d in decisions]
    assert {d.desired.terminate.pid for d in decisions if d.desired.terminate} == {10}
    assert kills.index(True) == pytest.approx(101, abs=2)
    node.processes = (process(11, score=0, slot=1),)
    assert all(d.desired.terminate is None for d in node.run(5.0)), "a badness of 0 is no victim"


def test_with_its_kill_turned_off_it_only_says_whom() -> None:
    node = PeerNode("nohang:kill=0")
    node.processes = (process(10, score=900),)
    node.available_bytes = ZONE_BYTES // 100
    decisions = node.run(2.0)
    assert decisions[0].reason == "would send SIGKILL to 10"
    assert all(d.desired.terminate is None for d in decisions)
