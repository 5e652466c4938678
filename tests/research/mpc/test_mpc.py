"""Model-predictive control predicts from the state of the node, and its plans relieve pressure."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread, current_thread

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.actuator.guard.budgets import Budgets
from stallward.agent.controller import Decision
from stallward.agent.desired import MIB, RELEASED, DesiredState, SlotDesire
from stallward.agent.errors import ControllerError
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.agent.registry import make_controller
from stallward.agent.sample import LatencySample, Sample
from stallward.agent.testing import CONTEXT, check_controller, make_sample
from stallward.env.simulation.constraints import Ample, measure_ample
from stallward.env.testing import HOG, small_twin
from stallward.env.twin.inputs.exogenous import PAGE_BYTES, SlotProgram
from stallward.env.twin.node import TwinNode
from stallward.env.twin.physics.pages import ANON, FILE
from stallward.evaluation.arms import find_policy_of, parse_arms
from stallward.research.mpc.controller import (
    MpcController,
    MpcSettings,
    Planner,
    PlanningController,
)
from stallward.research.mpc.state import NOMINAL, open_simulation, world_now

TWIN = small_twin(HOG, SlotProgram(name="small", units_per_s=10.0, anon_pages=(4_000.0,)))
QUICK = MpcSettings(plans=32, draws=1, parts=(3, 7))
NOTHING = np.zeros(OBSERVATION_SIZE, dtype=np.float32)


@functools.cache
def measured_ample() -> Ample:
    """Measures of the twin with ample memory."""
    return measure_ample([TWIN], NOMINAL, seed=1)


def pressed(seconds: float = 8.0, granted: DesiredState = RELEASED) -> TwinNode:
    """A node whose background has run for a while, and then 2 s in the state ``granted``."""
    node = TwinNode(TWIN.scenario, TWIN.draws[0], seed=1)
    for k in range(round(10 * seconds) + 20):
        node.step(RELEASED if k < 10 * seconds else granted)
    return node


def decide_until(
    controller: PlanningController, sample: Sample, reached: Callable[[Decision], bool]
) -> None:
    """Decide on one sample again and again, until ``reached`` is true of the decision."""
    deadline_s = time.monotonic() + 60.0
    while not reached(controller.decide(sample, NOTHING)):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_predictions_begin_at_the_state_of_the_node() -> None:
    desired = DesiredState(slots=(SlotDesire(limit_bytes=200 * MIB), SlotDesire(paused=True)))
    sample = pressed(granted=desired).sample()
    world = world_now(TWIN.scenario, sample, 33.0)
    assert world.protected.request_rate_per_s == 33.0
    simulation = open_simulation(
        TWIN, world, sample, [TWIN.draws[0]] * 3, budgets=Budgets(), seed=1
    )
    nodes = simulation.twin.nodes
    held = nodes.resident.sum(axis=1)[:3, 0] * PAGE_BYTES
    reported = [group.memory_usage_bytes for group in (sample.protected, *sample.slots)]
    assert held == pytest.approx(reported, rel=1e-3)
    swap = (nodes.wanted[1:3, ANON, 0] - nodes.resident[1:3, ANON, 0]) * PAGE_BYTES
    assert swap == pytest.approx([group.swap_bytes for group in sample.slots], rel=1e-3)
    assert nodes.resident[0, FILE, 0] > 0.0
    assert nodes.paused[:2, 0].tolist() == [0.0, 1.0]
    assert nodes.limit_bytes[0, 0] == 200 * MIB
    references = [state.reference_bytes for state in sample.slot_states]
    assert nodes.kept_bytes[:2, 0] == pytest.approx(references, rel=1e-6)
    assert nodes.paused_for_s[1, 2] == sample.slot_states[1].paused_for_s


def test_a_group_that_has_not_started_is_predicted_not_to_start() -> None:
    sample = make_sample(0)
    states = (sample.slot_states[0], replace(sample.slot_states[1], reference_bytes=None))
    world = world_now(TWIN.scenario, replace(sample, slot_states=states), None)
    assert [slot.running for slot in world.slots] == [(1.0,), (0.0,)]
    assert world.zone_bytes == CONTEXT.zone_limit_bytes


def test_a_plan_holds_the_hog_back_and_not_the_small_one() -> None:
    planner = Planner(TWIN, MpcSettings(plans=64, draws=1), measured_ample(), 1)
    action = planner.plan(pressed().sample())
    assert action[0] == 1 or action[1] > 0, "the hog runs free"
    assert planner.took_ms > 0.0


def test_with_ample_memory_a_plan_does_nothing() -> None:
    ample = replace(TWIN, scenario=replace(TWIN.scenario, zone_bytes=4 << 30))
    node = TwinNode(ample.scenario, ample.draws[0], seed=1)
    for _ in range(60):
        node.step(RELEASED)
    action = Planner(ample, MpcSettings(plans=64, draws=1), measured_ample(), 1).plan(
        node.sample()
    )
    assert not action[:-1].any()


def test_one_of_two_hogs_is_held_back_for_the_other() -> None:
    two = tuple(SlotProgram(name=n, units_per_s=10.0, anon_pages=(50_000.0,)) for n in "ab")
    twin = replace(TWIN, scenario=replace(TWIN.scenario, slots=two))
    node = TwinNode(twin.scenario, twin.draws[0], seed=1)
    for _ in range(100):
        node.step(RELEASED)
    planner = Planner(
        twin, MpcSettings(plans=96, draws=1), measure_ample([twin], NOMINAL, seed=1), 1
    )
    paused, levels = (planner.plan(node.sample())[k:4:2] for k in (0, 1))
    free = [not p and level == 0 for p, level in zip(paused, levels, strict=True)]
    assert sorted(free) == [False, True]


def test_the_same_seed_plans_the_same() -> None:
    sample = pressed(4.0).sample()
    first, second = (Planner(TWIN, QUICK, measured_ample(), 5).plan(sample) for _ in range(2))
    assert np.array_equal(first, second)


NO_REQUEST = LatencySample(last_completion_age_s=0.0)
"""A tick without answered or waiting requests."""


def test_the_rate_is_learnt_only_while_requests_do_not_pile_up() -> None:
    def rate_after(p95_ms: float) -> float:
        planner = Planner(TWIN, QUICK, measured_ample(), 1)
        latency = LatencySample(completed=40, p95_ms=p95_ms)
        for k in range(300):
            planner.watch(replace(make_sample(k), latency=latency))
        planner.watch(replace(make_sample(300), latency=NO_REQUEST))
        return planner.arrivals_per_s

    assert rate_after(10.0) == pytest.approx(40.0, abs=0.5)
    assert rate_after(500.0) == TWIN.scenario.protected.request_rate_per_s


def test_requests_that_wait_count_as_arrivals() -> None:
    planner = Planner(TWIN, QUICK, measured_ample(), 1)
    rate_per_s = TWIN.scenario.protected.request_rate_per_s
    assert planner.arrivals_per_s == rate_per_s
    late = LatencySample(completed=3, p95_ms=500.0)
    planner.watch(replace(make_sample(0), latency=late))
    assert planner.arrivals_per_s == pytest.approx(1.25 * rate_per_s)
    silent = LatencySample(last_completion_age_s=9.0)
    planner.watch(replace(make_sample(1), latency=silent))
    assert planner.arrivals_per_s == pytest.approx(2.0 * rate_per_s)


def test_a_controller_plans_at_its_period_and_repeats_its_plan_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned_s, plan = [], Planner.plan

    def watched(planner: Planner, sample: Sample) -> NDArray[np.int64]:
        planned_s.append(sample.time_s)
        return plan(planner, sample)

    monkeypatch.setattr(Planner, "plan", watched)
    controller = MpcController(TWIN, QUICK)
    node = pressed(4.0)
    controller.reset(node.context(1))
    actions = []
    for _ in range(14):
        decision = controller.decide(node.sample(), NOTHING)
        actions.append(decision.action)
        node.step(decision.desired)
    assert len(set(actions[:10])) == 1
    first_s, second_s = planned_s
    assert second_s - first_s == pytest.approx(QUICK.replan_s, abs=0.11), "a tick late at most"


def test_it_keeps_the_rules_of_every_controller() -> None:
    check_controller(lambda: MpcController(TWIN, QUICK), length=25)


def test_while_a_plan_is_made_the_last_one_stays_in_force() -> None:
    controller = PlanningController(TWIN, QUICK)
    node = pressed(4.0)
    controller.reset(node.context(1))
    sample = node.sample()
    first = controller.decide(sample, NOTHING)
    assert first.action is not None
    assert not any(first.action), "waited for the plan"
    decide_until(controller, sample, lambda decision: decision.reason == "as planned")


def test_a_plan_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the arm would repeat its last plan, and be measured as if it planned."""

    def fail(_planner: Planner, _sample: Sample) -> NDArray[np.int64]:
        raise FloatingPointError("no plan")

    monkeypatch.setattr(Planner, "plan", fail)
    controller = PlanningController(TWIN, QUICK)
    node = pressed(4.0)
    controller.reset(node.context(1))
    sample = node.sample()
    with pytest.raises(FloatingPointError, match="no plan"):
        decide_until(controller, sample, lambda _decision: False)


