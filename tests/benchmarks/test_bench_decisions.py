"""The cost of decisions is measured for every controller that decides in the loop."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import controllers, make_controller
from stallward.agent.testing import CONTEXT, make_sample
from stallward.benchmarks.decisions import _threads, bench_decisions, timed_arms
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.evaluation.cli import main
from stallward.models.registry import find_twin

pytestmark = pytest.mark.reaches("models/")


def test_every_controller_is_measured_but_those_that_run_what_another_runs() -> None:
    assert {entry.name for entry in controllers()} - set(timed_arms().split(",")) == {
        "onnx",
        "remote",
    }


@pytest.mark.slow
def test_the_policy_and_the_planner_are_measured_too() -> None:
    fitted = load_fitted(find_twin("detector-anon"))
    none, ppo, mpc = bench_decisions(fitted, "none,ppo,mpc", ticks=20)
    assert (none.in_loop, ppo.in_loop, mpc.in_loop) == (True, True, False)
    assert mpc.p99_us > 10 * mpc.p50_us, "a plan a second is made, not one a tick"
    assert ppo.p99_us > 0.0


@pytest.mark.slow
def test_the_cost_of_a_decision_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["bench", "decisions", "--arms", "none,earlyoom", "--ticks", "10"]
    assert main([*options, "--json"]) == 0
    none, earlyoom = json.loads(capsys.readouterr().out)
    assert (none["arm"], none["needs_processes"]) == ("none", False)
    assert earlyoom["needs_processes"]
    assert 0.0 < earlyoom["p50_us"] <= earlyoom["p99_us"]
    assert main(options) == 0
    assert "earlyoom" in capsys.readouterr().out


def test_what_a_twin_cannot_act_on_is_measured_all_the_same() -> None:
    fitted = load_fitted(find_twin("detector-anon"))
    costs = bench_decisions(fitted, "dasec,bvt,swap-assign,ws-flush", ticks=10)
    assert [cost.needs_threads for cost in costs] == [True, True, False, False]
    assert all(cost.p50_us > 0.0 for cost in costs)


def test_the_threads_that_are_measured_have_something_to_answer() -> None:
    controller = make_controller("dasec")
    controller.reset(CONTEXT)
    answered = set()
    for tick in range(12):
        sample = replace(make_sample(tick), protected_threads=_threads(tick))
        desired = controller.decide(sample, np.zeros(OBSERVATION_SIZE, dtype=np.float32)).desired
        for thread in desired.protected_threads:
            answered |= {name for name in ("slice_us", "nice") if getattr(thread, name)}
    assert answered == {"slice_us", "nice"}


def test_an_arm_that_decides_in_another_program_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arm in ("remote", "peer:earlyoom"):
        assert main(["bench", "decisions", "--arms", arm]) == 2
        assert "in a program of its own" in capsys.readouterr().err
