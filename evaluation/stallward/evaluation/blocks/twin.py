"""Blocks on a twin, with the engine, guard and controllers of a node; no node is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.record.tick_record import TickRecord
from stallward.actuator.record.wire import TICK_RECORD
from stallward.agent.controller import Controller
from stallward.agent.controllers.onnx import OnnxController
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.registry import make_controller
from stallward.env.recording.node_facts import node_info, versions
from stallward.env.recording.recording import Requests, write_recording
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.env.scenario.scenario import Scenario
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.find import find_twin_of, load_twin_of
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.env.twin.node import TwinNode
from stallward.env.twin.one_shot import newly_ended
from stallward.env.twin.sample import FIRST_PID
from stallward.evaluation.blocks.request import Condition, Disturbances, RunRequest
from stallward.evaluation.errors import ComparisonError
from stallward.evaluation.planner import find_planner
from stallward.proto.v1 import stallward_pb2 as pb

_NEVER_LATE_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRunner:
    """Runs blocks on a fitted twin of a scenario.

    A block draws the twin's parameters with its seed, so all arms of a round have the same node.
    """

    twin: FittedTwin
    scenario: Scenario | None
    """``None`` for the twin of a node, which has no scenario file and runs together only."""
    node: NodeInfo

    @property
    def facts(self) -> NodeInfo:
        """The machine that the twin runs on, with the kind ``twin``."""
        return replace(self.node, kind="twin")

    def run_block(self, request: RunRequest, out: Path) -> Disturbances:
        """Run one block; see :class:`stallward.evaluation.blocks.request.Runner`."""
        exogenous = self._exogenous(request.condition, request.slo_ms)
        rng = np.random.default_rng(request.seed)
        chosen = int(self.twin.choose(rng, 1)[0])
        draw = self.twin.draws[chosen]
        others = () if not exogenous.others else tuple(own[chosen] for own in self.twin.others)
        node = TwinNode(exogenous, draw, others=others, seed=request.seed)
        length_s = request.burn_in_s + request.duration_s
        ticks = list(run_ticks(node, request, length_s))
        units = node.units()
        write_recording(
            out,
            run=RunInfo(
                scenario=self.twin.scenario.name,
                condition=request.condition,
                arm=request.arm.label,
                seed=request.seed,
                start_s=0.0,
                end_s=length_s,
                burn_in_s=request.burn_in_s,
                sandbox_bytes=exogenous.zone_bytes,
                slo_ms=request.slo_ms,
                node=replace(self.node, kind="none"),
                request_rate_per_s=exogenous.protected.request_rate_per_s,
                swap_bytes=exogenous.swap_bytes,
                slot_names=tuple(slot.name for slot in exogenous.slots),
                slot_floors_bytes=tuple(slot.floor_bytes for slot in exogenous.slots),
                scenario_parameters={} if self.scenario is None else self.scenario.content,
                other_applications=tuple(other.name for other in exogenous.others),
                versions=versions(),
                policy_sha256=request.policy_sha256,
            ),
            ticks=ticks,
            requests=Requests.empty() if request.condition == "background" else node.requests(),
            others={
                other.name: node.requests(1 + number)
                for number, other in enumerate(exogenous.others)
            },
            units=units,
        )
        return Disturbances()

    def _exogenous(self, condition: Condition, slo_ms: float) -> Exogenous:
        """The exogenous part of the twin in a condition."""
        exogenous = replace(self.twin.scenario, slo_ms=slo_ms)
        if condition == "alone":
            exogenous = replace(exogenous, slots=())
        if condition in ("ample", "background"):
            if self.scenario is None:
                raise ComparisonError(
                    f"{exogenous.name!r} is a node: nothing says how much memory would be ample."
                )
            exogenous = replace(exogenous, zone_bytes=self.scenario.sandbox.ample_bytes)
        if condition == "background":
            idle = replace(
                exogenous.protected,
                request_rate_per_s=0.0,
                anon_pages=0.0,
                file_pages=0.0,
                cold_pages=0.0,
            )
            exogenous = replace(exogenous, protected=idle, others=())
        return exogenous


def open_twin(scenario: Scenario, named: str) -> TwinRunner:
    """Make the runner for a scenario's twin.

    Args:
        scenario: The scenario of the comparison.
        named: File of a fitted twin, or ``default`` for the shipped one of the scenario.

    Raises:
        ComparisonError: If the twin was fitted to another scenario.
        TwinError: If it cannot be read.
    """
    twin = load_twin_of(scenario, named)
    if twin.scenario.name != scenario.name:
        raise ComparisonError(
            f"{find_twin_of(scenario.name, named)} is the twin of {twin.scenario.name!r}, not of {scenario.name!r}.",
            next_step=f"Fit one with `stallward fit` on recordings of {scenario.name}.",
        )
    return TwinRunner(twin=twin, scenario=scenario, node=node_info(Path.cwd()))


def run_ticks(node: TwinNode, request: RunRequest, length_s: float) -> Iterator[pb.TickRecord]:
    """Step a twin node under a controller and the guard; yields the record of every tick."""
    context = node.context(seed=request.seed)
    engine = Engine(
        settings=EngineSettings(
            context=context,
            budgets=Budgets(
                lift_budgets=request.arm.lifts_budgets,
                allow_terminate=request.arm.lifts_budgets,
            ),
            late_s=_NEVER_LATE_S,
        ),
        configured=_controller(request),
        default=make_controller("none"),
    )
    before = RELEASED
    for _ in range(round(length_s / context.tick_period_s)):
        sample = node.sample()
        outcome = engine.step(sample, late=False)
        yield TICK_RECORD.to_wire(
            TickRecord(
                sequence=sample.sequence,
                time_s=sample.time_s,
                wall_time_s=sample.time_s,
                sample=sample,
                observation=tuple(float(v) for v in outcome.observation),
                decision=outcome.decision,
                granted=outcome.granted,
                reasons=outcome.reasons,
                applied=_terminations(outcome.granted, before),
                mode=outcome.mode,
                fallback=outcome.fallback,
            )
        )
        node.step(outcome.granted)
        before = outcome.granted


def _terminations(granted: DesiredState, before: DesiredState) -> tuple[LeverResult, ...]:
    """The results that a node would report for a termination; other levers are in the samples."""
    value = "SIGKILL" if granted.kill_at_once else "SIGTERM"
    return tuple(
        LeverResult(lever=f"terminate:{FIRST_PID + slot}", value=value)
        for slot in newly_ended(granted, before, FIRST_PID)
    )


def _controller(request: RunRequest) -> Controller:
    if not request.arm.runs_policy:
        return make_controller(request.arm.spec)
    if request.policy is None:
        raise ComparisonError(f"The arm {request.arm.label!r} has no policy file.")
    if request.arm.controller == "mpc":
        return find_planner("mpc").on_twin(load_fitted(request.policy))
    return OnnxController(request.policy)
