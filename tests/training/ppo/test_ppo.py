"""The training recipe, a few seconds long, runs, stops in time and exports its policy."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallward.env.objective import Slack, constrained_score
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.testing import small_twin
from stallward.models.registry import load_policy
from stallward.training.errors import TrainingError
from stallward.training.export.onnx_file import export_policy
from stallward.training.imitation.teacher import TeacherSettings
from stallward.training.network.arrays import TrainedPolicy, load_policy_arrays
from stallward.training.ppo.args import Args, TrainingResult
from stallward.training.ppo.train import train
from stallward.training.selection.rollout import Act, constant, evaluate
from stallward.training.selection.selection import Merit, make_selection, memoryless, worst_low
from stallward.training.selection.static_settings import make_constraints
from stallward.training.synthetic_scenarios import SyntheticScenarioSettings

TWIN = small_twin()
OTHER = replace(TWIN, scenario=replace(TWIN.scenario, name="other", zone_bytes=480 << 20))
SETTINGS = SimulationSettings()
BRIEF = Args(
    teaching=TeacherSettings(nodes=12, lessons=5, unused_lessons=2, settings=6, ahead_steps=10),
    pupil_lessons=2,
    imitation_steps=30,
    composing=SyntheticScenarioSettings(per_twin=0),
    total_steps=2048,
    n_envs=64,
    n_steps=16,
    batch_size=256,
    evaluation_episodes=8,
)
IDLE = np.zeros(9, dtype=np.int64)


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


@pytest.fixture(scope="module", autouse=True)
def one_processor() -> Iterator[None]:
    """Train one seed after the other, because a process for each would import torch first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _process: {0})
        yield


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
        replace(BRIEF, seeds=2),
        lambda stage, share: stages.append((stage, share)),
        rules={"rule": idle},
        folder=folder,
    )
    return Training(result=result, folder=folder, stages=stages, nodes_of_rule=nodes)


@pytest.fixture(scope="module")
def judged() -> TrainingResult:
    """A training of two seeds. A twin that neither was trained on decides which is kept."""
    return train([TWIN], replace(BRIEF, seeds=2), judged_on=[OTHER])


def weights(policy: TrainedPolicy) -> bytes:
    return b"".join(array.tobytes() for array in (policy.w0, policy.w1, policy.w2, policy.b2))


def weights_of_seed(folder: Path, seed: int) -> bytes:
    return weights(load_policy_arrays(folder / "seeds" / str(seed)))


@pytest.mark.slow
def test_the_policy_is_evaluated_beside_a_static_setting_no_control_and_rules(
    trained: Training,
) -> None:
    evaluation = trained.result.evaluation
    assert set(evaluation) == {"ppo", "static", "none", "rule"}
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
def test_provenance_names_the_steps_the_twins_and_the_teacher(trained: Training) -> None:
    assert trained.provenance["steps"] == BRIEF.total_steps
    assert trained.provenance["judged_on"] == ["small"]
    figures = trained.provenance["teacher"]["small"]
    assert set(figures) == {"progress", "window_violated", "excess", "slow"}


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
    assert "| small | static |" in card
    assert "| small | rule |" in card
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
    parallel = train([TWIN], replace(BRIEF, seeds=2))
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
    first_seed = interrupted / "seeds/1/policy.npz"
    before = first_seed.stat().st_mtime_ns
    stages: list[str] = []
    resumed = train(
        [TWIN],
        replace(BRIEF, seeds=2),
        folder=interrupted,
        report=lambda stage, _share: stages.append(stage),
    )
    assert not any(stage.startswith("collecting demonstrations") for stage in stages), (
        "they were collected again"
    )
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
        episodes=BRIEF.evaluation_episodes, seed=BRIEF.seed,
    )  # fmt: skip
    merit = selection.merit(memoryless(judged.policy.act))
    provenance = judged.policy.provenance
    kept = provenance["seeds"].index(provenance["seed"])
    assert provenance["merits"][kept] == pytest.approx(merit.value)
    assert provenance["scores_low"][kept] == pytest.approx(merit.low)


@pytest.mark.slow
def test_a_training_that_diverges_keeps_an_earlier_actor() -> None:
    diverging = replace(BRIEF, total_steps=8 * 1024, critic_rollouts=2, learning_rate=5.0)
    result = train([TWIN], diverging, judged_on=[OTHER])
    assert result.policy.provenance["steps"] == diverging.total_steps
    assert result.policy.provenance["kept_after"] <= 3 * 1024, "the actor learns from then on"


@pytest.mark.slow
def test_validation_twins_count_as_much_as_all_training_twins() -> None:
    tight, roomy = (
        replace(TWIN, scenario=replace(TWIN.scenario, name=name, zone_bytes=mib << 20))
        for name, mib in (("tight", 300), ("roomy", 900))
    )
    selection = make_selection(
        [TWIN, roomy], [OTHER, tight], SETTINGS, slack=Slack(), episodes=16, seed=1
    )
    idle = memoryless(constant(IDLE))
    lows = {name: outcome.score_low for name, outcome in selection.outcomes(idle).items()}
    assert len(set(lows.values())) == 4, "two twins have the same score"
    low = min(lows["other"], lows["tight"])
    value = 0.5 * low + 0.5 * (lows["small"] + lows["roomy"]) / 2
    merit = selection.merit(idle)
    assert (merit.value, merit.low) == pytest.approx((value, low))


