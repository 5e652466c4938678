"""The processor time of the background is what its pods use, however they come and go."""

from __future__ import annotations

from stallward.actuator.experiments.block_tally import BackgroundCpu
from stallward.agent.sample import UNBOUND

EMPTY = (f"{UNBOUND}b", None)


def test_groups_that_stay_are_added_up() -> None:
    cpu = BackgroundCpu()
    totals = [cpu.take([("a", 1000 + k), ("b", 10 * k)]) for k in range(4)]
    assert totals == [0, 11, 22, 33]


def test_another_pod_brings_neither_its_past_nor_that_of_the_last_one() -> None:
    cpu = BackgroundCpu()
    steps = [("p1", 500), ("p1", 600), EMPTY, ("p2", 90_000), ("p2", 90_050), EMPTY, ("p3", 5)]
    assert [cpu.take([step]) for step in steps] == [0, 100, 100, 100, 150, 150, 150]


def test_a_counter_that_falls_or_is_not_read_counts_nothing() -> None:
    cpu = BackgroundCpu()
    assert cpu.take([("a", 50)]) == 0
    assert cpu.take([("a", 20)]) == 0
    assert cpu.take([("a", None)]) is None, "it runs, and nobody knows how much"
    assert cpu.take([("a", 70)]) == 0
    assert cpu.take([("a", 90)]) == 20
    assert cpu.take([("a", 95), ("b", 5)]) == 20
