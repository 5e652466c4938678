"""Before PPO begins, the actor imitates a teacher that can look ahead."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from stallward.agent.desired import ACTION_SIZES
from stallward.env.gym.vec_env import TwinVec
from stallward.env.objective import Slack
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.exogenous import SlotProgram
from stallward.training.imitation.behaviour_cloning import deterministic_actions, imitate
from stallward.training.imitation.teacher import Teacher, TeacherSettings, collect_demonstrations
from stallward.training.lagrangian import PriceRange
from stallward.training.network.slot_policy import SlotPolicy
from stallward.training.network.softmax_heads import Heads
from stallward.training.ppo.args import Args
from stallward.training.ppo.train import train
from stallward.training.selection.static_settings import make_constraints

SETTINGS = SimulationSettings()
NOMINAL = SimulationSettings(nuisance=NO_NUISANCE)
BESIDE_TWO = small_twin(
    *(SlotProgram(name=name, units_per_s=10.0, anon_pages=(50_000.0,)) for name in "ab")
)
ROOMY = replace(
    BESIDE_TWO, scenario=replace(BESIDE_TWO.scenario, name="roomy", zone_bytes=4 << 30)
)


TEACHING = TeacherSettings(nodes=24, lessons=40, unused_lessons=15, settings=16, ahead_steps=25)
PRICES = PriceRange()


def test_a_teacher_holds_one_group_back_only_where_memory_is_short() -> None:
    twins = [BESIDE_TWO, ROOMY]
    constraints, statics = make_constraints(twins, SETTINGS, Slack(), seed=1)
    for k, twin in enumerate(twins):
        nodes = constraints.one(k).simulate([twin], 24, NOMINAL, seed=2)
        nodes.terms.prices[:, 0] = (8.0, 2.0, 4.0)
        candidates = statics.promising(k, 2, constraints.allowed[:, k], 16)
        assert not candidates[0].any()
        assert not candidates[:, 4:8].any(), "an absent slot has an action"
        assert len(np.unique(candidates, axis=0)) == len(candidates) <= 16
        teacher = Teacher(twin, candidates, NOMINAL, nodes=24, ahead_steps=25, seed=5)
        for _ in range(6):
            best = teacher.expert_actions(nodes)
            for _ in range(5):
                nodes.step(best)
        free = (best[:, [0, 2]] == 0) & (best[:, [1, 3]] == 0)
        if twin is ROOMY:
            assert free.all()
        else:
            assert (free.sum(axis=1) == 1).mean() > 0.8


def test_trying_actions_leaves_the_nodes_unchanged() -> None:
    constraints, statics = make_constraints([BESIDE_TWO], SETTINGS, Slack(), seed=1)
    first, second = (constraints.simulate([BESIDE_TWO], 16, SETTINGS, seed=2) for _ in range(2))
    candidates = statics.promising(0, 2, constraints.allowed[:, 0], 8)
    teacher = Teacher(BESIDE_TWO, candidates, SETTINGS, nodes=16, ahead_steps=5, seed=5)
    action = np.zeros((16, 9), dtype=np.int64)
    for _ in range(5):
        teacher.action_values(first)
        first.step(action)
        second.step(action)
    np.testing.assert_array_equal(first.observation, second.observation)


@pytest.mark.slow
def test_the_actor_learns_the_demonstrated_actions() -> None:
    twins = [BESIDE_TWO, ROOMY]
    constraints, statics = make_constraints(twins, SETTINGS, Slack(), seed=1)
    demonstrations = collect_demonstrations(
        twins, statics, constraints, SETTINGS, TEACHING, seed=1, price_range=PRICES
    )
    assert len(demonstrations.observations) == len(demonstrations.actions) == 2 * 25 * 24
    assert demonstrations.prices.shape == (3, 2)
    assert demonstrations.prices[0, 1] < SETTINGS.price, (
        "prices fall where there are no violations"
    )
    assert set(demonstrations.figures(["a", "b"])["b"]) >= {"progress", "excess"}
    model = PPO(SlotPolicy, TwinVec(twins, 8, SETTINGS, seed=1), policy_kwargs={"net_arch": [64]})
    critic = model.policy.get_parameter("value_net.weight").detach().clone()
    imitate(model, demonstrations, smoothing=0.1, gradient_steps=400, seed=1)
    assert torch.equal(critic, model.policy.get_parameter("value_net.weight"))
    chosen = deterministic_actions(model, demonstrations.observations)
    assert (chosen == demonstrations.actions)[:, :4].mean() > 0.8
    followed = collect_demonstrations(
        twins, statics, constraints, SETTINGS, replace(TEACHING, price_rate=0.0), seed=2,
        price_range=PRICES, act=partial(deterministic_actions, model),
        prices=demonstrations.prices,
    )  # fmt: skip
    np.testing.assert_array_equal(followed.prices, demonstrations.prices)
    assert followed.progress[1] > 0.9
    both = demonstrations.aggregate(followed)
    assert len(both.actions) == len(demonstrations.actions) + len(followed.actions)


def test_the_best_smoothed_policy_gives_every_other_choice_its_share() -> None:
    """The gradient is zero. The objective is concave, so no other policy is better."""
    heads, targets = Heads(ACTION_SIZES), torch.zeros(1, len(ACTION_SIZES), dtype=torch.long)
    shares = [
        [1.0 - 0.12 + 0.12 / choices] + [0.12 / choices] * (choices - 1)
        for choices in ACTION_SIZES
    ]
    best = torch.tensor([list(chain.from_iterable(shares))]).log()

    def gradient(logits: torch.Tensor) -> torch.Tensor:
        logits = logits.clone().requires_grad_()
        objective = heads.proba_distribution(logits).smoothed_log_prob(targets, 0.12).sum()
        (slope,) = torch.autograd.grad(objective, logits)
        return slope.abs().max()

    assert gradient(best) < 1e-6
    assert gradient(torch.zeros_like(best)) > 0.1


@pytest.mark.slow
def test_the_critic_learns_alone_before_the_actor_goes_on() -> None:
    args = Args(
        n_envs=64, n_steps=16, batch_size=256, total_steps=6144, evaluation_episodes=8,
        teaching=replace(TEACHING, lessons=4, unused_lessons=1), pupil_lessons=1,
        imitation_steps=20, critic_rollouts=6,
    )  # fmt: skip
    # Six rollouts are the whole training. Any actor may be kept, so rewards are compared, too.
    frozen = [train([BESIDE_TWO], replace(args, gamma=gamma)).policy for gamma in (0.9, 0.99)]
    learning = train([BESIDE_TWO], replace(args, critic_rollouts=1)).policy
    np.testing.assert_array_equal(frozen[0].w2, frozen[1].w2)
    curves = [policy.provenance["curve"] for policy in (*frozen, learning)]
    assert curves[0] == curves[1]
    assert curves[0] != curves[2]
