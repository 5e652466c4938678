"""Policies, rules and settings are compared on the same nodes over the same seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.desired import SLOTS
from stallward.env.objective import SUFFERED, Slack, constrained_score
from stallward.env.simulation.nuisance import NO_NUISANCE
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.testing import small_twin
from stallward.training.selection.rollout import (
    IDLE,
    RULE_TICKS,
    SET_POINT_TICKS,
    Arm,
    constant,
    evaluate,
)
from stallward.training.selection.selection import (
    Merit,
    make_constraints,
    make_selection,
    worst_low,
)

TWIN = small_twin()
OTHER = replace(TWIN, scenario=replace(TWIN.scenario, name="other", zone_bytes=480 << 20))
SETTINGS = SimulationSettings()


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_validation_twins_count_as_much_as_all_training_twins() -> None:
    tight, roomy = (
        replace(TWIN, scenario=replace(TWIN.scenario, name=name, zone_bytes=mib << 20))
        for name, mib in (("tight", 300), ("roomy", 900))
    )
    selection = make_selection(
        [TWIN, roomy], [OTHER, tight], SETTINGS, slack=Slack(), episodes=16, seed=1
    )
    idle = Arm.holding(IDLE)
    lows = {name: outcome.score_low for name, outcome in selection.outcomes(idle).items()}
    assert len(set(lows.values())) == 4, "two twins have the same score"
    low = min(lows["other"], lows["tight"])
    value = 0.5 * low + 0.5 * (lows["small"] + lows["roomy"]) / 2
    merit = selection.merit(idle)
    assert (merit.value, merit.low) == pytest.approx((value, low))


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_without_validation_twins_the_training_twins_are_all_that_counts() -> None:
    selection = make_selection([TWIN], [], SETTINGS, slack=Slack(), episodes=8, seed=1)
    idle = Arm.holding(IDLE)
    low = selection.outcomes(idle)["small"].score_low
    assert selection.merit(idle) == Merit(value=low, low=low)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_selection_with_other_nodes_keeps_its_twins() -> None:
    selection = make_selection([TWIN], [OTHER], SETTINGS, slack=Slack(), episodes=8, seed=1)
    idle = Arm.holding(IDLE)
    elsewhere = selection.with_nodes(16, seed=2)
    assert elsewhere.judged_on() == selection.judged_on()
    assert elsewhere.allowed() == selection.allowed()
    assert elsewhere.merit(idle) != selection.merit(idle)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_as_much_is_allowed_as_under_the_controller_that_is_compared_with() -> None:
    idle, paused = Arm.holding(IDLE), Arm.holding(np.array([1, 5] * SLOTS + [0]))
    strict = make_selection([TWIN], [], SETTINGS, slack=Slack(), episodes=8, seed=1)
    lenient = make_selection(
        [TWIN], [], SETTINGS, slack=Slack(), episodes=8, seed=1, as_much_as=idle
    )
    careful = make_selection(
        [TWIN], [], SETTINGS, slack=Slack(), episodes=8, seed=1, as_much_as=paused
    )
    before, after = strict.allowed()["small"], lenient.allowed()["small"]
    assert all(after[name] > before[name] for name in SUFFERED)
    assert careful.allowed() == strict.allowed(), "what was allowed already stays so"
    suffered = lenient.outcomes(idle)["small"]
    assert suffered.window_violated == pytest.approx(after["window_violated"], rel=0.5)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_policy_is_as_good_as_in_its_worst_scenario() -> None:
    tight = replace(TWIN, scenario=replace(TWIN.scenario, name="tight", zone_bytes=300 << 20))
    selection = make_selection([TWIN, tight], [], SETTINGS, slack=Slack(), episodes=64, seed=3)
    idle = selection.outcomes(Arm.holding(IDLE))
    assert idle["tight"].score < idle["small"].score
    assert worst_low(idle) == idle["tight"].score_low


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
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


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
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


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
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
    both = within + np.array([[0.01], [0.05], [0.0]])
    assert constrained_score(progress, both, scenario, allowed)[0] == pytest.approx(0.6), (
        "one bad event is charged once"
    )


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_arms_of_both_action_tables_are_compared_over_the_same_seconds() -> None:
    """Where everything fits, partition does nothing, so only the time could differ."""
    roomy = replace(TWIN, scenario=replace(TWIN.scenario, zone_bytes=8 << 30))
    exact = replace(SETTINGS, nuisance=NO_NUISANCE)
    constraints, _ = make_constraints([roomy], exact, Slack(), seed=1)
    idle, partition = (
        evaluate(
            arm.make(8), [roomy], arm.on(exact), constraints=constraints, episodes=8, seed=3,
            seconds=10.0,
        ).as_json()
        for arm in (Arm.holding(IDLE), Arm.of_partition())
    )  # fmt: skip
    assert partition == pytest.approx(idle)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_partition_does_better_than_doing_nothing_where_memory_is_short() -> None:
    selection = make_selection([TWIN], [], SETTINGS, slack=Slack(), episodes=32, seed=2)
    idle, partition = (
        selection.outcomes(arm)["small"] for arm in (Arm.holding(IDLE), Arm.of_partition())
    )
    assert partition.score_low > idle.score
    assert partition.window_violated < idle.window_violated


def test_an_arm_brings_its_table_its_period_and_the_numbers_of_partition() -> None:
    numbers = PartitionThresholds(margin_share=0.2)
    settings = Arm.of_partition(numbers).on(SETTINGS)
    assert (settings.action_table, settings.ticks_per_action) == ("set-points", SET_POINT_TICKS)
    assert settings.partition == numbers
    back = Arm.holding(IDLE).on(settings)
    assert (back.action_table, back.ticks_per_action) == ("levels", RULE_TICKS)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_numbers_of_partition_matter() -> None:
    selection = make_selection([TWIN], [], SETTINGS, slack=Slack(), episodes=16, seed=2)
    usual, timid = (
        selection.outcomes(Arm.of_partition(PartitionThresholds(margin_share=share)))["small"]
        for share in (0.06, 0.4)
    )
    assert timid.progress < usual.progress
