"""The training recipe, a few seconds long: it runs, stops on time and exports what it says."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stallward.env.objective import Slack, constrained_score
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.testing import small_twin
from stallward.models.registry import load_policy
from stallward.training.errors import TrainingError
from stallward.training.export.onnx_file import export_policy
from stallward.training.imitation.teacher import Teaching
from stallward.training.network.arrays import TrainedPolicy
from stallward.training.ppo.args import Args
from stallward.training.ppo.train import train
from stallward.training.selection.rollout import Act, Outcome, constant, evaluate
from stallward.training.selection.selection import (
    Judge,
    MakeAct,
    Merit,
    Selection,
    make_selection,
    memoryless,
    worst_low,
)
from stallward.training.selection.static_settings import make_constraints
from stallward.training.synthetic_scenarios import Composing

TWIN = small_twin()
OTHER = replace(TWIN, scenario=replace(TWIN.scenario, name="other", zone_bytes=480 << 20))
SETTINGS = SimulationSettings()
TAUGHT = Args(
    teaching=Teaching(nodes=12, lessons=5, unused_lessons=2, settings=6, ahead_steps=10),
    pupil_lessons=2,
    imitation_steps=30,
    composing=Composing(per_twin=0),
)


def test_a_short_training_runs_and_its_policy_exports(tmp_path: Path) -> None:
    stages: list[tuple[str, float]] = []
    args = replace(
        TAUGHT, total_steps=8192, n_envs=64, n_steps=16, batch_size=256, evaluation_episodes=16,
        seeds=2,
    )  # fmt: skip
    nodes: list[int] = []

    def idle(count: int) -> Act:
        nodes.append(count)
        return constant(np.zeros(9, dtype=np.int64))

    result = train(
        [TWIN], args, lambda stage, share: stages.append((stage, share)), rules={"rule": idle}
    )
    assert set(result.evaluation) == {"ppo", "static", "none", "rule"}
    assert result.evaluation["rule"] == result.evaluation["none"]
    assert nodes == [16], "made once, for all nodes of the scenario"
    assert set(result.evaluation["ppo"]) == {"small"}
    assert stages[-1] == ("done", 1.0)
    assert any(re.search(r"^seed 2: [\d,]+ decisions, score -?\d", stage) for stage, _ in stages)
    assert all(0.0 <= share <= 1.0 for _, share in stages)
    provenance = result.policy.provenance
    assert provenance["steps"] == 8192
    assert len(provenance["merits"]) == 2
    assert provenance["merits"] == provenance["scores_low"], "there are no others to judge by"
    assert provenance["seed"] == 1 + int(np.argmax(provenance["merits"]))
    shown = result.evaluation["ppo"]["small"].score_low
    assert shown != max(provenance["scores_low"]), "other draws than those that chose it"
    assert (result.policy.low < result.policy.high).all()
    assert provenance["judged_on"] == ["small"]
    assert set(provenance["teacher"]["small"]) == {"progress", "window_violated", "excess", "slow"}
    export_policy(result.policy, tmp_path / "p.onnx")
    said = (tmp_path / "p.md").read_text()
    assert "| small | static |" in said
    assert "| small | rule |" in said
    assert said.count("    line [") == 2, "the curve of each seed"
    assert load_policy(tmp_path / "p.onnx").metadata.provenance["twins"].keys() == {"small"}


BRIEF = replace(
    TAUGHT, total_steps=2048, n_envs=64, n_steps=16, batch_size=256, evaluation_episodes=8
)


def weights(policy: TrainedPolicy) -> bytes:
    return b"".join(array.tobytes() for array in (policy.w0, policy.w1, policy.w2, policy.b2))


def test_the_same_seed_gives_the_same_policy_and_another_one_another() -> None:
    one, two, other = (train([TWIN], replace(BRIEF, seed=seed)).policy for seed in (1, 1, 2))
    assert weights(one) == weights(two)
    assert weights(one) != weights(other)


def test_an_interrupted_run_goes_on_with_the_seeds_that_are_missing(tmp_path: Path) -> None:
    whole = train([TWIN], replace(BRIEF, seeds=2), folder=tmp_path / "whole")
    train([TWIN], BRIEF, folder=tmp_path / "run")
    before = (tmp_path / "run/seeds/1/policy.npz").stat().st_mtime_ns
    said: list[str] = []
    resumed = train(
        [TWIN],
        replace(BRIEF, seeds=2),
        folder=tmp_path / "run",
        report=lambda stage, _share: said.append(stage),
    )
    assert not any(stage.startswith("teaching") for stage in said), "that was done"
    assert (tmp_path / "run/seeds/1/policy.npz").stat().st_mtime_ns == before
    assert weights(resumed.policy) == weights(whole.policy)
    assert resumed.policy.provenance["merits"] == whole.policy.provenance["merits"]
    assert list((tmp_path / "run/tensorboard").glob("seed*/events.*")), "curves are written"
    with pytest.raises(TrainingError, match="other settings"):
        train([TWIN], replace(BRIEF, gamma=0.9), folder=tmp_path / "run")
    with pytest.raises(TrainingError, match="other twins"):
        train([TWIN], BRIEF, judged_on=[OTHER], folder=tmp_path / "run")


def test_how_long_a_seed_learns_is_decided_as_which_one_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, str, str]] = []

    def merit(self: Selection, _make: MakeAct) -> Merit:
        assert self.known is not None
        names = [one.twins[0].scenario.name for one in (self.strangers, self.known)]
        asked.append((self.known.episodes, *names))  # type: ignore[arg-type]
        return Merit(value=float(len(asked)), low=0.0)

    monkeypatch.setattr(Selection, "merit", merit)
    found = train([TWIN], BRIEF, judged_on=[OTHER])
    assert set(asked[:-1]) == {(128, "other", "small")}, "while it learns"
    assert asked[-1] == (8, "other", "small"), "between the seeds"
    assert found.policy.provenance["kept_after"] == BRIEF.total_steps, "each look was better"


def test_strangers_count_as_much_as_all_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    lows = {"other": 0.4, "tight": 0.1, "small": 0.6, "more": 0.2}

    def outcomes(self: Judge, _make: MakeAct) -> dict[str, Outcome]:
        plain = Outcome(
            score=1.0, score_low=0.0, progress=1.0, window_violated=0.0, excess=0.0, slow=0.0,
            switches_per_s=0.0,
        )  # fmt: skip
        names = [twin.scenario.name for twin in self.twins]
        return {name: replace(plain, score_low=lows[name]) for name in names}

    monkeypatch.setattr(Judge, "outcomes", outcomes)
    judge = make_selection([TWIN], [], SETTINGS, slack=Slack(), episodes=8, seed=1).strangers

    def of(*names: str) -> Judge:
        named = [replace(TWIN, scenario=replace(TWIN.scenario, name=name)) for name in names]
        return replace(judge, twins=tuple(named))

    idle = memoryless(constant(np.zeros(9, dtype=np.int64)))
    both = Selection(strangers=of("other", "tight"), known=of("small", "more"))
    found = both.merit(idle)
    assert (found.value, found.low) == pytest.approx((0.5 * 0.1 + 0.5 * 0.4, 0.1))
    alone = Selection(strangers=of("other", "tight"))
    assert alone.merit(idle) == Merit(value=0.1, low=0.1)


def test_the_seed_is_chosen_by_twins_it_was_not_trained_on() -> None:
    result = train([TWIN], replace(BRIEF, seeds=2), judged_on=[OTHER])
    assert result.policy.provenance["judged_on"] == ["other"]
    assert list(result.evaluation["static"]) == ["other", "small"]
    assert set(result.policy.provenance["allowed"]) == {"other", "small"}


def test_composed_scenarios_are_trained_on_but_not_judged() -> None:
    result = train([TWIN], replace(BRIEF, composing=Composing(per_twin=1)))
    assert list(result.evaluation["ppo"]) == ["small"]
    provenance = result.policy.provenance
    assert list(provenance["twins"]) == ["small"]
    assert list(provenance["composed"]) == ["composed-1"]
    assert set(provenance["prices"]) == {"small", "composed-1"}


def test_a_policy_is_as_good_as_in_its_worst_scenario() -> None:
    tight = replace(TWIN, scenario=replace(TWIN.scenario, name="tight", zone_bytes=300 << 20))
    selection = make_selection([TWIN, tight], [], SETTINGS, slack=Slack(), episodes=64, seed=3)
    idle = selection.outcomes(memoryless(constant(np.zeros(9, dtype=np.int64))))
    assert idle["tight"].score < idle["small"].score
    assert worst_low(idle) == idle["tight"].score_low


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
        for a in (statics.best(constraints), np.zeros(9, dtype=np.int64))
    ]  # fmt: skip
    assert scores[0].score > scores[1].score
    assert all(s.score_low <= s.score for s in scores)


def test_with_ample_memory_nothing_is_suffered_beyond_it() -> None:
    roomy = replace(TWIN, scenario=replace(TWIN.scenario, zone_bytes=8 << 30))
    constraints, _ = make_constraints([roomy], SETTINGS, Slack(), seed=1)
    idle = constant(np.zeros(9, dtype=np.int64))
    found = evaluate(
        idle, [roomy], SETTINGS, constraints=constraints, episodes=64, seed=5, seconds=30.0
    )
    assert found.excess == pytest.approx(0.0, abs=0.02)
    assert 0.0 < found.slow < 0.01, "beyond 1.15 times the p99 are fewer than a hundredth"
    assert found.score == pytest.approx(found.progress, abs=0.02)


def test_what_no_setting_avoids_is_allowed() -> None:
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
    assert hard[1] > 0.5, "nor does it answer as fast as it usually does"
    assert constraints.as_json(["a", "b"])["b"]["slow"] == hard[2]


def test_what_is_suffered_beyond_the_allowed_costs_score() -> None:
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
