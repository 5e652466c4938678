"""Before PPO begins, the actor does what is best in each scenario."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from stallward.agent.desired import ACTION_SIZES
from stallward.env.simulation import SimulationSettings
from stallward.env.twin.fitted import FittedTwin
from stallward.env.twin.parameters import TwinParameters
from stallward.env.twin.scenario import ProtectedProgram, SlotProgram, TwinScenario
from stallward.env.vec import TwinVec
from stallward.training.constraints import Slack
from stallward.training.ppo import Args, train
from stallward.training.statics import make_constraints
from stallward.training.torch_heads import Heads, HeadsPolicy
from stallward.training.warm_start import examples, imitate

SETTINGS = SimulationSettings()
BESIDE_TWO = FittedTwin(
    scenario=TwinScenario(
        name="two",
        zone_bytes=400 << 20,
        swap_bytes=2 << 30,
        slo_ms=20.0,
        protected=ProtectedProgram(
            request_rate_per_s=20.0,
            service_s=0.005,
            file_pages=40_000.0,
            touch_file_pages=20_000.0,
        ),
        slots=tuple(
            SlotProgram(name=name, units_per_s=10.0, anon_pages=(50_000.0,)) for name in "ab"
        ),
    ),
    draws=(TwinParameters(),),
    weights=(1.0,),
)
ROOMY = replace(
    BESIDE_TWO, scenario=replace(BESIDE_TWO.scenario, name="roomy", zone_bytes=4 << 30)
)


def test_the_actor_does_what_is_best_in_each_scenario() -> None:
    twins = [BESIDE_TWO, ROOMY]
    constraints, statics = make_constraints(twins, SETTINGS, Slack(), seed=1)
    best = statics.best_of_each(constraints)
    assert not best[1][:4].any(), "with ample memory nothing is held back"
    assert best[0][:4].any()
    assert best[0][:4].tolist() not in ([1, 5, 1, 5], [0, 0, 0, 0]), "one runs for the other"
    seen, wanted = examples(twins, statics, constraints, SETTINGS, seed=1)
    assert len(seen) == len(wanted)
    assert {tuple(row) for row in wanted} == {tuple(row) for row in best}
    model = PPO(HeadsPolicy, TwinVec(twins, 8, SETTINGS, seed=1), policy_kwargs={"net_arch": [64]})
    critic = model.policy.get_parameter("value_net.weight").detach().clone()
    imitate(model, seen, wanted, smoothing=0.2, gradient_steps=400, seed=1)
    assert torch.equal(critic, model.policy.get_parameter("value_net.weight"))
    fresh, right = examples(twins, statics, constraints, SETTINGS, seed=9)
    heads = model.policy.get_distribution(torch.as_tensor(fresh))
    assert isinstance(heads, Heads)
    chosen = heads.mode().numpy()
    assert (chosen == right)[:, :4].mean() > 0.9
    chance = float(heads.log_prob(torch.as_tensor(right)).exp().mean().detach())
    assert 0.02 < chance < 0.8, "something is left to chance"


def test_the_best_smoothed_policy_keeps_its_share_for_the_other_choices() -> None:
    logits = torch.zeros(1, sum(ACTION_SIZES), requires_grad=True)
    heads, wanted = Heads(ACTION_SIZES), torch.zeros(1, len(ACTION_SIZES), dtype=torch.long)
    optimiser = torch.optim.Adam([logits], lr=0.1)
    for _ in range(300):
        optimiser.zero_grad()
        loss = -heads.proba_distribution(logits).smoothed_log_prob(wanted, 0.12).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    probability = heads.proba_distribution(logits)._log.exp()[0, :, 0].tolist()
    for found, choices in zip(probability, ACTION_SIZES, strict=True):
        assert found == pytest.approx(1.0 - 0.12 + 0.12 / choices, abs=0.01)


def test_the_critic_learns_alone_before_the_actor_goes_on() -> None:
    args = Args(n_envs=64, n_steps=16, batch_size=256, total_steps=2048, evaluation_episodes=8)
    asleep = [train([BESIDE_TWO], replace(args, gamma=gamma)).policy for gamma in (0.9, 0.99)]
    awake = train([BESIDE_TWO], replace(args, critic_rollouts=1)).policy
    np.testing.assert_array_equal(asleep[0].w2, asleep[1].w2)
    assert (asleep[0].w2 != awake.w2).any()