def test_without_validation_twins_the_training_twins_are_all_that_counts() -> None:
    selection = make_selection([TWIN], [], SETTINGS, slack=Slack(), episodes=8, seed=1)
    idle = memoryless(constant(IDLE))
    low = selection.outcomes(idle)["small"].score_low
    assert selection.merit(idle) == Merit(value=low, low=low)


def test_a_selection_with_other_nodes_keeps_its_twins() -> None:
    selection = make_selection([TWIN], [OTHER], SETTINGS, slack=Slack(), episodes=8, seed=1)
    idle = memoryless(constant(IDLE))
    elsewhere = selection.with_nodes(16, seed=2)
    assert elsewhere.judged_on() == selection.judged_on()
    assert elsewhere.allowed() == selection.allowed()
    assert elsewhere.merit(idle) != selection.merit(idle)


@pytest.mark.slow
def test_synthetic_scenarios_are_trained_on_but_not_judged() -> None:
    result = train([TWIN], replace(BRIEF, composing=SyntheticScenarioSettings(per_twin=1)))
    assert list(result.evaluation["ppo"]) == ["small"]
    provenance = result.policy.provenance
    assert list(provenance["twins"]) == ["small"]
    assert list(provenance["composed"]) == ["composed-1"]
    assert set(provenance["prices"]) == {"small", "composed-1"}


def test_a_policy_is_as_good_as_in_its_worst_scenario() -> None:
    tight = replace(TWIN, scenario=replace(TWIN.scenario, name="tight", zone_bytes=300 << 20))
    selection = make_selection([TWIN, tight], [], SETTINGS, slack=Slack(), episodes=64, seed=3)
    idle = selection.outcomes(memoryless(constant(IDLE)))
    assert idle["tight"].score < idle["small"].score
    assert worst_low(idle) == idle["tight"].score_low


@pytest.mark.slow
def test_training_stops_when_its_time_is_over() -> None:
    began_s = time.monotonic()
    result = train(
        [TWIN],
        replace(BRIEF, total_steps=8_000_000, max_seconds=2.0),
    )
    assert result.policy.provenance["steps"] < 4_000_000
    assert time.monotonic() - began_s < 60.0


def test_the_best_static_setting_beats_doing_nothing() -> None:
    constraints, statics = make_constraints([TWIN], SETTINGS, Slack(windows=0.05), seed=1)
    assert constraints.allowed.shape == (3, 1)
    assert constraints.allowed[0, 0] < 0.5
    scores = [
        evaluate(
            constant(a), [TWIN], SETTINGS, constraints=constraints, episodes=32, seed=2,
            seconds=20.0,
        )
        for a in (statics.best(constraints), IDLE)
    ]  # fmt: skip
    assert scores[0].score > scores[1].score
    assert all(s.score_low <= s.score for s in scores)


def test_with_ample_memory_nothing_costs_score() -> None:
    roomy = replace(TWIN, scenario=replace(TWIN.scenario, zone_bytes=8 << 30))
    constraints, _ = make_constraints([roomy], SETTINGS, Slack(), seed=1)
    outcome = evaluate(
        constant(IDLE),
        [roomy],
        SETTINGS,
        constraints=constraints,
        episodes=64,
        seed=5,
        seconds=30.0,
    )
    assert outcome.excess == pytest.approx(0.0, abs=0.02)
    assert 0.0 < outcome.slow < 0.01, "less than a hundredth is slower than 1.15 times the p99"
    assert outcome.score == pytest.approx(outcome.progress, abs=0.02)


def test_violations_that_no_setting_avoids_are_allowed() -> None:
    scenario = TWIN.scenario
    hopeless = replace(TWIN, scenario=replace(scenario, name="hopeless", zone_bytes=120 << 20))
    slack = Slack(windows=0.01)
    constraints, statics = make_constraints([TWIN, hopeless], SETTINGS, slack, seed=1)
    assert statics.suffered.shape == (3, len(statics.actions), 2)
    least = statics.suffered.min(axis=1)
    ample = constraints.ample.windows
    easy, hard = constraints.allowed.T
    assert easy[0] == pytest.approx(max(ample[0] + 0.01, least[0, 0] + 0.005))
    assert hard[0] == pytest.approx(least[0, 1] + 0.005), "the application alone does not fit"
    assert hard[0] > ample[1] + 0.1
    assert hard[1] > 0.5, "it does not answer as fast as usual, either"
    assert constraints.as_json(["a", "b"])["b"]["slow"] == hard[2]


def test_violations_beyond_those_allowed_cost_score() -> None:
    progress, scenario = np.array([0.6, 0.8]), np.zeros(2, dtype=np.int64)
    allowed = np.array([[0.01], [0.05], [0.01]])
    within = np.array([[0.02, 0.0], [0.0, 0.1], [0.01, 0.01]])
    assert constrained_score(progress, within, scenario, allowed)[0] == pytest.approx(0.7)
    beyond = within + np.array([[0.01], [0.0], [0.0]])
    assert constrained_score(progress, beyond, scenario, allowed)[0] == pytest.approx(0.6)
    longer = within + np.array([[0.0], [0.05], [0.0]])
    assert constrained_score(progress, longer, scenario, allowed)[0] == pytest.approx(0.6)


def test_settings_that_cannot_run_are_refused() -> None:
    with pytest.raises(TrainingError, match="multiple"):
        Args(n_envs=100, n_steps=3)
    with pytest.raises(TrainingError, match="positive"):
        Args(seeds=0)
    with pytest.raises(TrainingError, match="no twin"):
        train([])
