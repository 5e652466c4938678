"""Off-policy estimates are right where the truth is known, and absent where they cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from off_policy_on_twin import RandomLaw, validate_on_twin

from stallward.agent.controllers.excite import ExciteController
from stallward.agent.desired import ACTION_SIZES
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.observation.raw import to_raw
from stallward.agent.registry import make_controller
from stallward.env.recording.node_facts import node_info
from stallward.env.recording.recording import load_recording
from stallward.env.scenario.file import load_scenario
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.env.twin.node import TwinNode
from stallward.evaluation.arms import make_arms
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.blocks.twin import TwinRunner
from stallward.models.registry import find_twin
from stallward.research.off_policy.dataset import LoggedRun, controller_actions, read_logged
from stallward.research.off_policy.estimators import (
    OffPolicyEstimator,
    OffPolicySettings,
    _LeafMeans,
)
from stallward.research.raw_rows import recorded_frames
from stallward.training.errors import DatasetError

TWIN = small_twin()
SETTINGS = OffPolicySettings(trees=20, gamma=0.9, least_ess=15.0)


class Constant:
    """A policy that always takes the same action."""

    def __init__(self, action: list[int], batch: int) -> None:
        self._actions = np.tile(np.array(action, dtype=np.int64), (batch, 1))

    def act(self, observations: NDArray[np.float32], elapsed_s: float) -> NDArray[np.int64]:
        return self._actions

    def reason(self) -> str:
        return ""


def coin_run(ticks: int, seed: int, share: float = 0.5) -> LoggedRun:
    """A bandit that pauses the first slot with probability ``share``: 1 for a pause, else 0."""
    rng = np.random.default_rng(seed)
    paused = rng.random(ticks) < share
    actions = np.zeros((ticks, len(ACTION_SIZES)), dtype=np.int64)
    actions[:, 0] = paused
    return LoggedRun(
        name=f"coin-{seed}",
        observations=rng.random((ticks, OBSERVATION_SIZE)).astype(np.float32),
        actions=actions,
        propensity=np.where(paused, share, 1.0 - share),
        reward=paused + 0.1 * rng.standard_normal(ticks),
        last=np.arange(ticks) == ticks - 1,
        slots=1,
    )


def always(runs: list[LoggedRun], paused: int) -> list[NDArray[np.int64]]:
    actions_of_runs = []
    for run in runs:
        actions = run.actions.copy()
        actions[:, 0] = paused
        actions[:, 5] = 3  # for an absent slot, so it has no effect
        actions_of_runs.append(actions)
    return actions_of_runs


def test_a_value_that_depends_on_the_logged_actions_is_estimated() -> None:
    runs = [coin_run(400, seed) for seed in range(3)]
    estimator = OffPolicyEstimator(runs, SETTINGS)
    assert estimator.behaviour_value.value == pytest.approx(0.5, abs=0.05)
    good, bad = (estimator.value(always(runs, paused)) for paused in (1, 0))
    for value, truth in ((good, 1.0), (bad, 0.0)):
        assert value.doubly_robust is not None
        assert value.doubly_robust.value == pytest.approx(truth, abs=0.15)
        # Where the fit is right to a hundredth, either may be closer by chance.
        assert abs(value.doubly_robust.value - truth) < abs(value.fitted.value - truth) + 0.01
        assert value.agreement == pytest.approx(0.5, abs=0.05)
        assert value.ess == pytest.approx(600.0, rel=0.1)
    difference = estimator.difference(good, bad)
    assert 0.5 < difference.low < difference.value < difference.high


def test_the_policy_that_was_logged_has_the_logged_value() -> None:
    runs = [coin_run(400, 7, share=1.0)]
    value = OffPolicyEstimator(runs, SETTINGS).value([run.actions for run in runs])
    assert value.doubly_robust is not None
    assert value.doubly_robust.value == pytest.approx(1.0, abs=0.03)
    assert value.corrected_ticks == SETTINGS.most_ticks


def test_the_correction_ends_where_the_weights_leave_too_few_samples() -> None:
    runs = [coin_run(400, seed) for seed in range(3)]
    value = OffPolicyEstimator(runs, SETTINGS).value(always(runs, 1))
    # Half of what is left agrees at every further tick: 1200 / 2^k >= 15.
    assert 5 <= value.corrected_ticks <= 7


def test_without_agreement_there_is_no_doubly_robust_estimate() -> None:
    runs = [coin_run(400, 1, share=0.0)]
    value = OffPolicyEstimator(runs, SETTINGS).value(always(runs, 1))
    assert value.doubly_robust is None
    assert (value.ess, value.agreement, value.corrected_ticks) == (0.0, 0.0, 0)


def test_weights_do_not_reach_from_one_run_into_the_next() -> None:
    runs = [coin_run(200, seed, share=1.0) for seed in (1, 2)]
    estimator = OffPolicyEstimator(runs, SETTINGS)
    weights = estimator._weights(np.concatenate(always(runs, 1)))
    for k in (0, 1, 5):
        reaches = weights[k] > 0.0
        assert reaches[: 200 - k].all()
        assert not reaches[200 - k : 200].any()


def test_the_same_seed_estimates_the_same_and_too_little_is_refused() -> None:
    runs = [coin_run(400, 3)]
    first, second = (OffPolicyEstimator(runs, SETTINGS).value(always(runs, 1)) for _ in range(2))
    assert first.fitted == second.fitted
    with pytest.raises(DatasetError, match="excite"):
        OffPolicyEstimator([coin_run(100, 1)])
    with pytest.raises(DatasetError, match="not those"):
        OffPolicyEstimator(runs).value([runs[0].actions[:-1]])


def test_a_leaf_without_a_row_predicts_the_mean_and_nothing_of_another_tree() -> None:
    means = _LeafMeans(np.array([[0, 0], [1, 1]]), nodes=4)
    asked = np.array([[0, 1], [2, 2], [3, 0]])
    assert means.predict(np.array([1.0, 5.0]), asked) == pytest.approx([3.0, 3.0, 2.0])


def test_the_batched_random_policy_is_the_same_as_that_of_the_arm() -> None:
    """Over the outcomes of a tick, the mean of 1/propensity is the number of possible outcomes."""
    law = RandomLaw(20_000, 1, 1)
    law.act()
    _, propensity = law.act()
    outcomes = 2 * ACTION_SIZES[1] * ACTION_SIZES[-1]
    assert (1.0 / propensity).mean() == pytest.approx(outcomes, rel=0.35)
    arm = make_controller("excite")
    assert isinstance(arm, ExciteController)
    assert (law._redraw, law._rest) == (arm.redraw, arm.rest)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_fitted_q_ranks_policies_on_the_twin_correctly() -> None:
    policies = {
        "none": lambda batch: Constant([0] * 9, batch),
        "tight": lambda batch: Constant([0, 4] + [0] * 7, batch),
    }
    rows = validate_on_twin(
        TWIN, policies, repetitions=1, runs=24, seconds=30.0, nodes=16, moments=2,
        settings=OffPolicySettings(trees=20, gamma=0.95),
    )  # fmt: skip
    none, tight = (row for row in rows if row.estimator == "fitted")
    assert tight.truth > none.truth
    assert tight.bias is not None
    assert none.bias is not None
    assert tight.truth + tight.bias > none.truth + none.bias


def test_a_recording_gives_back_the_observations_of_its_node(tmp_path: Path) -> None:
    twin = load_fitted(find_twin("detector-anon"))
    runner = TwinRunner(
        twin=twin, scenario=load_scenario("detector-anon"), node=node_info(tmp_path)
    )
    request = RunRequest(
        condition="together",
        arm=make_arms(["excite"])[0],
        slo_ms=twin.scenario.slo_ms,
        duration_s=6.0,
        burn_in_s=2.0,
        seed=2,
    )
    runner.run_block(request, tmp_path / "run")
    recording = load_recording(tmp_path / "run")
    draw = twin.draws[int(twin.choose(np.random.default_rng(1), 1)[0])]
    first = to_raw(TwinNode(twin.scenario, draw, seed=1).sample())
    frames = recorded_frames(recording)
    np.testing.assert_allclose(frames[0].slots, first.slots, rtol=1e-6)
    np.testing.assert_allclose(frames[0].node, first.node, rtol=1e-6)
    logged = read_logged(recording, twin.scenario, 6.0)
    assert len(logged.run.reward) == 60
    assert (logged.run.propensity > 0.0).all()
    assert logged.run.reward.max() <= 1.5
    assert logged.run.reward.std() > 0.01
    actions = controller_actions(
        make_controller("static:pause=all,limit=0.4,profile=flush"), logged
    )
    assert actions[-1].tolist() == [1, 3, 1, 3, 0, 0, 0, 0, 1]
    assert controller_actions(make_controller("rule"), logged).shape == (60, len(ACTION_SIZES))
    with pytest.raises(DatasetError, match="looks at processes"):
        controller_actions(make_controller("latd"), logged)
    with pytest.raises(DatasetError, match="looks at threads"):
        controller_actions(make_controller("dasec"), logged)
