"""The live environment passes the checkers under real pressure and leaves nothing behind."""

from __future__ import annotations

import os
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_sb3

import stallward.env  # noqa: F401 - registers the environments
from stallward.actuator.guard.budgets import Budgets
from stallward.agent.errors import UsageError
from stallward.env.errors import SandboxError, ScenarioError, TwinError
from stallward.env.gym.node_env import NodeEnv
from stallward.env.recording.recording import Units
from stallward.env.sandbox.live_block import LiveBlock, LiveSettings
from stallward.env.scenario.file import load_scenario
from stallward.env.scenario.scenario import Phase
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.models.registry import find_twin


def test_making_it_touches_nothing_and_a_wrong_scenario_is_refused() -> None:
    env = gymnasium.make("stallward/Node-v0", disable_env_checker=True)
    env.close()
    assert env.spec is not None
    assert env.spec.nondeterministic
    with pytest.raises(ScenarioError):
        NodeEnv("no-such-scenario")
    with pytest.raises(TwinError, match="episodes"):
        NodeEnv(settings={"episodes": 3})
    with pytest.raises(UsageError, match="no action_table but"):
        NodeEnv(settings={"action_table": "set-points", "ticks_per_action": 10})
    with pytest.raises(UsageError, match="no slow_price but"):
        NodeEnv(settings={"slow_price": 2.0})


def test_the_target_is_the_given_one_the_stated_one_or_that_of_the_twin() -> None:
    stated_ms = load_scenario("postgres-stress").protected.slo.latency_ms
    twin_ms = load_fitted(find_twin("postgres-stress")).scenario.slo_ms
    assert stated_ms is not None
    assert twin_ms != stated_ms
    assert NodeEnv("postgres-stress").slo_ms == stated_ms
    assert NodeEnv("postgres-stress", slo_ms=7.0).slo_ms == 7.0
    assert load_scenario("detector-anon").protected.slo.latency_ms is None
    twin_ms = load_fitted(find_twin("detector-anon")).scenario.slo_ms
    assert NodeEnv("detector-anon").slo_ms == twin_ms


@pytest.mark.parametrize(
    ("since_start_s", "progress"),
    [(-1.0, 1.0), (0.5, 1.0), (10.0, 1.0), (60.5, 1.0), (62.0, 0.5), (80.5, 1.0), (82.0, 1.0)],
)
def test_only_programs_that_are_scheduled_make_no_progress(
    monkeypatch: pytest.MonkeyPatch, since_start_s: float, progress: float
) -> None:
    """One works at full speed all the time, and the other, which runs from 60 to 80 s, not at all."""
    env = NodeEnv("detector-anon")
    always, later = env.scenario.background
    later = replace(later, phases=(Phase(start_s=60.0, stop_s=80.0),))
    scenario = replace(env.scenario, background=(always, later))
    now_s, nothing = time.monotonic(), cast("Any", None)
    block = LiveBlock(nothing, scenario, nothing, nothing)
    block._start_s = now_s - since_start_s
    done = float(env._full_per_s[0]) * 1000.0
    full = Units(
        slot=np.zeros(2, dtype=np.int32),
        time_s=now_s + np.array([-500.0, 500.0]),
        units=np.array([0.0, done]),
    )
    monkeypatch.setattr(block, "units", lambda: full)
    env._block = block
    assert env._progress() == pytest.approx(progress)


def test_a_block_that_is_over_is_not_observed_any_more() -> None:
    """An agent that learns for longer than the block lasts finds dead programs."""
    nothing = cast("Any", None)
    live = LiveSettings(slo_ms=60.0, seed=1, longest_s=90.0, budgets=Budgets())
    block = LiveBlock(nothing, nothing, nothing, live)
    block._thread = threading.current_thread()
    block.check()
    block._start_s = time.monotonic() - 80.0
    block.check()
    block._start_s -= 20.0
    with pytest.raises(SandboxError, match=r"block ended after 90 s.*reset"):
        block.check()
    block._start_s, block._thread = time.monotonic(), threading.Thread()
    with pytest.raises(SandboxError, match="block ended"):
        block.check()


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.reaches
def test_it_passes_both_checkers_live_and_leaves_no_group() -> None:
    settings = SimulationSettings(episode_s=3.0)
    env: Any = gymnasium.make("stallward/Node-v0", settings={"episode_s": 3.0}, render_mode="ansi")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(env.unwrapped, skip_render_check=True)
            check_env_sb3(env.unwrapped)
        _, begun = env.reset(seed=1)
        ends = []
        for _ in range(15):
            observation, value, terminated, ended, info = env.step(np.zeros(9, dtype=np.int64))
            assert np.isfinite(observation).all()
            assert np.isfinite(float(value))
            assert not terminated
            assert 0.0 <= info["progress"] <= 1.0
            assert 0.0 <= info["violated"] <= 1.0
            assert value == pytest.approx(
                info["progress"]
                - settings.price * info["violated"]
                - settings.switch_cost * info["switches"] / settings.ticks_per_action
            )
            ends.append(ended)
        assert ends[-1]
        refused = any("page cache by eBPF" in one for one in begun["missing"])
        zone = env.unwrapped._last.zone
        assert refused == (zone.page_cache_hits is None)
        assert "anon-a" in env.render()
    finally:
        env.close()
    left = [p for p in Path("/sys/fs/cgroup").glob("*/stallward*/*") if p.is_dir()]
    mine = [p for p in left if p.name.startswith(f"{os.getpid()}-")]
    assert mine == []
