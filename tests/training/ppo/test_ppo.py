"""The training recipe, a few seconds long, runs, stops in time and exports its policy."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brief_training import BRIEF, TWO_SEEDS
from slot_policies import slot_policy

from stallward.agent.observation.encoder import BASIC, OBSERVATION_SIZE, PHASES
from stallward.env.testing import small_twin
from stallward.models.registry import load_policy
from stallward.training.errors import TrainingError
from stallward.training.export.onnx_file import export_policy
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.parallel.versions import versions_here
from stallward.training.ppo.args import Args, TrainingResult
from stallward.training.ppo.callback import arm_of_policy
from stallward.training.ppo.saved import load_policy as load_run
from stallward.training.ppo.saved import save_policy
from stallward.training.ppo.train import _kept_seeds, train
from stallward.training.selection.rollout import IDLE, Act, Arm, constant
from stallward.training.selection.selection import make_selection
from stallward.training.synthetic_scenarios import SyntheticScenarioSettings

pytestmark = pytest.mark.usefixtures("one_processor")

TWIN = small_twin()
OTHER = replace(TWIN, scenario=replace(TWIN.scenario, name="other", zone_bytes=480 << 20))


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The result of a training, the folder of its files, and what it reported."""

    result: TrainingResult
    folder: Path
    stages: list[tuple[str, float]]
    nodes_of_rule: list[int]

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self.result.policy.provenance


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A training of two seeds. Tests share it, and do not change its folder."""
    stages: list[tuple[str, float]] = []
    nodes: list[int] = []

    def idle(count: int) -> Act:
        nodes.append(count)
        return constant(IDLE)

    folder = tmp_path_factory.mktemp("trained")
    result = train(
        [TWIN],
        TWO_SEEDS,
        lambda stage, share: stages.append((stage, share)),
        rules={"rule": Arm(make=idle), "partition": Arm.of_partition()},
        folder=folder,
    )
    return Training(result=result, folder=folder, stages=stages, nodes_of_rule=nodes)


@pytest.fixture(scope="module")
def judged() -> TrainingResult:
    """A training of two seeds. A twin that neither was trained on decides which is kept."""
    return train([TWIN], TWO_SEEDS, judged_on=[OTHER])


def weights(policy: TrainedPolicy) -> bytes:
    return b"".join(array.tobytes() for array in (policy.w0, policy.w1, policy.w2, policy.b2))


def weights_of_seed(folder: Path, seed: int) -> bytes:
    return weights(load_run(folder / "seeds" / str(seed)))


@pytest.mark.slow
def test_the_policy_is_evaluated_beside_a_static_setting_no_control_and_rules(
    trained: Training,
) -> None:
    evaluation = trained.result.evaluation
    assert set(evaluation) == {"ppo", "static", "none", "rule", "partition"}
    assert set(evaluation["ppo"]) == {"small"}
    assert evaluation["rule"] == evaluation["none"], "a rule that does nothing"


@pytest.mark.slow
def test_a_rule_is_made_once_for_all_nodes_of_a_scenario(trained: Training) -> None:
    assert trained.nodes_of_rule == [BRIEF.evaluation_episodes]


@pytest.mark.slow
def test_progress_names_each_seed_and_ends_with_done(trained: Training) -> None:
    names = [stage for stage, _ in trained.stages]
    assert any(re.search(r"^seed 2: [\d,]+ decisions, score -?\d", stage) for stage in names)
    assert all(0.0 <= share <= 1.0 for _, share in trained.stages)
    assert trained.stages[-1] == ("done", 1.0)


@pytest.mark.slow
def test_the_seed_with_the_highest_merit_is_kept(trained: Training) -> None:
    provenance = trained.provenance
    assert provenance["seeds"] == [1, 2]
    assert provenance["seed"] == 1 + int(np.argmax(provenance["merits"]))
    assert provenance["merits"] == provenance["scores_low"], "there are no validation twins"
    assert weights(trained.result.policy) == weights_of_seed(trained.folder, provenance["seed"])


@pytest.mark.slow
def test_a_policy_is_evaluated_on_other_draws_than_those_that_chose_it(trained: Training) -> None:
    evaluated = trained.result.evaluation["ppo"]["small"].score_low
    assert evaluated != max(trained.provenance["scores_low"])


@pytest.mark.slow
def test_provenance_names_the_steps_the_twins_and_the_recipe(trained: Training) -> None:
    assert trained.provenance["steps"] == BRIEF.total_steps
    assert trained.provenance["judged_on"] == ["small"]
    assert trained.provenance["args"]["settings"]["action_table"] == "set-points"


@pytest.mark.slow
def test_the_range_of_every_feature_is_known(trained: Training) -> None:
    assert (trained.result.policy.low < trained.result.policy.high).all()


@pytest.mark.slow
def test_an_exported_policy_loads_and_its_card_has_the_results(
    trained: Training, tmp_path: Path
) -> None:
    export_policy(trained.result.policy, tmp_path / "p.onnx")
    assert load_policy(tmp_path / "p.onnx").metadata.provenance["twins"].keys() == {"small"}
    card = (tmp_path / "p.md").read_text()
    columns = next(line for line in card.splitlines() if line.startswith("| scenario |"))
    assert " | static | " in columns
    assert " | rule | " in columns
    assert "| `small` | " in card
    assert card.count("    line [") == 2, "the curve of each seed"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_policy_and_another_one_another(trained: Training) -> None:
    again = train([TWIN], BRIEF).policy
    assert weights(again) == weights_of_seed(trained.folder, 1)
    assert weights(again) != weights_of_seed(trained.folder, 2)


@pytest.mark.slow
def test_seeds_trained_in_separate_processes_give_the_same_policy(
    trained: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1})
    parallel = train([TWIN], TWO_SEEDS)
    assert weights(parallel.policy) == weights(trained.result.policy)
    assert parallel.policy.provenance["merits"] == trained.provenance["merits"]


@pytest.fixture(scope="module")
def interrupted(trained: Training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that was interrupted after its first seed."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    shutil.copytree(trained.folder, folder)
    shutil.rmtree(folder / "seeds/2")
    return folder


@pytest.mark.slow
def test_an_interrupted_run_goes_on_with_the_seeds_that_are_missing(
    trained: Training, interrupted: Path
) -> None:
    first_seed = interrupted / "seeds/1/policy.zip"
    before = first_seed.stat().st_mtime_ns
    resumed = train([TWIN], TWO_SEEDS, folder=interrupted)
    assert first_seed.stat().st_mtime_ns == before
    assert weights(resumed.policy) == weights(trained.result.policy)
    assert resumed.policy.provenance["merits"] == trained.provenance["merits"]


@pytest.mark.slow
def test_curves_of_every_seed_are_written(trained: Training) -> None:
    assert len(list((trained.folder / "tensorboard").glob("seed*/events.*"))) == 2


@pytest.mark.slow
def test_a_run_does_not_go_on_with_other_settings_or_twins(trained: Training) -> None:
    with pytest.raises(TrainingError, match="other settings"):
        train([TWIN], replace(BRIEF, gamma=0.9), folder=trained.folder)
    with pytest.raises(TrainingError, match="other twins"):
        train([TWIN], BRIEF, judged_on=[OTHER], folder=trained.folder)


def test_a_run_of_other_seeds_and_settings_is_not_overwritten(tmp_path: Path) -> None:
    facts = {"seed": 1, "recipe": "one", "versions": versions_here()}
    save_policy(tmp_path / "seeds/1", slot_policy(provenance=facts), BRIEF)
    assert _kept_seeds(tmp_path, range(2, 4), "one") == {}
    assert list(_kept_seeds(tmp_path, range(1, 4), "one")) == [1]
    with pytest.raises(TrainingError, match="other settings"):
        _kept_seeds(tmp_path, range(2, 4), "another")


@pytest.mark.slow
def test_a_run_does_not_go_on_by_other_versions(
    trained: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{train.__module__}.versions_here", lambda: {"numpy": "0.1"})
    with pytest.raises(TrainingError, match=r"other versions: numpy .* and not 0\.1"):
        train([TWIN], TWO_SEEDS, folder=trained.folder)


@pytest.mark.slow
def test_the_seed_is_chosen_by_twins_it_was_not_trained_on(judged: TrainingResult) -> None:
    provenance = judged.policy.provenance
    assert provenance["judged_on"] == ["other"]
    assert list(judged.evaluation["static"]) == ["other", "small"]
    assert set(provenance["allowed"]) == {"other", "small"}


@pytest.mark.slow
def test_the_merit_of_the_kept_seed_can_be_measured_again(judged: TrainingResult) -> None:
    selection = make_selection(
        [TWIN], [OTHER], BRIEF.settings, slack=BRIEF.slack,
        episodes=BRIEF.evaluation_episodes, seed=BRIEF.seed, as_much_as=Arm.of_partition(),
    )  # fmt: skip
    merit = selection.merit(arm_of_policy(judged.policy))
    provenance = judged.policy.provenance
    kept = provenance["seeds"].index(provenance["seed"])
    assert provenance["merits"][kept] == pytest.approx(merit.value)
    assert provenance["scores_low"][kept] == pytest.approx(merit.low)


@pytest.mark.slow
def test_synthetic_scenarios_are_trained_on_but_not_judged() -> None:
    result = train([TWIN], replace(BRIEF, composing=SyntheticScenarioSettings(per_twin=1)))
    assert list(result.evaluation["ppo"]) == ["small"]
    provenance = result.policy.provenance
    assert list(provenance["twins"]) == ["small"]
    assert list(provenance["composed"]) == ["composed-1"]
    assert set(provenance["prices"]) == {"small", "composed-1"}


@pytest.mark.slow
def test_a_training_of_the_critic_alone_keeps_partition() -> None:
    critic_only = replace(BRIEF, critic_rollouts=1_000)
    evaluation = train([TWIN], critic_only, rules={"partition": Arm.of_partition()}).evaluation
    assert evaluation["ppo"] == evaluation["partition"]


@pytest.mark.slow
def test_a_policy_can_read_the_phases_of_the_slots(tmp_path: Path) -> None:
    result = train([TWIN], replace(BRIEF, features=PHASES.name), folder=tmp_path / "run")
    policy = result.policy
    assert policy.features is PHASES
    assert policy.w0.shape[1] == PHASES.size
    save_policy(tmp_path / "saved", policy, BRIEF)
    kept = load_run(tmp_path / "saved")
    assert (kept.features, weights(kept)) == (PHASES, weights(policy))
    export_policy(policy, tmp_path / "policy.onnx")
    on_node = load_policy(tmp_path / "policy.onnx")
    assert on_node.metadata.features is PHASES
    rng = np.random.default_rng(1)
    observations = rng.exponential(0.5, (50, OBSERVATION_SIZE)).astype(np.float32)
    for observation in observations:
        np.testing.assert_allclose(
            on_node.logits(observation), policy.logits(observation[None])[0], atol=1e-4
        )
    others = observations.copy()
    others[:, BASIC.size :] += 1.0
    assert not np.allclose(policy.logits(others), policy.logits(observations), atol=1e-3)


@pytest.mark.slow
def test_training_stops_when_its_time_is_over() -> None:
    began_s = time.monotonic()
    result = train(
        [TWIN],
        replace(BRIEF, total_steps=8_000_000, max_seconds=2.0),
    )
    assert result.policy.provenance["steps"] < 4_000_000
    assert time.monotonic() - began_s < 60.0


def test_settings_that_cannot_run_are_refused() -> None:
    with pytest.raises(TrainingError, match="multiple"):
        Args(n_envs=100, n_steps=3)
    with pytest.raises(TrainingError, match="positive"):
        Args(seeds=0)
    with pytest.raises(TrainingError, match=r"no features 'moon'.*basic, phases"):
        Args(features="moon")
    with pytest.raises(TrainingError, match="no twin"):
        train([])
