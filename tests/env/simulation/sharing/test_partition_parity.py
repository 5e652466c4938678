"""``partition`` in compiled code decides as the controller of a node does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.agent.controller import Decision, NodeContext
from stallward.agent.controllers.partition import PartitionController, PartitionThresholds
from stallward.agent.desired import NORMAL_CPU_WEIGHT, PROFILES
from stallward.agent.registry import make_controller
from stallward.agent.sample import Sample
from stallward.agent.set_points import SET_POINT_SIZES, decode_set_points
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.find import load_named
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.node import TwinNode

_TICKS = 1200
_HELD_TICKS = 40
_AUTO = np.zeros(len(SET_POINT_SIZES), dtype=np.int64)
Actions = NDArray[np.int64]


class _Follower(PartitionController):
    """Works within set-points that a test sets."""

    action: Actions = _AUTO

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        del observation
        return self.divide(sample, decode_set_points(self.action.tolist()))


def _one_draw(scenario: str) -> FittedTwin:
    twin = load_named(scenario)
    others = tuple(own[:1] for own in twin.others)
    return replace(twin, draws=twin.draws[:1], weights=(1.0,), others=others)


def _on_node(twin: FittedTwin, actions: Actions, seed: int) -> tuple[NDArray[np.float64], ...]:
    """Pauses (with CPU weights and the profile last) and limits of every tick."""
    others = [own[0] for own in twin.others]
    node = TwinNode(twin.scenario, twin.draws[0], others=others, seed=seed)
    follower = _Follower(PartitionThresholds())
    context: NodeContext = node.context()
    engine = Engine(
        settings=EngineSettings(context=context, budgets=Budgets(), late_s=1e9),
        configured=follower,
        default=make_controller("none"),
    )
    count = len(twin.scenario.slots)
    paused, limits = [], []
    for action in actions:
        follower.action = action
        granted = engine.step(node.sample(), late=False).granted
        node.step(granted)
        desires = [granted.slot(i) for i in range(count)]
        profile = PROFILES.index(granted.tuning)
        weights = [float(d.cpu_weight or NORMAL_CPU_WEIGHT) for d in desires]
        paused.append([*(float(d.paused) for d in desires), *weights, profile])
        limits.append([np.nan if d.limit_bytes is None else d.limit_bytes for d in desires])
    return np.array(paused), np.array(limits)


def _in_simulation(
    twin: FittedTwin, actions: Actions, seed: int
) -> tuple[NDArray[np.float64], ...]:
    """The same in compiled code."""
    settings = SimulationSettings(
        action_table="set-points", ticks_per_action=1, nuisance=NO_NUISANCE, episode_s=1e6
    )
    simulation = Simulation([twin], 1, settings, seed=seed)
    simulation.reset(np.ones(1, dtype=bool))
    count = len(twin.scenario.slots)
    paused, limits = [], []
    for action in actions:
        simulation.step(action[None])
        nodes = simulation.twin.nodes
        weights = nodes.cpu_weight[:count, 0]
        paused.append([*nodes.paused[:count, 0], *weights, *nodes.profile])
        limits.append(nodes.limit_bytes[:count, 0])
    return np.array(paused), np.array(limits)


def _same_share(
    mine: tuple[NDArray[np.float64], ...], other: tuple[NDArray[np.float64], ...]
) -> float:
    """The share of the ticks in which all pauses, limits and profiles are the same."""
    limits = np.isclose(mine[1], other[1], rtol=1e-3, equal_nan=True)
    return float(((mine[0] == other[0]).all(axis=1) & limits.all(axis=1)).mean())


@pytest.mark.parametrize(
    "scenario",
    [
        "detector-anon",
        "memcached-mix",
        "postgres-hogs",
        "nginx-hogs",
        "memcached-zstd",
        "web-and-cache",
        "two-caches",
    ],
)
@pytest.mark.slow
def test_both_divide_alike(scenario: str) -> None:
    twin = _one_draw(scenario)
    actions = np.tile(_AUTO, (_TICKS, 1))
    mine, other = _on_node(twin, actions, 3), _in_simulation(twin, actions, 3)
    assert _same_share(mine, other) > 0.99
    assert np.isfinite(mine[1]).any(), "nothing was limited, so nothing was compared"


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.slow
def test_both_follow_set_points_alike(seed: int) -> None:
    twin = _one_draw("memcached-mix")
    rng = np.random.default_rng(seed)
    drawn = rng.integers(SET_POINT_SIZES, size=(_TICKS // _HELD_TICKS, len(SET_POINT_SIZES)))
    actions = np.repeat(drawn, _HELD_TICKS, axis=0)
    mine, other = _on_node(twin, actions, seed), _in_simulation(twin, actions, seed)
    # A node's counters are whole numbers, so now and then a threshold is crossed a tick apart, and
    # what follows differs for a while.
    assert _same_share(mine, other) > 0.85
    count = len(twin.scenario.slots)
    assert mine[0][:, :count].any(), "nothing was paused, so nothing was compared"
    assert len(set(mine[0][:, -1])) > 2, "the tuning did not change"
