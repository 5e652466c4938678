"""``mpc``: model-predictive control with the scenario's fitted twin.

Every second it sets twins to the state of the node (see ``state``) and simulates about two hundred
plans of 6 s on them at once, each with several draws of the fitted parameters. It takes the plan
with the best value, which weighs the mean over the draws and the worst draw. The first part of the
plan is in force until the next plan is ready. The candidates are the plan in force, the same one
part later, constant rungs of the staircase, rungs after a pause and squeeze, and random changes of
the best so far.

Planning takes longer than a tick, so on a node this runs as a remote controller over gRPC
(``stallward.evaluation.remote``), never inside the daemon.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import product
from threading import Thread
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.guard.budgets import Budgets
from stallward.agent.control_law import staircase
from stallward.agent.controller import Decision, NodeContext
from stallward.agent.desired import ACTION_SIZES, LIMIT_RATIOS, RELEASED, SLOTS, decode_action
from stallward.agent.sample import Sample
from stallward.env.simulation.constraints import Ample, measure_ample, set_reference_latencies
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.research.mpc.state import NOMINAL, open_simulation, world_now

Array = NDArray[np.float64]
Actions = NDArray[np.int64]
_NO_ACTION: Final[tuple[int, ...]] = (0,) * len(ACTION_SIZES)
_DEEPEST: Final = len(LIMIT_RATIOS) - 1
_STEP_S: Final = 0.2
_RATE_WEIGHT: Final = 0.02
"""Weight of one tick's request rate in the moving average of the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpcSettings:
    """The settings of the planning."""

    replan_s: float = 1.0
    """Least time between two plans; a slow machine takes longer."""
    parts: tuple[int, ...] = (5, 10, 15)
    """Lengths of a plan's parts, in decisions of 0.2 s; each part has one action."""
    plans: int = 96
    """Number of plans in each of the two rounds of candidates."""
    draws: int = 4
    """Number of parameter settings on which each plan is simulated."""
    price: float = 10.0
    """Price of a second that misses the target by far, in seconds of full background speed."""
    excess_price: float = 2.0
    """Price of requests that take twice as long as with ample memory."""
    slow_price: float = 5.0
    """Price of all requests being slower than 1.15 times the p99 with ample memory."""
    switch_cost: float = 0.01
    """Price of each lever that is moved."""
    worst_share: float = 0.5
    """Weight of the worst draw; the mean has the rest."""
    change_share: float = 0.2
    """Share of a plan's entries that a random change draws anew."""
    budgets: Budgets = field(default_factory=Budgets)
    """The guard's budgets in the simulation."""


