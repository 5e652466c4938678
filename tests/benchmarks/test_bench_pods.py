"""The cost of a tick with many pods is measured on real groups, and nothing is left of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallward.agent.desired import SlotDesire
from stallward.benchmarks import pods as module
from stallward.benchmarks.pods import MEANINGS, PODS, bench_pods, tick_costs_ms

pytestmark = pytest.mark.reaches()


def test_each_number_of_pods_has_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def cost(pods: int) -> dict[str, float]:
        asked.append(pods)
        return {"calm": float(pods), "limited": 2.0 * pods}

    monkeypatch.setattr(module, "tick_costs_ms", cost)
    figures = bench_pods()
    assert figures.keys() == MEANINGS.keys()
    assert tuple(asked) == PODS
    assert figures["tick_50_pods_limited_cpu_ms"] == 100.0


@pytest.mark.live
def test_the_levers_of_all_pods_are_held_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    tick = module._Ticks._tick

    def counted(ticks: module._Ticks, desire: SlotDesire) -> None:
        tick(ticks, desire)
        held.append(len(ticks._node.levers.held()))

    monkeypatch.setattr(module._Ticks, "_tick", counted)
    costs = tick_costs_ms(3, ticks=3)
    assert all(cost_ms > 0.0 for cost_ms in costs.values())
    half = len(held) // 2
    assert not any(held[:half])
    assert max(held) == 3, held
    left = Path("/sys/fs/cgroup").rglob(f"{os.getpid()}-*-pods")
    assert list(left) == []
