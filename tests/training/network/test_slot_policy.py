"""One network serves all slots, in any order, and its dense form computes the same."""

from __future__ import annotations

from itertools import permutations

import gymnasium
import numpy as np
import pytest
import torch

from stallward.agent.action_table import LEVELS, SET_POINTS, ActionTable
from stallward.agent.desired import ACTION_SIZES, SLOTS
from stallward.agent.observation.encoder import BASIC, PHASES, FeatureSet
from stallward.training.network.actor import (
    WIDTH,
    SlotLayers,
    SlotOutputs,
    SlotPolicy,
    dense_weights,
    pooled_over_slots,
)

AT = {name: i for i, name in enumerate(PHASES.names)}
EACH_SET = pytest.mark.parametrize("features", [BASIC, PHASES], ids=lambda each: each.name)
EACH_TABLE = pytest.mark.parametrize("table", [LEVELS, SET_POINTS], ids=lambda table: table.name)


def network(table: ActionTable, features: FeatureSet = BASIC) -> tuple[SlotLayers, SlotOutputs]:
    torch.manual_seed(1)
    return SlotLayers(features), SlotOutputs(table)


def logits_of(
    layers: SlotLayers, outputs: SlotOutputs, observations: torch.Tensor
) -> torch.Tensor:
    logits: torch.Tensor = outputs(layers(observations))[:, :-SLOTS]
    return logits


@EACH_SET
@EACH_TABLE
def test_slots_in_another_order_are_treated_alike(
    table: ActionTable, features: FeatureSet
) -> None:
    layers, outputs = network(table, features)
    observations = torch.randn(50, features.size)
    logits = logits_of(layers, outputs, observations)
    assert logits.shape == (50, sum(table.sizes))
    node = sum(table.node_sizes)
    of_slots, of_node = logits[:, :-node].reshape(50, SLOTS, -1), logits[:, -node:]
    for order in permutations(range(SLOTS)):
        column = [
            AT[f"slot{order[int(name[4])]}{name[5:]}"] if name.startswith("slot") else AT[name]
            for name in features.names
        ]
        again = logits_of(layers, outputs, observations[:, column])
        expected = of_slots[:, list(order)].reshape(50, -1)
        torch.testing.assert_close(again[:, :-node], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(again[:, -node:], of_node, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(of_slots[:, 0], of_slots[:, 1], atol=0.1), (
        "different slots have the same logits"
    )


def test_the_logits_of_a_slot_depend_on_the_node_and_on_other_slots() -> None:
    layers, outputs = network(LEVELS)
    observations = torch.zeros(1, BASIC.size)
    before = logits_of(layers, outputs, observations)[0, :8]
    for name in ("latency_p95_ratio", "slot2_usage_ratio"):
        other = observations.clone()
        other[0, AT[name]] = 2.0
        assert not torch.allclose(logits_of(layers, outputs, other)[0, :8], before, atol=1e-3)


@EACH_SET
@EACH_TABLE
def test_the_dense_form_computes_the_same_logits(table: ActionTable, features: FeatureSet) -> None:
    layers, outputs = network(table, features)
    observations = torch.randn(200, features.size)
    arrays = dense_weights(layers, outputs)
    assert arrays["w0"].shape == ((SLOTS + 1) * WIDTH, features.size)
    values = observations.numpy()
    for k in range(2):
        values = np.tanh(values @ arrays[f"w{k}"].T + arrays[f"b{k}"])
    values = values @ arrays["w2"].T + arrays["b2"]
    expected = logits_of(layers, outputs, observations).detach().numpy()
    np.testing.assert_allclose(values, expected, atol=1e-5)


def test_choices_for_absent_slots_have_no_part_in_learning() -> None:
    torch.manual_seed(2)
    policy = SlotPolicy(
        gymnasium.spaces.Box(-64.0, 64.0, (BASIC.size,)),
        gymnasium.spaces.MultiDiscrete(list(ACTION_SIZES)),
        lambda _left: 1e-3,
        net_arch=[8],
        table=LEVELS,
    )
    observations = torch.randn(20, BASIC.size)
    for slot in range(SLOTS):
        observations[:, AT[f"slot{slot}_present"]] = 1.0 if slot < 2 else -1.0
    some = torch.tensor(ACTION_SIZES) - 1
    others = some.clone()
    others[4 : 2 * SLOTS] = 0
    evaluations = [
        policy.evaluate_actions(observations, torch.tile(each, (20, 1))) for each in (some, others)
    ]
    torch.testing.assert_close(evaluations[0][1], evaluations[1][1])
    assert evaluations[0][2] is not None
    assert (
        evaluations[0][2] < np.log(ACTION_SIZES[:4]).sum() + np.log(ACTION_SIZES[-1]) + 1e-4
    ).all()
    others[0] = 0
    _, another, _ = policy.evaluate_actions(observations, torch.tile(others, (20, 1)))
    assert not torch.allclose(evaluations[0][1], another, atol=1e-3), (
        "a choice for a present slot does not count"
    )


@pytest.mark.parametrize("held", [1.0, 8.0])
def test_all_of_a_policy_moves_to_another_device(held: float) -> None:
    """``PPO.load`` takes a GPU where there is one; ``meta`` refuses tensors of the CPU likewise."""
    policy = SlotPolicy(
        gymnasium.spaces.Box(-64.0, 64.0, (BASIC.size,)),
        gymnasium.spaces.MultiDiscrete(list(ACTION_SIZES)),
        lambda _left: 1e-3,
        net_arch=[8],
        table=LEVELS,
        held_decisions=held,
    ).to("meta")
    observations = torch.zeros(3, BASIC.size, device="meta")
    for _ in range(2):
        actions, values, _ = policy(observations)
    of_actions, _, entropies = policy.evaluate_actions(observations, actions)
    assert entropies is not None
    assert {part.device.type for part in (actions, values, of_actions, entropies)} == {"meta"}


def test_values_of_slots_are_pooled_over_all_slots() -> None:
    values = np.arange(float(BASIC.size))
    pooled = pooled_over_slots(values)
    usage = [AT[f"slot{slot}_usage_ratio"] for slot in range(SLOTS)]
    assert (pooled[usage] == values[usage].mean()).all()
    assert pooled[AT["zone_usage_ratio"]] == AT["zone_usage_ratio"]
    assert values[0] == 0.0, "the argument has changed"
