"""The search of a rule's thresholds, seconds long: it finds a better rule, and repeats itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import as_values
from stallward.agent.controllers.rule import RuleThresholds
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.env.objective import Slack
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.testing import HOG, small_twin
from stallward.training.errors import TrainingError
from stallward.training.selection.rollout import evaluate, rollout_steps
from stallward.training.selection.selection import worst_low
from stallward.training.selection.static_settings import make_constraints
from stallward.training.tuning.search import tune
from stallward.training.tuning.settings import TuneResult, TuneSettings, as_act

TWIN = small_twin()
SETTINGS = TuneSettings(
    total_steps=25_000,
    episodes=16,
    seconds=4.0,
    evaluation_episodes=16,
    evaluation_seconds=4.0,
    finalists=2,
    seeds=2,
    judged_episodes=16,
)


PAIR = small_twin(HOG, HOG)
OTHER = replace(PAIR, scenario=replace(PAIR.scenario, name="other"))


@pytest.fixture(scope="module")
def found() -> TuneResult:
    return tune("rule", [TWIN], SETTINGS)


@pytest.mark.slow
def test_a_search_does_no_worse_than_the_defaults_and_says_what_it_spent(
    found: TuneResult,
) -> None:
    assert isinstance(found.thresholds, RuleThresholds)
    assert worst_low(found.outcomes) > worst_low(found.default), "on nodes that chose neither"
    assert 0 < found.steps <= SETTINGS.seeds * SETTINGS.total_steps
    assert found.provenance["decisions"] == found.steps
    assert found.provenance["twins"] == ["small"]
    assert len(found.provenance["generations"]) == 2
    assert min(found.provenance["generations"]) > 1


@pytest.mark.slow
def test_of_several_searches_that_is_kept_which_is_chosen_as_policies_are(
    found: TuneResult,
) -> None:
    said = found.provenance
    merits = [said["default_merit"], *said["merits_by_seed"]]
    assert len(set(said["scores_by_seed_where_searched"])) == 2, "searches of their own"
    assert said["merits_by_seed"] == said["scores_low_by_seed"], "there are no validation twins"
    assert said["kept"] == ["defaults", "seed 1", "seed 2"][merits.index(max(merits))]
    other = tune("rule", [TWIN], SETTINGS, judged_on=[OTHER])
    assert list(other.outcomes) == ["other", "small"]
    assert other.provenance["judged_on"] == ["other"]
    assert other.provenance["merits_by_seed"] != other.provenance["scores_low_by_seed"]


@pytest.mark.slow
def test_the_same_seed_finds_the_same_rule(found: TuneResult) -> None:
    again = tune("rule", [TWIN], SETTINGS)
    assert as_values(again.thresholds) == as_values(found.thresholds)
    assert again.outcomes == found.outcomes


@pytest.mark.slow
def test_a_search_stops_when_its_time_is_over_and_reports_its_way() -> None:
    said: list[tuple[str, float]] = []
    settings = TuneSettings(
        max_seconds=0.5,
        episodes=8,
        seconds=2.0,
        evaluation_episodes=8,
        evaluation_seconds=2.0,
        finalists=1,
        seed=2,
        seeds=1,
        judged_episodes=8,
    )
    found = tune("pi", [TWIN], settings, lambda message, share: said.append((message, share)))
    assert found.steps < settings.total_steps
    assert said[-1] == ("done", 1.0)
    assert all(0.0 <= share <= 1.0 for _, share in said)


def test_steps_are_counted_as_they_are_spent() -> None:
    calls = 0

    class Counting:
        def act(self, observations: NDArray[np.float32], elapsed_s: float) -> NDArray[np.int64]:
            nonlocal calls
            assert observations.shape == (3, OBSERVATION_SIZE)
            assert elapsed_s == (0.0 if calls == 0 else 0.2)
            calls += 1
            return np.zeros((3, 9), dtype=np.int64)

        def reason(self) -> str:
            return ""

    settings = SimulationSettings()
    act = as_act(Counting(), settings.ticks_per_action)
    constraints, _ = make_constraints([TWIN], settings, Slack(), seed=1)
    evaluate(act, [TWIN], settings, constraints=constraints, episodes=3, seed=1, seconds=4.0)
    assert calls == rollout_steps(4.0, settings)


def test_what_cannot_be_tuned_is_refused() -> None:
    with pytest.raises(TrainingError, match="no rule that can be tuned"):
        tune("latd", [TWIN], SETTINGS)
    with pytest.raises(TrainingError, match="no twin"):
        tune("rule", [], SETTINGS)
