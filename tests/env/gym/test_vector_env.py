"""Many twin nodes as Gymnasium and single-file trainers such as CleanRL use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from single_file_ppo import train

import stallward.env  # noqa: F401 - registers the environments
from stallward.agent.action_table import LEVELS
from stallward.agent.desired import ACTION_SIZES
from stallward.agent.observation.encoder import BASIC, PHASES
from stallward.env.errors import TwinError
from stallward.env.gym.spaces import to_choices, to_continuous
from stallward.env.gym.vector_env import TwinVectorEnv
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.testing import small_twin

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
    assert first.shape == (11, 3, BASIC.size)
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


def test_it_shows_the_phases_where_they_are_asked_for() -> None:
    keywords = KEYWORDS | {"features": "phases"}
    env = gymnasium.make_vec("stallward/Twin-v0", num_envs=3, **keywords)
    single = gymnasium.make("stallward/Twin-v0", **keywords)
    together, apart = env.reset(seed=7)[0], single.reset(seed=7)[0]
    assert together.shape == (3, PHASES.size)
    for _ in range(10):
        np.testing.assert_array_equal(together[0], apart)
        assert env.observation_space.contains(together)
        together = env.step(np.zeros(SHAPE, dtype=np.int64))[0]
        apart = single.step(np.zeros(SHAPE[1:], dtype=np.int64))[0]


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


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Networks this small are faster without a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.slow
def test_a_single_file_trainer_learns_on_it() -> None:
    settings = SimulationSettings(nuisance=NO_NUISANCE, episode_s=8.0, switch_cost=0.0)
    envs: Any = gymnasium.make_vec(
        "stallward/TwinDiscrete-v0", num_envs=64, twins=(small_twin(),), settings=settings
    )
    returns = train(RecordEpisodeStatistics(envs), iterations=14, steps=40, seed=2)
    assert np.isfinite(returns).all(), "the wrapper sees the ends of episodes"
    assert np.mean(returns[-4:]) > np.mean(returns[:2]) + 1.5


def recorded(name: str) -> gymnasium.Env[Any, Any]:
    """As CleanRL's ``ppo.py`` makes an environment."""
    return wrappers.RecordEpisodeStatistics(gymnasium.make(name))


def normalised(name: str) -> gymnasium.Env[Any, Any]:
    """As its ``ppo_continuous_action.py`` does, with the argument that Gymnasium 1 asks for."""
    env: Any = wrappers.FlattenObservation(gymnasium.make(name))
    env = wrappers.NormalizeObservation(wrappers.ClipAction(wrappers.RecordEpisodeStatistics(env)))
    env = wrappers.TransformObservation(env, lambda x: np.clip(x, -10, 10), env.observation_space)
    env = wrappers.NormalizeReward(env, gamma=0.99)
    return wrappers.TransformReward(env, lambda reward: float(np.clip(float(reward), -10, 10)))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.slow
@pytest.mark.reaches("models/")
@pytest.mark.parametrize(
    ("name", "space", "make"),
    [
        ("stallward.env.gym:stallward/TwinDiscrete-v0", gymnasium.spaces.Discrete, recorded),
        ("stallward.env.gym:stallward/TwinContinuous-v0", gymnasium.spaces.Box, normalised),
    ],
)
def test_a_program_that_knows_nothing_but_the_id_trains(
    name: str, space: type[Any], make: Callable[[str], gymnasium.Env[Any, Any]]
) -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: make(name)] * 2)
    assert isinstance(envs.single_action_space, space)
    # Episodes of 120 s end in the 601st step, from which on a new one is seen.
    returns = train(envs, iterations=2, steps=310, seed=1)
    assert np.isfinite(returns[1]), "both episodes have ended"


@pytest.mark.parametrize("id_of", ["TwinDiscrete", "TwinContinuous"])
def test_each_kind_of_action_is_the_same_for_many_nodes_as_for_one(id_of: str) -> None:
    together: Any = gymnasium.make_vec(f"stallward/{id_of}-v0", num_envs=3, **KEYWORDS)
    alone = gymnasium.make(f"stallward/{id_of}-v0", **KEYWORDS)
    assert together.single_action_space == alone.action_space
    assert not isinstance(together.unwrapped, gymnasium.vector.SyncVectorEnv)
    np.testing.assert_array_equal(together.reset(seed=7)[0][0], alone.reset(seed=7)[0])
    together.action_space.seed(1)
    for _ in range(5):
        actions = together.action_space.sample()
        seen, rewards, *_ = together.step(actions)
        np.testing.assert_array_equal(seen[0], (after := alone.step(actions[0]))[0])
        assert rewards[0] == pytest.approx(float(after[1]))


def test_continuous_actions_choose_the_same_as_the_choices_they_stand_for() -> None:
    made: list[Any] = [
        gymnasium.make_vec("stallward/Twin-v0", num_envs=3, continuous=continuous, **KEYWORDS)
        for continuous in (False, True)
    ]
    plain, continuous = made
    np.testing.assert_array_equal(plain.reset(seed=1)[0], continuous.reset(seed=1)[0])
    plain.action_space.seed(1)
    for _ in range(10):
        choices = plain.action_space.sample()
        numbers = to_continuous(choices, LEVELS)
        assert continuous.action_space.contains(numbers)
        here, there = plain.step(choices), continuous.step(numbers)
        np.testing.assert_array_equal(here[0], there[0])


def test_the_range_of_a_continuous_action_has_an_equal_part_for_each_choice() -> None:
    ends = np.array([[-1.0] * 9, [1.0] * 9, [-3.0] * 9, [3.0] * 9], dtype=np.float32)
    largest = np.array(LEVELS.sizes) - 1
    chosen = to_choices(ends, LEVELS, continuous=True)
    np.testing.assert_array_equal(chosen, [0 * largest, largest, 0 * largest, largest])
    grid = np.linspace(-1.0, 1.0, 1200, endpoint=False, dtype=np.float32)
    every = np.tile(grid[:, None], (1, 9))
    counts = np.bincount(to_choices(every, LEVELS, continuous=True)[:, 1])
    np.testing.assert_allclose(counts, 200, atol=1)


def test_each_node_is_shown_in_its_own_episode() -> None:
    made: Any = gymnasium.make_vec("stallward/Twin-v0", num_envs=2, render_mode="ansi", **KEYWORDS)
    made.reset(seed=1)
    actions = np.zeros((2, len(ACTION_SIZES)), dtype=np.int64)
    for _ in range(5):
        made.step(actions)
    made.reset(options={"reset_mask": np.array([True, False])})
    begun, going_on = made.render()
    assert begun.startswith("detector-anon at 0.0 s")
    assert going_on.startswith("detector-anon at 1.0 s")
    for _ in range(15):
        made.step(actions)
    assert [text.partition(",")[0] for text in made.render()] == [
        "detector-anon at 3.0 s",
        "detector-anon at 0.0 s",
    ]


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
