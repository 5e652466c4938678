"""The twin's environments pass the checkers, reset in the same step, and repeat by seed."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray
from stable_baselines3.common.env_checker import check_env as check_env_sb3

import stallward.env  # noqa: F401 - registers the environments
from stallward.agent.desired import ACTION_SIZES
from stallward.agent.errors import UsageError
from stallward.agent.observation.encoder import (
    BASIC,
    OBSERVATION_NAMES,
    OBSERVATION_SIZE,
    PHASES,
)
from stallward.agent.observation.raw import NODE
from stallward.env.errors import TwinError
from stallward.env.gym.twin_env import TwinEnv
from stallward.env.gym.vec_env import RollIn, TwinVec
from stallward.env.gym.vector_env import TwinVectorEnv
from stallward.env.objective import excess, mean_progress, reward, severity, window_severity
from stallward.env.simulation.nuisance import NO_NUISANCE, Nuisance
from stallward.env.simulation.simulation import Simulation, SimulationSettings
from stallward.env.twin.inputs.exogenous import Exogenous, ProtectedProgram, SlotProgram
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted, save_fitted
from stallward.env.twin.inputs.parameters import TwinParameters

RECORDINGS = Path(__file__).parents[3] / "recordings"
SCENARIO = Exogenous(
    name="small",
    zone_bytes=600 << 20,
    swap_bytes=2 << 30,
    slo_ms=20.0,
    protected=ProtectedProgram(
        request_rate_per_s=15.0,
        service_s=0.0075,
        anon_pages=15_000.0,
        file_pages=38_400.0,
        touch_anon_pages=4_000.0,
        touch_file_pages=38_400.0,
    ),
    slots=(
        SlotProgram(name="a", units_per_s=100.0, anon_pages=(130_000.0,)),
        SlotProgram(name="b", units_per_s=10.0, anon_pages=(90_000.0, 10_000.0)),
    ),
)
TWIN = FittedTwin(
    scenario=SCENARIO,
    draws=(TwinParameters(), TwinParameters(read_latency_s=2e-4)),
    weights=(0.5, 0.5),
    provenance={"note": "test"},
)
RUN, PAUSE = np.zeros(9, dtype=np.int64), np.array([1, 5, 1, 5, 0, 0, 0, 0, 0])


@pytest.mark.slow
def test_the_single_environment_passes_both_checkers_without_a_warning() -> None:
    env = gymnasium.make("stallward/Twin-v0", twins=(TWIN,), render_mode="ansi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
        check_env_sb3(TwinEnv(twins=(TWIN,)))


MAKE = "gymnasium.make('stallward.env:stallward/Twin-v0', twins=['redis-mix'])"


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        f"import gymnasium; {MAKE}",
        f"import stallward.env, gymnasium; {MAKE}",
        "import gymnasium; gymnasium.make('stallward.env.gym:stallward/Twin-v0', twins=['redis-mix'])",
        "import stallward.env\n"
        "assert not {'gymnasium', 'torch', 'pyarrow'} & set(sys.modules), 'heavy'\n"
        "import gymnasium; gymnasium.spec('stallward/Replay-v0')",
    ],
    ids=["gymnasium first", "stallward first", "by the module", "without Gymnasium"],
)
@pytest.mark.slow
def test_the_ids_are_registered_and_nothing_heavy_is_loaded(code: str) -> None:
    light = "\nassert not {'torch', 'pyarrow', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", f"import sys; {code}{light}"], check=True)


def test_a_made_environment_can_be_written_down_as_json_and_made_again() -> None:
    keywords: dict[str, Any] = {
        "twins": ["detector-anon"],
        "settings": {"episode_s": 2.0},
        "continuous": True,
    }
    spec = gymnasium.make("stallward/Twin-v0", **keywords).spec
    assert spec is not None
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(spec.to_json()))
    assert isinstance(again.action_space, gymnasium.spaces.Box)
    check_env_sb3(again.unwrapped)


def test_a_twin_is_made_from_a_recording() -> None:
    folder = RECORDINGS / "detector-anon-excite-s1"
    env: Any = gymnasium.make("stallward/Twin-v0", recording=str(folder), render_mode="ansi")
    observation, _ = env.reset(seed=1)
    assert np.isfinite(observation).all()
    shown = env.render()
    assert shown.startswith("detector-anon at 0.0 s")
    assert "anon-a" in shown
    with pytest.raises(TwinError, match="Both twins and a recording"):
        TwinEnv(twins=(TWIN,), recording=folder)
    with pytest.raises(UsageError, match="no render mode 'human'"):
        TwinEnv(twins=(TWIN,), render_mode="human")


def test_the_shown_target_is_that_of_the_episode() -> None:
    settings = SimulationSettings(nuisance=replace(NO_NUISANCE, target_ratio=(3.0, 3.0)))
    env = TwinEnv(twins=(TWIN,), settings=settings, render_mode="ansi")
    env.reset(seed=1)
    assert "target 60 ms" in str(env.render())


def test_an_episode_ends_by_truncation_after_its_time() -> None:
    env = TwinEnv(twins=(TWIN,), settings=SimulationSettings(episode_s=2.0))
    env.reset(seed=1)
    ends = [env.step(RUN)[2:4] for _ in range(10)]
    assert ends == [(False, False)] * 9 + [(False, True)]


def test_the_same_seed_repeats() -> None:
    env = TwinEnv(twins=(TWIN,))
    runs = []
    for _ in range(2):
        env.reset(seed=7)
        runs.append([env.step(RUN)[1] for _ in range(20)])
    assert runs[0] == runs[1]


def test_the_batch_resets_in_the_same_step_and_reports_episodes() -> None:
    vec = TwinVec([TWIN], 64, SimulationSettings(episode_s=4.0), seed=3)
    assert np.shape(vec.reset()) == (64, BASIC.size)
    finished = 0
    for _ in range(25):
        seen, rewards, dones, infos = vec.step(np.tile(RUN, (64, 1)))
        observation = np.asarray(seen)
        assert np.isfinite(observation).all()
        assert np.abs(observation).max() < 64.0
        assert rewards.dtype == np.float32
        for i in np.flatnonzero(dones):
            finished += 1
            assert infos[i]["TimeLimit.truncated"]
            assert not np.array_equal(infos[i]["terminal_observation"], observation[i])
            assert set(infos[i]["episode"]) == {"r", "l", "t"}
            assert 0.0 <= infos[i]["progress"] <= 1.0
        assert all(not infos[i] for i in np.flatnonzero(~dones)), "running episodes have infos"
    assert finished >= 64
    vec.close()


def test_the_figures_of_a_first_episode_are_means_over_the_steps_that_it_had() -> None:
    """First episodes are cut at different places, so that not all end together."""
    free = SimulationSettings(episode_s=4.0, price=0.0, switch_cost=0.0)
    vec = TwinVec([TWIN], 32, free, seed=3)
    vec.reset()
    rewards, lengths = np.zeros(32), np.zeros(32, dtype=np.int64)
    for step in range(1, 21):
        _, reward, dones, infos = vec.step(np.tile(RUN, (32, 1)))
        rewards += np.where(lengths == 0, reward, 0.0)
        for i in np.flatnonzero(dones & (lengths == 0)):
            lengths[i] = step
            assert infos[i]["episode"]["l"] == step
            assert infos[i]["progress"] == pytest.approx(rewards[i] / step, rel=1e-4)
    assert len(set(lengths)) > 10


def test_environments_that_nobody_seeded_are_different_nodes() -> None:
    """Otherwise all workers of a trainer would learn from one and the same node."""
    for make in (lambda: TwinEnv(twins=(TWIN,)), lambda: TwinVectorEnv(2, (TWIN,))):
        one, other = make().reset()[0], make().reset()[0]
        assert not np.array_equal(one, other)


def test_actions_have_no_effect_during_a_roll_in_and_all_effect_after_it() -> None:
    settings = SimulationSettings(nuisance=NO_NUISANCE, episode_s=20.0)
    roll_in = RollIn(share=1.0, longest_s=6.0)
    limits = [OBSERVATION_NAMES.index(f"slot{i}_limit_ratio") for i in range(2)]
    paused = OBSERVATION_NAMES.index("slot0_paused")
    runs = []
    for action in (RUN, PAUSE):
        vec = TwinVec([TWIN], 32, settings, roll_in=roll_in, seed=3)
        vec.reset()
        vec.simulation.steps[:] = 0
        runs.append(np.array([vec.step(np.tile(action, (32, 1)))[0] for _ in range(60)]))
    running, pausing = runs
    differ = (running[:, :, paused] != pausing[:, :, paused]).any(axis=0)
    first = np.array([np.argmax(pausing[:, node, paused] > 0.0) for node in range(32)])
    assert differ.all(), "a node was never paused although the action asks for it"
    assert first.max() <= 31
    assert len(set(first)) > 10, "all roll-ins end at the same time"
    for node in range(32):
        before = slice(0, int(first[node]))
        np.testing.assert_array_equal(running[before, node], pausing[before, node])
    held = running[2, first > 5][:, limits]
    assert (held < 1.0).any(), "some at random"
    assert (held == 1.0).all(axis=1).any(), "some idle"
    plain = TwinVec([TWIN], 4, settings, seed=3)
    plain.reset()
    seen = [np.asarray(plain.step(np.tile(PAUSE, (4, 1)))[0]) for _ in range(3)]
    assert (np.max(seen, axis=0)[:, paused] > 0.0).all(), "no roll-in unless asked for"


def test_the_phases_are_shown_where_they_are_asked_for() -> None:
    basic, phases = TwinEnv(twins=(TWIN,)), TwinEnv(twins=(TWIN,), features="phases")
    assert phases.observation_space.shape == (PHASES.size,)
    (seen, _), (more, _) = basic.reset(seed=7), phases.reset(seed=7)
    for _ in range(20):
        np.testing.assert_array_equal(more[: BASIC.size], seen)
        seen, more = basic.step(RUN)[0], phases.step(RUN)[0]
    assert more[OBSERVATION_NAMES.index("slot0_since_phase_change")] > 0.0
    with pytest.raises(UsageError, match=r"no features 'moon'.*basic, phases"):
        TwinEnv(twins=(TWIN,), features="moon")


def test_a_batch_shows_the_features_that_its_policies_read() -> None:
    settings = SimulationSettings(episode_s=4.0)
    some, all_of_them = (
        TwinVec([TWIN], 16, settings, features=features, asymmetric=True, seed=3)
        for features in (BASIC, PHASES)
    )
    seen, more = np.asarray(some.reset()), np.asarray(all_of_them.reset())
    for _ in range(15):
        assert seen.shape == (16, BASIC.size + some.critic_only)
        assert more.shape == (16, OBSERVATION_SIZE + all_of_them.critic_only)
        np.testing.assert_array_equal(more[:, : BASIC.size], seen[:, : BASIC.size])
        critic = slice(-some.critic_only, None)
        np.testing.assert_array_equal(more[:, critic], seen[:, critic])
        seen, more = (np.asarray(v.step(np.tile(RUN, (16, 1)))[0]) for v in (some, all_of_them))
    assert (more[:, OBSERVATION_NAMES.index("slot0_in_phase")] == 1.0).any()


def test_only_an_asymmetric_critic_sees_what_no_policy_can_know() -> None:
    roomy = replace(TWIN, scenario=replace(SCENARIO, name="roomy", zone_bytes=8 << 30))
    settings = SimulationSettings(nuisance=NO_NUISANCE, episode_s=4.0)
    roll_in = RollIn(share=1.0, longest_s=2.0)
    plain, full = (
        TwinVec([TWIN, roomy], 64, settings, roll_in=roll_in, asymmetric=asymmetric, seed=3)
        for asymmetric in (False, True)
    )
    full.simulation.terms.prices[:, 1] = (np.e**4 - 1.0, 1.0, 1.0)
    full.reward_scales[:] = (0.25, 0.5)
    seen, both = np.asarray(plain.reset()), np.asarray(full.reset())
    count = BASIC.size
    finished, held = 0, 0
    for _ in range(45):
        assert both.shape == (64, *full.observation_space.shape)  # type: ignore[misc]
        np.testing.assert_array_equal(both[:, :count], seen)
        scenario = both[:, count : count + 2]
        np.testing.assert_array_equal(scenario, np.eye(2)[full.simulation.scenario])
        first_price = both[scenario[:, 1] > 0.0, count + 2]
        np.testing.assert_allclose(first_price, 1.0, rtol=1e-6)
        rolling_in, before = both[:, -1] > 0.0, full.simulation.scenario.copy()
        seen, of_plain, _, _ = (np.asarray(x) for x in plain.step(np.tile(RUN, (64, 1))))
        both, rewards, done, _ = (np.asarray(x) for x in full.step(np.tile(RUN, (64, 1))))
        np.testing.assert_array_equal(full.rolling_in, rolling_in)
        np.testing.assert_array_equal(full.scenario, before)
        same = before == 0
        np.testing.assert_array_equal(rewards[same], 0.25 * of_plain[same])
        finished, held = finished + int(done.sum()), held + int(rolling_in.sum())
    assert finished >= 64
    assert 0 < held < 45 * 64


def test_pausing_protects_and_running_gets_work_done() -> None:
    settings = SimulationSettings(nuisance=NO_NUISANCE, episode_s=1000.0)
    outcomes = []
    for action in (RUN, PAUSE):
        simulation = Simulation([TWIN], 16, settings, seed=1)
        simulation.reset(np.ones(16, dtype=bool))
        steps = [simulation.step(np.tile(action, (16, 1))) for _ in range(50)]
        outcomes.append(
            [np.mean([getattr(s, name) for s in steps]) for name in ("violated", "progress")]
        )
    assert outcomes[0][0] > 1.5 * outcomes[1][0]
    assert outcomes[0][1] > outcomes[1][1]


def test_a_nodes_run_does_not_depend_on_how_many_run_beside_it() -> None:
    runs = []
    for batch in (3, 20):
        simulation = Simulation([TWIN], batch, SimulationSettings(episode_s=3.0), seed=11)
        simulation.reset(np.ones(batch, dtype=bool))
        rewards = []
        for _ in range(40):
            result = simulation.step(np.tile(RUN, (batch, 1)))
            rewards.append(result.reward[:3].copy())
            simulation.reset(result.done)
        runs.append(np.array(rewards))
    np.testing.assert_array_equal(runs[0], runs[1])


def test_the_guard_stands_between_a_policy_and_the_twin() -> None:
    simulation = Simulation([TWIN], 4, SimulationSettings(nuisance=NO_NUISANCE), seed=1)
    simulation.reset(np.ones(4, dtype=bool))
    longest = np.zeros(4)
    for _ in range(60):
        simulation.step(np.tile(PAUSE, (4, 1)))
        longest = np.maximum(longest, simulation.twin.nodes.paused_for_s.max(axis=0))
    assert longest.min() > 4.0
    assert longest.max() <= 5.0 + 1e-6


def test_nuisance_varies_the_nodes_and_keeps_one_slot() -> None:
    simulation = Simulation([TWIN], 200, SimulationSettings(), seed=1)
    simulation.reset(np.ones(200, dtype=bool))
    c = simulation.twin.nodes
    assert len(np.unique(c.rate_per_s)) > 100
    assert len(np.unique(c.zone_pages)) > 100
    assert set(c.has_program.sum(axis=0).tolist()) == {1.0, 2.0}


def test_nodes_that_share_their_draws_differ_by_their_actions_alone() -> None:
    simulation = Simulation([TWIN], 9, SimulationSettings(), seed=1, draws=3)
    for _ in range(2):
        simulation.reset(np.ones(9, dtype=bool))
        for _ in range(20):
            simulation.step(np.array([RUN] * 6 + [PAUSE] * 3))
        seen = simulation.observation
        np.testing.assert_array_equal(seen[:3], seen[3:6])
        assert (seen[0] != seen[1]).any()
        assert (seen[:3] != seen[6:]).any(axis=1).all()
        simulation.seed(7)


def test_copies_of_nodes_do_what_the_nodes_do() -> None:
    settings = SimulationSettings(nuisance=Nuisance(late_share=0.0))
    one = Simulation([TWIN], 12, settings, seed=4)
    one.reset(np.ones(12, dtype=bool))
    rng = np.random.default_rng(1)
    for _ in range(30):
        one.step(rng.integers([2, 6] * 4 + [1], size=(12, 9)))
    copies, other = (Simulation([TWIN], 12, settings, seed=4) for _ in range(2))
    copies.copy_from(one, np.arange(12))
    other.copy_from(one, np.arange(12)[::-1])
    assert copies.twin.nodes.time_s.min() > 5.0
    for _ in range(20):
        actions = rng.integers([2, 6] * 4 + [1], size=(12, 9))
        results = [each.step(actions) for each in (one, copies, other)]
        np.testing.assert_array_equal(results[0].observation, results[1].observation)
        np.testing.assert_array_equal(results[0].reward, results[1].reward)
        assert (results[0].observation != results[2].observation).any()


def test_the_latency_baseline_is_known_from_before_on_a_given_share_of_nodes() -> None:
    place = OBSERVATION_NAMES.index("latency_mean_over_usual")
    idle = np.zeros((256, len(ACTION_SIZES)), dtype=np.int64)
    for share in (0.0, 0.5, 1.0):
        settings = SimulationSettings(
            nuisance=Nuisance(
                sensing=0.0, late_share=0.0, usual_known=share, usual_ratio=(1.0, 1.0)
            )
        )
        simulation = Simulation([TWIN], 256, settings, seed=2)
        simulation.terms.baseline_ms[:] = 4.0
        simulation.reset(np.ones(256, dtype=bool))
        for _ in range(10):
            feature = simulation.step(idle).observation[:, place]
        mean_ms = np.array([frame.node[NODE["latency_mean_ms"]] for frame in simulation.frames()])
        answered = np.isfinite(mean_ms)
        slower = answered & (mean_ms > 4.0 * 1.05)
        known = slower & (feature > 0.0)
        assert slower.mean() > 0.5
        assert known.sum() / slower.sum() == pytest.approx(share, abs=0.1)
        expected = np.minimum(np.log2(mean_ms[known] / 4.0) / 4.0, 3.0)
        assert feature[known] == pytest.approx(expected, rel=0.01)


def test_rewards_are_in_slo_units() -> None:
    assert severity(10.0, 20.0) == 0.0
    assert 0.0 < severity(20.0, 20.0) < severity(40.0, 20.0) < 1.0
    assert severity(500.0, 20.0) == 1.0
    nan = np.nan
    bad = [
        window_severity(p95_ms, age_s, running_s, 20.0, rate_per_s)
        for p95_ms, age_s, running_s, rate_per_s in (
            (10.0, 0.1, 9.0, 10.0), (500.0, 0.1, 9.0, 10.0), (nan, 0.1, 9.0, 10.0),
            (nan, 1.5, 9.0, 10.0), (nan, nan, 0.5, 10.0), (20.0, 0.1, 9.0, 10.0),
            (nan, nan, 1.1, 10.0), (nan, 1.5, 9.0, 2.0),
        )
    ]  # fmt: skip
    assert bad == pytest.approx([0.0, 1.0, 0.0, 1.0, 0.0, severity(20.0, 20.0), 1.0, 0.0])
    assert mean_progress(1.5, 2.0) == 0.75
    assert mean_progress(0.0, 0.0) == 1.0
    assert excess(12.0, 10.0) == pytest.approx(0.2)
    assert excess(9.0, 10.0) == pytest.approx(-0.1)
    assert excess(1e6, 10.0) == 10.0
    assert reward(0.75, 1.0, 2.0, 0.01) == pytest.approx(0.75 - 1.0 - 0.02)


def test_fitted_twins_survive_a_file_and_broken_ones_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x" / "twin.json"
    save_fitted(file, TWIN)
    assert load_fitted(file) == TWIN
    file.write_text(file.read_text().replace('"schema": 1', '"schema": 2', 1))
    with pytest.raises(TwinError, match="schema"):
        load_fitted(file)
    file.write_text("{")
    with pytest.raises(TwinError, match="cannot be read"):
        load_fitted(file)
    with pytest.raises(TwinError, match="draws"):
        FittedTwin(scenario=SCENARIO, draws=(TwinParameters(),), weights=(0.5,))
    with pytest.raises(TwinError, match="no twin"):
        Simulation([], 1, SimulationSettings(), seed=0)


def test_each_twin_has_its_own_price_and_its_own_count_of_violations() -> None:
    roomy = replace(TWIN, scenario=replace(SCENARIO, name="roomy", zone_bytes=8 << 30))
    settings = SimulationSettings(episode_s=1e4, switch_cost=0.0, nuisance=NO_NUISANCE)
    vec = TwinVec([TWIN, roomy], 32, settings, seed=1)
    vec.reset()
    which = vec.simulation.scenario.copy()
    vec.simulation.terms.prices[0] = (1e6, 0.0)
    for _ in range(20):
        _, rewards, _, _ = vec.step(np.tile(RUN, (32, 1)))
    assert rewards[which == 0].max() < -100.0
    assert rewards[which == 1].min() > 0.5
    progress, windows, excess, slow = vec.take_means()
    assert progress[0] < progress[1] == pytest.approx(1.0, abs=0.05)
    assert windows[0] > 0.5
    assert windows[1] < 0.2
    assert excess[0] > excess[1]
    assert slow[0] > slow[1]
    assert np.isnan(vec.take_means()).all()


def test_latencies_are_compared_with_the_baseline() -> None:
    settings = SimulationSettings(
        nuisance=NO_NUISANCE, price=0.0, switch_cost=0.0, excess_price=2.0, slow_price=3.0
    )
    simulation = Simulation([TWIN], 4, replace(settings, ticks_per_action=1), seed=1)
    simulation.reset(np.ones(4, dtype=bool))
    simulation.terms.baseline_ms[:], simulation.terms.slow_ms[:] = 8.0, 11.0
    for _ in range(20):
        result = simulation.step(np.tile(RUN, (4, 1)))
        count, ms = simulation.twin.nodes.probe_weight, simulation.twin.nodes.probe_ms
        each = np.minimum(ms / 8.0 - 1.0, 10.0)
        np.testing.assert_allclose(result.excess, (count * each).sum(axis=0) / 1.5)
        np.testing.assert_allclose(result.slow, (count * (ms > 11.0)).sum(axis=0) / 1.5)
        paid = 2.0 * result.excess + 3.0 * result.slow
        np.testing.assert_allclose(result.reward, result.progress - paid)


def paused_share(settings: SimulationSettings) -> NDArray[np.float64]:
    """Return the share of 15 to 45 s in which the first slot is paused, if asked for always."""
    simulation = Simulation([TWIN], 64, settings, seed=3)
    simulation.reset(np.ones(64, dtype=bool))
    column = OBSERVATION_NAMES.index("slot0_paused")
    action = np.tile(PAUSE, (64, 1))
    seen = [simulation.step(action).observation[:, column].copy() for _ in range(225)]
    shares: NDArray[np.float64] = np.mean(seen[75:], axis=0, dtype=np.float64)
    return shares


def test_a_slot_that_was_paused_for_most_of_the_minute_before_has_little_left() -> None:
    rested = paused_share(SimulationSettings(nuisance=NO_NUISANCE))
    assert rested.min() > 0.85, "half a second in every five and a half runs"
    tired = paused_share(SimulationSettings(nuisance=replace(NO_NUISANCE, paused_before=0.78)))
    assert tired.min() < 0.82, "the budget's 80 %, and what leaves the minute meanwhile"
    assert np.quantile(tired, 0.9) > 0.85, "some have not been paused"


def test_half_of_the_slots_are_known_to_have_used_more_before_the_episode() -> None:
    def known(settings: SimulationSettings) -> NDArray[np.float64]:
        simulation = Simulation([TWIN], 512, settings, seed=3)
        simulation.reset(np.ones(512, dtype=bool))
        return np.asarray(simulation.twin.nodes.kept_bytes / 4096.0)[:2]

    assert known(SimulationSettings(nuisance=NO_NUISANCE)).max() == 0.0
    pages = known(SimulationSettings(nuisance=replace(NO_NUISANCE, used_before=0.5)))
    assert 0.4 < np.mean(pages > 0.0) < 0.6
    for slot, largest in enumerate((130_000.0, 90_000.0)):
        assert 0.95 * largest < pages[slot].max() <= largest
        assert pages[slot][pages[slot] > 0.0].min() < 0.05 * largest


def test_limits_refer_to_the_memory_used_before_the_episode() -> None:
    nuisance = replace(NO_NUISANCE, used_before=1.0)
    simulation = Simulation([TWIN], 64, SimulationSettings(nuisance=nuisance), seed=3)
    simulation.reset(np.ones(64, dtype=bool))
    tightest = RUN.copy()
    tightest[1] = 5
    before = simulation.twin.nodes.kept_bytes[0].copy()
    for _ in range(4):
        simulation.step(np.tile(tightest, (64, 1)))
    limits = simulation.twin.nodes.limit_bytes[0]
    known = before > 400 << 20
    assert known.sum() > 10
    assert (limits[known] >= 0.1 * before[known] - 4096).all()


def test_one_number_stands_for_the_same_choices_of_every_slot() -> None:
    made = gymnasium.make("stallward/TwinDiscrete-v0", twins=[TWIN], settings={"episode_s": 2.0})
    assert isinstance(made.action_space, gymnasium.spaces.Discrete)
    assert made.action_space.n == 48
    wrapper = made.get_wrapper_attr("action")
    assert wrapper(0).tolist() == [0] * len(ACTION_SIZES)
    seen = {tuple(wrapper(number).tolist()) for number in range(48)}
    assert len(seen) == 48
    for choices in seen:
        assert len(set(zip(choices[0:8:2], choices[1:8:2], strict=True))) == 1
        assert all(0 <= choice < size for choice, size in zip(choices, ACTION_SIZES, strict=True))
    made.reset(seed=1)
    plain = gymnasium.make("stallward/Twin-v0", twins=[TWIN], settings={"episode_s": 2.0})
    plain.reset(seed=1)
    for number in (0, 47, 13):
        here, there = made.step(number), plain.step(wrapper(number))
        np.testing.assert_array_equal(here[0], there[0])
        assert here[1] == there[1]


def test_the_continuous_twin_has_an_id_of_its_own() -> None:
    made = gymnasium.make("stallward/TwinContinuous-v0", twins=[TWIN], settings={"episode_s": 2.0})
    assert isinstance(made.action_space, gymnasium.spaces.Box)
    assert made.action_space.shape == (len(ACTION_SIZES),)


def test_a_scenario_with_several_applications_is_an_environment() -> None:
    env = gymnasium.make("stallward/Twin-v0", twins=["web-and-cache"])
    first, _ = env.reset(seed=3)
    assert env.observation_space.contains(first)
    idle = np.zeros(env.action_space.shape or (), dtype=np.int64)
    for _ in range(20):
        observation, _, _, _, info = env.step(idle)
    assert env.observation_space.contains(observation)
    own = [info["window_violated_nginx"], info["window_violated_memcached"]]
    assert set(own) <= {0.0, 1.0}
    assert info["window_violated"] >= 0.5 * max(own), "missed in the last of two ticks"
    env.close()
