"""A policy that keeps the target less often than what decided before is returned."""

from __future__ import annotations

import random

from stallward.actuator.policies.canary import Canary, CanarySettings, CanaryState

SETTINGS = CanarySettings(length_s=1800.0, margin=0.02)


class Node:
    """A node whose windows keep the target with some chance, alike for some seconds."""

    def __init__(self, seed: int = 1, alike_s: int = 1) -> None:
        self.canary = Canary(SETTINGS)
        self.random = random.Random(seed)
        self.alike_s, self.met = alike_s, True
        self.time_s = 0.0

    def run(self, seconds: int, active: str, chance: float) -> CanaryState:
        for _ in range(seconds):
            self.time_s += 1.0
            if self.time_s % self.alike_s == 0:
                self.met = self.random.random() < chance
            state = self.canary.take(self.time_s, active, met=self.met)
            if state is CanaryState.FAILED:
                break
        return state


def test_a_policy_that_often_misses_the_target_is_returned_within_minutes() -> None:
    node = Node()
    assert node.run(600, "", 0.97) is CanaryState.IDLE
    began_s = node.time_s
    assert node.run(1800, "policy", 0.6) is CanaryState.FAILED
    assert node.time_s - began_s < 300
    assert node.canary.attainment_before is not None
    assert node.canary.attainment is not None
    assert node.canary.attainment < 0.8 < node.canary.attainment_before


def test_a_policy_that_keeps_the_target_as_often_passes_nearly_always() -> None:
    passed = 0
    for seed in range(100):
        node = Node(seed, alike_s=3)
        node.run(900, "", 0.9)
        passed += node.run(1810, "policy", 0.9) is CanaryState.PASSED
    assert passed >= 97


def test_a_minute_of_luck_before_returns_hardly_any_policy() -> None:
    """What is known from so little is as uncertain as what is seen now."""
    returned = 0
    for seed in range(100):
        node = Node(seed, alike_s=3)
        node.run(60, "", 0.8)
        returned += node.run(1810, "policy", 0.8) is CanaryState.FAILED
    assert returned <= 3


def time_to_return_s(chance: float) -> float:
    """The mean over some nodes."""
    times_s = []
    for seed in range(10):
        node = Node(seed)
        node.run(3600, "", 0.99)
        assert node.run(1810, "policy", chance) is CanaryState.FAILED
        times_s.append(node.time_s - 3600.0)
    return sum(times_s) / len(times_s)


def test_the_larger_the_drop_the_sooner_it_is_found() -> None:
    assert time_to_return_s(0.3) <= 70.0 < time_to_return_s(0.8) < time_to_return_s(0.88)


def test_a_drop_within_the_margin_is_let_pass() -> None:
    node = Node()
    node.run(3600, "", 0.99)
    assert node.run(1810, "policy", 0.975) is CanaryState.PASSED


def test_without_a_minute_before_there_is_nothing_to_compare_with() -> None:
    node = Node()
    assert node.run(50, "", 0.99) is CanaryState.IDLE
    assert node.run(600, "policy", 0.2) is CanaryState.IDLE
    assert node.canary.attainment_before is None


def test_it_is_compared_with_the_policy_before_it() -> None:
    node = Node()
    node.run(600, "", 0.99)
    assert node.run(1810, "first", 0.97) is CanaryState.PASSED
    assert node.run(100, "second", 0.97) is CanaryState.WATCHING
    assert node.canary.left_s(node.time_s) == 1800.0 - 99.0
    assert node.run(1800, "second", 0.5) is CanaryState.FAILED


def test_a_short_visit_of_another_one_is_not_what_decided_before() -> None:
    """Ten seconds of the default controller between two policies say nothing."""
    node = Node()
    node.run(600, "first", 0.95)
    node.run(20, "", 0.0)
    assert node.run(10, "second", 0.95) is CanaryState.WATCHING
    assert node.canary.attainment_before is not None
    assert node.canary.attainment_before > 0.8
    assert node.run(600, "", 0.9) is CanaryState.IDLE


def test_a_policy_that_was_returned_is_nothing_to_compare_with() -> None:
    node = Node()
    node.run(600, "", 0.99)
    assert node.run(1800, "bad", 0.3) is CanaryState.FAILED
    node.canary.returned()
    assert node.run(1, "bad", 0.3) is CanaryState.WATCHING, "it gets another chance"
    node.run(20, "", 0.99)
    assert node.run(10, "worse", 0.3) is CanaryState.WATCHING
    assert node.canary.attainment_before is not None
    assert node.canary.attainment_before > 0.9
    assert node.run(600, "worse", 0.3) is CanaryState.FAILED


def test_a_policy_is_not_compared_with_itself() -> None:
    node = Node()
    node.run(600, "", 0.99)
    node.run(1810, "policy", 0.97)
    node.run(20, "", 0.99)
    assert node.run(10, "policy", 0.97) is CanaryState.IDLE


def test_a_policy_that_was_hardly_asked_has_not_passed() -> None:
    node = Node()
    node.run(600, "", 0.99)
    node.run(30, "policy", 0.99)
    node.time_s += 3600.0
    assert node.run(30, "policy", 0.99) is CanaryState.WATCHING
    assert node.canary.left_s(node.time_s) == 0.0
