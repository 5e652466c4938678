"""``stallward bench decisions``: what each controller's decision costs in a tick.

A twin node is controlled by it, and the CPU time of each step of the engine is taken: of the
observation, the decision and the guard. What reading the sample and acting cost is not in it; the
former depends on whether the controller looks at processes, or at the application's threads. The
node counts as one that lacks nothing, because a decision costs the same whether or not a twin can
act on it, and it has threads for those who look at them.

A policy is run as the loop runs it. ``mpc`` decides in a process of its own on a node, because a
plan takes longer than a tick; here its plans are made in the ticks in which they are due.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.agent.controller import Controller, needs_threads
from stallward.agent.registry import controllers, make_controller
from stallward.agent.threads import ThreadSample
from stallward.benchmarks.errors import BenchError
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.env.twin.node import TwinNode
from stallward.evaluation.arms import Arm, parse_arms
from stallward.evaluation.planner import find_planner
from stallward.models.registry import find_twin
from stallward.training.progress import Report, silent

_WARM_UP_TICKS: Final = 20
_NEVER_LATE_S: Final = 1e9
_THREADS: Final = 8
"""The threads of the application, for controllers that look at them."""
_BRIEF: Final = 4
"""Of them, those that run briefly."""
_CPUS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionCost:
    """What the decisions of one arm cost, in CPU time."""

    arm: str
    p50_us: float
    p99_us: float
    needs_processes: bool
    """Whether the sample must list processes for it."""
    needs_threads: bool
    """Whether the sample must list the application's threads for it."""
    in_loop: bool
    """Whether the loop waits for it. ``mpc`` decides in a process of its own."""


_NOT_TIMED: Final = ("onnx", "remote")
"""They run a policy that one names, and the shipped one in another process: as ``ppo`` does."""


def timed_arms() -> str:
    """Every controller that has a cost of its own, as arms."""
    return ",".join(entry.name for entry in controllers() if entry.name not in _NOT_TIMED)


def bench_decisions(
    twin: FittedTwin, arms: str, *, ticks: int, seed: int = 1, report: Report = silent
) -> list[DecisionCost]:
    """Time the decisions of arms on a twin node.

    Args:
        twin: The twin; each arm has a node of its first draw.
        arms: The arms, as for ``stallward compare``.
        ticks: The ticks that are timed.
        seed: The seed of the node.
        report: Called with the progress.

    Raises:
        BenchError: If an arm decides in another process and cannot do so here.
        StallwardError: If an arm is not known.
    """
    parsed = parse_arms(arms)
    costs = []
    for number, arm in enumerate(parsed):
        if arm.peer or arm.controller == "remote":
            raise BenchError(
                f"The arm {arm.label!r} decides in a program of its own.",
                next_step="Name controllers; 'ppo' is the policy that 'remote' runs.",
            )
        report(arm.label, number / len(parsed))
        costs.append(_cost(twin, arm, ticks, seed))
    report("done", 1.0)
    return costs


def _cost(twin: FittedTwin, arm: Arm, ticks: int, seed: int) -> DecisionCost:
    node = TwinNode(twin.scenario, twin.draws[0], seed=seed)
    controller = _controller(twin, arm)
    engine = Engine(
        settings=EngineSettings(
            context=replace(node.context(seed=seed), lacks={}),
            budgets=Budgets(
                lift_budgets=arm.lifts_budgets,
                allow_terminate=arm.lifts_budgets,
                allow_protected_threads=arm.moves_threads,
            ),
            late_s=_NEVER_LATE_S,
        ),
        configured=controller,
        default=make_controller("none"),
    )
    took_us = []
    for tick in range(_WARM_UP_TICKS + ticks):
        sample = node.sample()
        if arm.moves_threads:
            sample = replace(sample, protected_threads=_threads(tick))
        began_ns = time.thread_time_ns()
        outcome = engine.step(sample, late=False)
        took_us.append((time.thread_time_ns() - began_ns) / 1e3)
        node.step(outcome.granted)
    p50_us, p99_us = np.quantile(took_us[_WARM_UP_TICKS:], (0.5, 0.99))
    return DecisionCost(
        arm=arm.label,
        p50_us=float(p50_us),
        p99_us=float(p99_us),
        needs_processes=controller.needs_processes,
        needs_threads=needs_threads(controller),
        in_loop=not arm.decides_remotely,
    )


def _controller(twin: FittedTwin, arm: Arm) -> Controller:
    """The controller of an arm; ``mpc`` plans on the node's own twin unless it names another."""
    if arm.controller != "mpc":
        return make_controller(arm.spec)
    named = arm.arguments.get("path")
    return find_planner("mpc").on_twin(load_fitted(find_twin(named)) if named else twin)


def _threads(tick: int) -> tuple[ThreadSample, ...]:
    """The threads of an application at a tick: some run briefly, the others fill the CPUs.

    One after the other is the only one that is ready.
    """
    return tuple(
        ThreadSample(
            pid=1000,
            tid=1000 + number,
            start_time_ticks=1,
            state="R" if tick % _THREADS == number else "S",
            cpu=number % _CPUS,
            run_us=(1_000 if number < _BRIEF else 5_000 * number) * tick,
            wait_us=3_000 * number * tick,
            voluntary_switches=tick,
            involuntary_switches=tick,
            nice=0,
            slice_us=1_400,
            cpus=tuple(range(_CPUS)),
        )
        for number in range(_THREADS)
    )
