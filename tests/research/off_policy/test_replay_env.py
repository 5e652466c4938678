"""Recorded runs as an environment and as a dataset of other libraries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import stallward.env  # noqa: F401 - registers the environments
from stallward.agent.observation.encoder import BASIC, PHASES, FeatureSet
from stallward.env.gym.spaces import to_choices
from stallward.env.gym.twin_env import TwinEnv
from stallward.evaluation.cli import main
from stallward.research.off_policy.minari_dataset import write_dataset
from stallward.research.off_policy.replay_env import ReplayEnv, load_runs
from stallward.training.errors import DatasetError

RECORDINGS = Path(__file__).parents[3] / "recordings"
EXCITE = [str(RECORDINGS / f"{name}-excite-s1") for name in ("detector-anon", "detector-file")]


@pytest.fixture(scope="module")
def env() -> ReplayEnv:
    made = gymnasium.make("stallward/Replay-v0", recordings=EXCITE, render_mode="ansi").unwrapped
    assert isinstance(made, ReplayEnv)
    return made


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_checker_of_gymnasium_finds_nothing(env: ReplayEnv) -> None:
    check_env(env)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.parametrize("features", [BASIC, PHASES], ids=lambda each: each.name)
def test_what_comes_next_is_what_was_recorded_whatever_the_action(features: FeatureSet) -> None:
    env = ReplayEnv(EXCITE, features=features.name)
    run = load_runs(EXCITE)[0].logged
    first, info = env.reset(options={"recording": 0})
    assert info["recording"] == "detector-anon-excite-s1"
    np.testing.assert_array_equal(first, run.observations[0, : features.size])
    agreed = 0
    for tick in range(20):
        action = run.actions[tick] if tick % 2 else np.zeros_like(run.actions[tick])
        observation, reward, terminated, truncated, info = env.step(action)
        np.testing.assert_array_equal(observation, run.observations[tick + 1, : features.size])
        np.testing.assert_array_equal(info["logged_action"], run.actions[tick])
        assert reward == pytest.approx(run.reward[tick])
        assert 0.0 < info["propensity"] <= 1.0
        assert not terminated
        assert not truncated
        assert info["agrees"] == np.array_equal(action, run.actions[tick])
        agreed += info["agrees"]
    assert 10 <= agreed < 20


def test_an_episode_ends_with_the_recording(env: ReplayEnv) -> None:
    run = load_runs(EXCITE)[1].logged
    env.reset(options={"recording": 1})
    steps = 0
    truncated = False
    while not truncated:
        truncated = env.step(env.action_space.sample())[3]
        steps += 1
    assert steps == len(run.actions) - 1


def test_one_seed_draws_the_same_recordings(env: ReplayEnv) -> None:
    def names(seed: int) -> list[str]:
        first = env.reset(seed=seed)[1]["recording"]
        return [first, *(env.reset()[1]["recording"] for _ in range(8))]

    assert names(1) == names(1)
    assert len(set(names(1))) == 2


def test_what_cannot_be_replayed_is_named(env: ReplayEnv) -> None:
    with pytest.raises(DatasetError, match="There is no recording 7"):
        env.reset(options={"recording": 7})
    with pytest.raises(DatasetError, match="has no propensities"):
        ReplayEnv([RECORDINGS / "detector-anon-none-s1"])
    with pytest.raises(DatasetError, match="No recording is given"):
        ReplayEnv([])


def test_other_libraries_read_the_recordings_as_a_minari_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    name = "stallward/detector-anon/excite-v0"
    command = ["minari", str(EXCITE[0]), "--name", name]
    assert main(command) == 0
    run = load_runs(EXCITE[:1])[0].logged
    dataset = minari.load_dataset(name)
    (episode,) = list(dataset)
    steps = len(run.actions) - 1
    assert (dataset.total_episodes, dataset.total_steps) == (1, steps)
    assert capsys.readouterr().out == f"{name}: episodes 1, steps {steps}\n"
    np.testing.assert_array_equal(episode.observations, run.observations[:, : BASIC.size])
    np.testing.assert_array_equal(episode.actions, run.actions[:-1])
    np.testing.assert_allclose(episode.rewards, run.reward[:-1])
    np.testing.assert_allclose(episode.infos["propensity"][1:], run.propensity[:-1])
    assert episode.truncations[-1]
    assert main(command) == 2
    assert "Minari refuses" in capsys.readouterr().err


def test_the_dataset_has_the_twin_to_try_a_policy_on_with_the_same_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = write_dataset(EXCITE[:1], "stallward/numbers/excite-v0", continuous=True)
    run = load_runs(EXCITE[:1])[0].logged
    (episode,) = list(dataset)
    assert episode.actions.dtype == np.float32
    choices = to_choices(episode.actions, run.table, continuous=True)
    np.testing.assert_array_equal(choices, run.actions[:-1])
    twin = dataset.recover_environment()
    assert isinstance(twin.unwrapped, TwinEnv)
    assert twin.action_space == dataset.action_space
    assert twin.observation_space == dataset.observation_space
    assert twin.spec is not None
    assert twin.spec.kwargs["settings"]["ticks_per_action"] == 1, "a logged action holds a tick"
    twin.reset(seed=1)
    twin.step(episode.actions[0])


def copied_as(scenario: str, folder: Path) -> Path:
    """A recording of an application that is not shipped."""
    own = folder / f"{scenario}-excite"
    shutil.copytree(EXCITE[0], own)
    facts = json.loads((own / "run.json").read_text())
    (own / "run.json").write_text(json.dumps(facts | {"scenario": scenario}))
    return own


def test_recordings_of_an_application_without_a_shipped_twin_are_replayed_too(
    tmp_path: Path,
) -> None:
    own = copied_as("own", tmp_path)
    mine, shipped = (load_runs([folder])[0].logged for folder in (own, EXCITE[0]))
    np.testing.assert_array_equal(mine.observations, shipped.observations)
    # The full speed is the highest in the recording, which is under pressure most of the time.
    assert mine.reward.mean() >= shipped.reward.mean()


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_dataset_of_an_own_application_needs_nothing_else_of_the_machine_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    name = "stallward/own/excite-v0"
    own = copied_as("own", tmp_path)
    write_dataset([own, EXCITE[1]], name)
    shutil.rmtree(own)
    text = (tmp_path / "datasets" / name / "data" / "metadata.json").read_text()
    assert str(tmp_path) not in text, "no path of this machine"
    twin = minari.load_dataset(name).recover_environment()
    assert isinstance(twin.unwrapped, TwinEnv)
    names = [one.scenario.name for one in twin.unwrapped._simulation.twins]
    assert names == ["detector-file", "own"]
    twin.reset(seed=1)
    twin.step(twin.action_space.sample())


@pytest.mark.filterwarnings("ignore")  # not of this project
def test_d3rlpy_learns_from_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs ``pip install d3rlpy==2.8.0``, which the project's own environment has not."""
    d3rlpy = pytest.importorskip("d3rlpy")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    name = "stallward/d3rlpy/excite-v0"
    (episode,) = list(write_dataset(EXCITE[:1], name, continuous=True))
    dataset, twin = d3rlpy.datasets.get_minari(name)
    d3rlpy.seed(1)
    scaler = d3rlpy.preprocessing.StandardObservationScaler()
    algorithm = d3rlpy.algos.BCConfig(observation_scaler=scaler).create()
    silent = d3rlpy.logging.NoopAdapterFactory()
    algorithm.fit(dataset, n_steps=1000, n_steps_per_epoch=1000, logger_adapter=silent)
    predicted = algorithm.predict(episode.observations[:-1])
    error = np.square(predicted - episode.actions).mean()
    assert error < 0.25 * episode.actions.var(axis=0).mean(), "hardly better than one action"
    observation, _ = twin.reset(seed=1)
    for _ in range(10):
        observation = twin.step(algorithm.predict(observation[None])[0])[0]
    assert twin.observation_space.contains(observation)


def test_a_policy_is_learned_from_the_dataset_by_behaviour_cloning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner that knows nothing of this project but the dataset's arrays."""
    minari = pytest.importorskip("minari")
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = write_dataset(EXCITE[:1], "stallward/clone/excite-v0")
    (episode,) = list(dataset)
    assert minari.list_local_datasets()
    torch.manual_seed(1)
    inputs = torch.as_tensor(np.array(episode.observations[:-1]))
    targets = torch.as_tensor(np.array(episode.actions)[:, -1])
    sizes = int(dataset.action_space.nvec[-1])
    network = torch.nn.Sequential(
        torch.nn.BatchNorm1d(inputs.shape[1]), torch.nn.Linear(inputs.shape[1], sizes)
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(network(inputs), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
