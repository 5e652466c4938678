"""Many twin nodes as Gymnasium and single-file trainers such as CleanRL use them."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import stallward.env  # noqa: F401 - registers the environments
from stallward.agent.desired import ACTION_SIZES
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.env.errors import TwinError
from stallward.env.gym.vector_env import TwinVectorEnv

KEYWORDS = json.loads('{"twins": ["detector-anon"], "settings": {"episode_s": 4.0}}')
"""Plain JSON types, as a configuration file or a command line holds them."""
SHAPE = (3, len(ACTION_SIZES))


@pytest.fixture
def env() -> TwinVectorEnv:
    made: Any = gymnasium.make_vec("stallward/Twin-v0", num_envs=3, **KEYWORDS)
    assert isinstance(made, TwinVectorEnv)
    return made


def test_one_seed_repeats_everything_and_nodes_differ(env: TwinVectorEnv) -> None:
    def run(seed: int) -> np.ndarray:
        env.action_space.seed(5)
        observations = [env.reset(seed=seed)[0]]
        observations += [env.step(env.action_space.sample())[0] for _ in range(10)]
        return np.array(observations)

    first = run(1)
    assert first.shape == (11, 3, OBSERVATION_SIZE)
    np.testing.assert_array_equal(run(1), first)
    assert not np.array_equal(run(2), first)
    assert not np.array_equal(first[:, 0], first[:, 1])


def test_it_is_the_same_environment_as_the_single_one(env: TwinVectorEnv) -> None:
    single = gymnasium.make("stallward/Twin-v0", **KEYWORDS)
    together, apart = env.reset(seed=7)[0], single.reset(seed=7)[0]
    actions = np.zeros(SHAPE, dtype=np.int64)
    for _ in range(5):
        np.testing.assert_array_equal(together[0], apart)
        together, rewards, _, _, infos = env.step(actions)
        apart, reward, _, _, info = single.step(actions[0])
        assert rewards[0] == pytest.approx(float(reward))
        assert infos["progress"][0] == pytest.approx(info["progress"])


def test_an_episode_that_ends_begins_anew_in_the_same_step(env: TwinVectorEnv) -> None:
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    env.reset(seed=1)
    actions = np.zeros(SHAPE, dtype=np.int64)
    for step in range(20):
        observation, _, terminated, truncated, infos = env.step(actions)
        assert not terminated.any()
        assert truncated.all() == (step == 19), "4 s are 20 decisions of 0.2 s"
    assert infos["_final_obs"].all()
    assert not np.array_equal(infos["final_obs"][0], observation[0])
    assert env.observation_space.contains(observation)
    assert set(infos["final_info"]) >= {"progress", "_progress"}


def test_a_single_file_trainer_learns_on_it(env: TwinVectorEnv) -> None:
    """The loop of CleanRL's PPO, reduced to one update of a linear policy."""
    torch = pytest.importorskip("torch")
    envs = RecordEpisodeStatistics(env)
    sizes = list(ACTION_SIZES)
    torch.manual_seed(1)
    policy = torch.nn.Linear(OBSERVATION_SIZE, sum(sizes))
    optimiser = torch.optim.SGD(policy.parameters(), lr=1e-3)
    before = [parameter.clone() for parameter in policy.parameters()]
    observation, _ = envs.reset(seed=1)
    log_probabilities, rewards, returns = [], [], []
    for _ in range(25):
        heads = policy(torch.as_tensor(observation)).split(sizes, dim=1)
        drawn = [torch.distributions.Categorical(logits=head) for head in heads]
        actions = [one.sample() for one in drawn]
        log_probabilities.append(
            sum(one.log_prob(action) for one, action in zip(drawn, actions, strict=True))
        )
        observation, reward, _, _, infos = envs.step(torch.stack(actions, dim=1).numpy())
        rewards.append(torch.as_tensor(reward, dtype=torch.float32))
        if "episode" in infos:
            returns += infos["episode"]["r"][infos["_episode"]].tolist()
    loss = -(torch.stack(log_probabilities) * torch.stack(rewards)).mean()
    loss.backward()
    optimiser.step()
    assert len(returns) == 3, "statistics wrappers see the ends of episodes"
    assert np.isfinite(returns).all()
    after = list(policy.parameters())
    assert any(not torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_infos_are_as_in_gymnasiums_own_vector_environment(env: TwinVectorEnv) -> None:
    own = gymnasium.make_vec(
        "stallward/Twin-v0",
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        **KEYWORDS,
    )
    env.reset(seed=1)
    own.reset(seed=1)
    actions = np.zeros(SHAPE, dtype=np.int64)
    for _ in range(20):
        mine, theirs = env.step(actions)[4], own.step(actions)[4]
        kept = {key for key in mine if key.startswith("_") and not mine[key].any()}
        shown = mine.keys() - kept - {key.removeprefix("_") for key in kept}
        assert shown == theirs.keys()
    final = mine["final_info"]
    assert final.keys() == theirs["final_info"].keys()
    assert final["_progress"].all()
    assert not mine["_progress"].any()


def test_some_nodes_can_be_reset_alone(env: TwinVectorEnv) -> None:
    env.reset(seed=1)
    actions = np.zeros(SHAPE, dtype=np.int64)
    for _ in range(15):
        env.step(actions)
    env.reset(options={"reset_mask": np.array([True, False, False])})
    ended = [env.step(actions)[3].tolist() for _ in range(5)]
    assert ended[-1] == [False, True, True]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"episodes": 3}, "episodes"),
        ({"action_table": "x"}, "action_table"),
        ({"nuisance": {"late_shares": 0.1}}, "late_shares"),
    ],
)
def test_an_unknown_setting_is_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(TwinError, match=named):
        TwinVectorEnv(2, ["detector-anon"], settings)


def test_settings_inside_settings_are_plain_types_too() -> None:
    settings = json.loads('{"nuisance": {"late_share": 0.0}, "budgets": {"max_pause_s": 2.0}}')
    TwinVectorEnv(2, ["detector-anon"], settings).reset(seed=1)