def test_a_plan_for_an_earlier_node_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = Event()
    planners: list[Thread] = []

    def late(_planner: Planner, _sample: Sample) -> NDArray[np.int64]:
        planners.append(current_thread())
        assert ready.wait(60.0)
        return np.ones(9, dtype=np.int64)

    monkeypatch.setattr(Planner, "plan", late)
    controller = PlanningController(TWIN, QUICK)
    node = pressed(4.0)
    controller.reset(node.context(1))
    controller.decide(node.sample(), NOTHING)
    controller.reset(node.context(1))
    while not planners:
        time.sleep(0.01)
    ready.set()
    planners[0].join(60.0)
    assert not any(controller.decide(node.sample(), NOTHING).action or (1,)), (
        "a plan for an earlier node was used"
    )
    decide_until(controller, node.sample(), lambda decision: decision.action == (1,) * 9)


def test_the_arm_plans_with_the_twin_of_its_scenario_or_a_file() -> None:
    arm = parse_arms("mpc")[0]
    assert arm.runs_policy
    assert arm.decides_remotely
    twin_file = find_policy_of(arm, "default", "detector-anon")
    assert twin_file is not None
    assert twin_file.name == "detector-anon.json"
    named = parse_arms(f"mpc:path={twin_file}")[0]
    assert find_policy_of(named, "default", "elsewhere") == twin_file
    with pytest.raises(ControllerError, match="does not run inside a daemon"):
        make_controller("mpc")
