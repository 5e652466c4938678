"""A search of a rule's thresholds, seconds long, finds a better rule, and the same one again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import as_values
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.controllers.rule import RuleThresholds
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.env.objective import Slack
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.testing import HOG, small_twin
from stallward.training.errors import TrainingError
from stallward.training.selection.rollout import evaluate, rollout_steps
from stallward.training.selection.selection import make_constraints, worst_low
from stallward.training.tuning.search import tune
from stallward.training.tuning.settings import TUNABLE, TuneResult, TuneSettings, as_act

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
def tuned() -> TuneResult:
    return tune("rule", [TWIN], SETTINGS)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_search_does_better_than_the_defaults_and_counts_its_steps(
    tuned: TuneResult,
) -> None:
    assert isinstance(tuned.thresholds, RuleThresholds)
    assert worst_low(tuned.outcomes) > worst_low(tuned.default), (
        "on nodes that had no part in the search"
    )
    assert 0 < tuned.steps <= SETTINGS.seeds * SETTINGS.total_steps
    assert tuned.provenance["decisions"] == tuned.steps
    assert tuned.provenance["twins"] == ["small"]
    assert len(tuned.provenance["generations"]) == 2
    assert min(tuned.provenance["generations"]) > 1


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_search_with_the_highest_merit_is_kept(
    tuned: TuneResult,
) -> None:
    provenance = tuned.provenance
    merits = [provenance["default_merit"], *provenance["merits_by_seed"]]
    assert len(set(provenance["scores_by_seed_where_searched"])) == 2, (
        "both seeds made the same search"
    )
    assert provenance["merits_by_seed"] == provenance["scores_low_by_seed"], (
        "there are no validation twins"
    )
    assert provenance["kept"] == ["defaults", "seed 1", "seed 2"][merits.index(max(merits))]
    other = tune("rule", [TWIN], replace(SETTINGS, seeds=1), judged_on=[OTHER])
    assert list(other.outcomes) == ["other", "small"]
    assert other.provenance["judged_on"] == ["other"]
    assert other.provenance["merits_by_seed"] != other.provenance["scores_low_by_seed"]


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_same_seed_finds_the_same_rule(tuned: TuneResult) -> None:
    again = tune("rule", [TWIN], replace(SETTINGS, seeds=1)).provenance
    for figures in ("scores_by_seed_where_searched", "merits_by_seed", "generations"):
        assert again[figures] == tuned.provenance[figures][:1], "not even the same scores"


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_search_stops_when_its_time_is_over_and_reports_its_progress() -> None:
    reports: list[tuple[str, float]] = []
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
    result = tune("pi", [TWIN], settings, lambda message, share: reports.append((message, share)))
    assert result.steps < settings.total_steps
    assert reports[-1] == ("done", 1.0)
    assert all(0.0 <= share <= 1.0 for _, share in reports)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_better_numbers_of_partition_are_found_or_its_own_are_kept() -> None:
    brief = replace(SETTINGS, total_steps=6_000, seeds=1)
    result = tune("partition", [TWIN], brief)
    provenance = result.provenance
    assert isinstance(result.thresholds, PartitionThresholds)
    for name in TUNABLE["partition"].not_searched:
        default = getattr(PartitionThresholds(), name)
        assert getattr(result.thresholds, name) == pytest.approx(default), name
    assert min(provenance["generations"]) > 1
    best = max(provenance["merits_by_seed"])
    if provenance["kept"] == "defaults":
        assert result.thresholds == PartitionThresholds()
        assert result.outcomes == result.default
        assert best <= provenance["default_merit"]
    else:
        assert result.thresholds != PartitionThresholds()
        assert best > provenance["default_merit"]
    again = tune("partition", [TWIN], brief)
    assert as_values(again.thresholds) == as_values(result.thresholds)
    assert again.outcomes == result.outcomes


def test_what_the_twin_cannot_tell_is_not_searched() -> None:
    partition = TUNABLE["partition"]
    names = np.array(list(as_values(PartitionThresholds())))
    kept = set(names[~partition.searched])
    assert kept == set(partition.not_searched)
    assert {"thrash_stall_share", "least_disk_mib_s"} < kept
    assert "turn_s" not in kept
    assert TUNABLE["rule"].searched.all()


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
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


def test_a_controller_without_thresholds_and_no_twins_are_refused() -> None:
    with pytest.raises(TrainingError, match="no rule that can be tuned"):
        tune("latd", [TWIN], SETTINGS)
    with pytest.raises(TrainingError, match="no twin"):
        tune("rule", [], SETTINGS)