class Planner:
    """Plans for one node.

    Args:
        twin: A twin that is fitted to the programs on the node.
        settings: How to plan.
        ample: The measures of the twin's application with ample memory.
        seed: Seeds everything random.
    """

    def __init__(self, twin: FittedTwin, settings: MpcSettings, ample: Ample, seed: int) -> None:
        self._twin, self._settings, self._ample = twin, settings, ample
        self._rng = np.random.default_rng(seed)
        self._plan = np.zeros((len(settings.parts), len(ACTION_SIZES)), dtype=np.int64)
        self._rate_per_s: float | None = None
        self._late_s = 0.0
        self.took_ms = 0.0
        """How long the last planning took."""

    def watch(self, sample: Sample) -> None:
        """Update the request rate, from ticks in which no requests pile up."""
        latency = sample.latency
        if latency is None:
            return
        waited_s = max((latency.p95_ms or 0.0) * 1e-3, latency.last_completion_age_s or 0.0)
        late = waited_s > self._twin.scenario.slo_ms * 1e-3
        self._late_s = waited_s if late else 0.0
        if late or latency.p95_ms is None:
            return
        rate_per_s = latency.completed / latency.window_s
        before = self._rate_per_s
        if before is None:
            before = self._twin.scenario.protected.request_rate_per_s
        self._rate_per_s = before + _RATE_WEIGHT * (rate_per_s - before)

    def plan(self, sample: Sample) -> Actions:
        """Make a new plan and return its first action, ``(len(ACTION_SIZES),)``."""
        began_s = time.perf_counter()
        settings = self._settings
        world = world_now(self._twin.scenario, sample, self.arrivals_per_s)
        slots = len(world.slots)
        plans = self._first_plans(slots)
        scores = self._score(plans, sample, world)
        best = plans[np.argsort(-scores)[: max(settings.plans // 8, 1)]]
        variants = self._variants(best, settings.plans, slots)
        plans = np.concatenate([best, variants])
        scores = self._score(plans, sample, world)
        self._plan = plans[int(np.argmax(scores))]
        self.took_ms = 1e3 * (time.perf_counter() - began_s)
        return np.asarray(self._plan[0])

    @property
    def arrivals_per_s(self) -> float:
        """The request rate that a plan assumes: waiting requests are spread over its length.

        The number of waiting requests is estimated as the arrivals during the longest wait.
        """
        rate_per_s = self._rate_per_s
        if rate_per_s is None:
            rate_per_s = self._twin.scenario.protected.request_rate_per_s
        length_s = _STEP_S * sum(self._settings.parts)
        return rate_per_s * (1.0 + min(self._late_s / length_s, 1.0))

    def _first_plans(self, slots: int) -> Actions:
        """The first round: the plan in force, constant actions, and these after a squeeze."""
        parts = len(self._settings.parts)
        advanced = np.concatenate([self._plan[1:], self._plan[-1:]])
        actions = _constant_actions(slots, int(self._plan[0, -1]))
        squeeze = actions.copy()
        squeeze[:, 0 : 2 * slots : 2] = 1
        squeeze[:, 1 : 2 * slots : 2] = _DEEPEST
        constant = np.repeat(actions[:, None], parts, axis=1)
        after_squeeze = constant.copy()
        after_squeeze[:, 0] = squeeze
        plans = np.concatenate([self._plan[None], advanced[None], constant, after_squeeze])
        missing = self._settings.plans - len(plans)
        if missing > 0:
            plans = np.concatenate([plans, self._variants(plans, missing, slots)])
        return plans

    def _variants(self, plans: Actions, count: int, slots: int) -> Actions:
        """Random changes of ``plans``; a change in one part also applies to the later parts."""
        variants = plans[self._rng.integers(len(plans), size=count)].copy()
        used = np.zeros(len(ACTION_SIZES), dtype=bool)
        used[: 2 * slots] = used[-1] = True
        for part in range(variants.shape[1]):
            change = used & (self._rng.random(variants.shape[::2]) < self._settings.change_share)
            drawn = self._rng.integers(np.array(ACTION_SIZES), size=change.shape)
            later = variants[:, part:]
            later[:] = np.where(change[:, None], drawn[:, None], later)
        return variants

    def _score(self, plans: Actions, sample: Sample, world: Exogenous) -> Array:
        """The value of each plan, ``(len(plans),)``."""
        settings, draws = self._settings, self._settings.draws
        parameters = [self._twin.draws[i] for i in self._twin.choose(self._rng, draws)]
        seed = int(self._rng.integers(2**31))
        simulation = open_simulation(
            self._twin, world, sample, parameters * len(plans), budgets=settings.budgets, seed=seed
        )
        set_reference_latencies(simulation, self._ample)
        value = np.zeros(simulation.batch)
        for part, length in enumerate(settings.parts):
            actions = np.repeat(plans[:, part], draws, axis=0)
            for _ in range(length):
                result = simulation.step(actions)
                value += result.progress - settings.price * result.violated
                value -= settings.excess_price * result.excess
                value -= settings.slow_price * result.slow + settings.switch_cost * result.moved
        by_draw = value.reshape(len(plans), draws) / sum(settings.parts)
        worst = settings.worst_share
        return np.asarray((1.0 - worst) * by_draw.mean(axis=1) + worst * by_draw.min(axis=1))


def _constant_actions(slots: int, profile: int) -> Actions:
    """The actions of constant plans: rungs of the staircase, and pauses of any set of slots.

    Each rung is taken with all slots together and with one slot after the other. A paused slot has
    the tightest limit.
    """
    present = np.zeros((1, SLOTS), dtype=bool)
    present[0, :slots] = True
    deepest = np.full(1, float(_DEEPEST))
    rows = []
    for stagger in (0.0, float(_DEEPEST)):
        top = int(staircase.top_rung(present, deepest, np.full(1, stagger))[0])
        for rung in range(top + 1):
            level = staircase.levels(np.full(1, rung), present, deepest, np.full(1, stagger))
            none = np.zeros_like(present)
            rows.append(staircase.actions(none, level, np.full(1, profile))[0])
    for paused in product((0, 1), repeat=slots):
        row = np.zeros(len(ACTION_SIZES), dtype=np.int64)
        row[0 : 2 * slots : 2] = paused
        row[1 : 2 * slots : 2] = _DEEPEST * np.array(paused)
        row[-1] = profile
        rows.append(row)
    return np.unique(np.array(rows), axis=0)


class MpcController:
    """Model-predictive control as a controller: a decision waits until its plan is made.

    Args:
        twin: A twin that is fitted to the programs on the node.
        settings: How to plan.
    """

    name = "mpc"
    needs_processes = False

    def __init__(self, twin: FittedTwin, settings: MpcSettings | None = None) -> None:
        self._twin = twin
        self._settings = settings or MpcSettings()
        self._ample = measure_ample([twin], NOMINAL, seed=1)
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def reset(self, context: NodeContext) -> None:
        """Forget the plan."""
        self._context = context
        target = replace(self._twin.scenario, slo_ms=context.slo_ms)
        self._planner = Planner(
            replace(self._twin, scenario=target), self._settings, self._ample, context.seed
        )
        self._action = _NO_ACTION
        self._next_s = float("-inf")

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Take the action in force, after making a new plan if the last one is old enough."""
        self._planner.watch(sample)
        if all(state.reference_bytes is None for state in sample.slot_states):
            return Decision(desired=RELEASED, reason="no background", action=_NO_ACTION)
        if sample.time_s >= self._next_s:
            self._next_s = sample.time_s + self._settings.replan_s
            self._replan(sample)
        action = self._action
        return Decision(
            desired=decode_action(action, sample.slot_states, self._floors(sample)),
            reason="as planned" if self._planner.took_ms else "waits for its first plan",
            action=action,
        )

    def _replan(self, sample: Sample) -> None:
        self._action = _as_tuple(self._planner.plan(sample))

    def _floors(self, sample: Sample) -> Sequence[int]:
        return [self._context.floor(i) for i in range(len(sample.slots))]


class PlanningController(MpcController):
    """MPC in real time: the last plan stays in force while a thread makes the next one."""

    def reset(self, context: NodeContext) -> None:
        """Forget the plan in force and the one that is being made."""
        self._next: Future[Actions] | None = None
        super().reset(context)

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Take the action of the newest finished plan.

        Raises:
            Exception: If planning failed; it is the exception of the planning thread.
        """
        if self._next is not None and self._next.done():
            self._action = _as_tuple(self._next.result())
            self._next = None
        return super().decide(sample, observation)

    def _replan(self, sample: Sample) -> None:
        if self._next is None:
            self._next = Future()
            # A daemon thread: the process does not wait for a plan when it ends.
            Thread(target=_plan, args=(self._planner, sample, self._next), daemon=True).start()


def _plan(planner: Planner, sample: Sample, future: Future[Actions]) -> None:
    try:
        future.set_result(planner.plan(sample))
    except BaseException as error:
        future.set_exception(error)


def _as_tuple(action: Actions) -> tuple[int, ...]:
    return tuple(int(value) for value in action)
