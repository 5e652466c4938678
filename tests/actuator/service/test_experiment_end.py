"""What was in force before an experiment is in force again after it, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, cast

import pytest
from service_without_loop import WAIT_S

from stallward.actuator.errors import ExperimentError
from stallward.actuator.experiments.file import load_state
from stallward.actuator.experiments.plan import Candidate, ExperimentPlan
from stallward.actuator.experiments.state import Progress
from stallward.actuator.service import experiment_runner
from stallward.actuator.service.callers import Context
from stallward.actuator.service.experiment_runner import ExperimentRunner
from stallward.actuator.service.loop_link import LoopLink
from stallward.actuator.service.servicer import ExperimentServicer
from stallward.proto.v1 import stallward_pb2 as pb

OLD, NEW = "/policies/old.onnx", "/policies/new.onnx"
AS_BEFORE = (OLD, pb.MODE_ACTIVE)
PLAN = ExperimentPlan(
    baseline=Candidate(),
    treatment=Candidate(policy=NEW),
    pairs=1,
    block_s=10.0,
    burn_in_s=0.0,
    seed=1,
)


class Loop:
    """A loop, and the connection to it, that puts the old policy back when the test lets it."""

    def __init__(self) -> None:
        self.path, self.mode = AS_BEFORE
        self.goes_on = asyncio.Event()
        self.answers = True

    @property
    def policy(self) -> pb.PolicyStatus:
        return pb.PolicyStatus(path=self.path, sha256=self.path)

    @property
    def in_force(self) -> tuple[str, int]:
        return self.path, self.mode

    def status(self) -> pb.StatusResponse:
        return pb.StatusResponse(mode=self.mode, policy=self.policy)

    async def ask(self, command: pb.Command, _timeout_s: float = 0.0) -> pb.CommandResult | None:
        if command.HasField("set_mode"):
            self.mode = command.set_mode.mode
            return pb.CommandResult()
        if command.load.path == OLD:
            await self.goes_on.wait()
            if not self.answers:
                return None
        self.path, self.mode = command.load.path, pb.MODE_OFF
        return pb.CommandResult(load=pb.LoadResponse(policy=self.policy))


class Call:
    """A call, which the service refuses by raising."""

    def peer(self) -> str:
        return "unix:"

    async def abort(self, _code: object, why: str) -> NoReturn:
        raise RuntimeError(why)


CONTEXT = cast("Context", Call())


def runner_of(loop: Loop, folder: Path) -> ExperimentRunner:
    return ExperimentRunner(cast("LoopLink", loop), folder, slo_ms=10.0, silence_s=5.0)


async def until(done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.001)


async def run_to_the_end(runner: ExperimentRunner, loop: Loop) -> None:
    """Run an experiment until the loop is asked to put back what was in force before."""
    await runner.start(PLAN)
    deadline_s, second = time.monotonic() + WAIT_S, 0
    while runner.phase is not None:
        assert time.monotonic() < deadline_s
        second += 1
        record = pb.TickRecord(time_s=second, mode=loop.mode)
        record.sample.latency.p95_ms = 5.0
        runner.take(record)
        await asyncio.sleep(0.001)


def test_no_other_experiment_begins_before_one_is_undone(tmp_path: Path) -> None:
    async def run() -> None:
        loop = Loop()
        runner = runner_of(loop, tmp_path)
        await run_to_the_end(runner, loop)
        assert runner.state is not None
        assert runner.state.progress is Progress.COMPLETE
        assert (runner.running, runner.ending) == (True, True)
        with pytest.raises(ExperimentError, match="runs already"):
            await runner.start(PLAN)
        servicer = ExperimentServicer(cast("LoopLink", loop))
        servicer.runner = runner
        waits = asyncio.create_task(servicer._refuse_during_experiment(CONTEXT))
        await asyncio.sleep(0.1)
        assert not waits.done(), "a client waits until it is undone"
        loop.goes_on.set()
        await waits
        assert not runner.running
        assert loop.in_force == AS_BEFORE
        await runner.start(PLAN)
        await until(lambda: loop.path == NEW)
        await runner.stop()
        assert loop.in_force == AS_BEFORE

    asyncio.run(run())


def test_what_a_service_that_died_had_not_undone_the_next_one_undoes(tmp_path: Path) -> None:
    async def run() -> None:
        loop = Loop()
        died = runner_of(loop, tmp_path)
        await run_to_the_end(died, loop)
        kept = load_state(tmp_path)
        while kept is None or kept.running:
            kept = load_state(tmp_path)
            await asyncio.sleep(0.001)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        assert loop.in_force != AS_BEFORE
        loop.goes_on.set()
        again = runner_of(loop, tmp_path)
        await again.resume()
        assert again.running
        await until(lambda: not again.running)
        assert loop.in_force == AS_BEFORE
        last = runner_of(loop, tmp_path)
        await last.resume()
        assert not last.running, "it is undone once"

    asyncio.run(run())


def test_a_loop_that_gives_no_answer_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment_runner, "_AGAIN_S", 0.001)

    async def run() -> None:
        loop = Loop()
        loop.goes_on.set()
        loop.answers = False
        runner = runner_of(loop, tmp_path)
        await run_to_the_end(runner, loop)
        await until(lambda: "what was in force before is not put back" in runner.problem)
        assert (runner.running, runner.ending) == (True, True)
        servicer = ExperimentServicer(cast("LoopLink", loop))
        servicer.runner = runner
        with pytest.raises(RuntimeError, match="An experiment has ended, and what"):
            await servicer.SetMode(pb.SetModeRequest(mode=pb.MODE_OFF), CONTEXT)
        loop.answers = True
        await until(lambda: not runner.running)
        assert loop.in_force == AS_BEFORE
        assert runner.problem == ""

    asyncio.run(run())


def test_a_loop_that_never_answers_does_not_keep_clients_out_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment_runner, "_AGAIN_S", 0.001)
    monkeypatch.setattr(experiment_runner, "_GIVE_UP_S", 0.01)

    async def run() -> None:
        loop = Loop()
        loop.goes_on.set()
        loop.answers = False
        runner = runner_of(loop, tmp_path)
        await run_to_the_end(runner, loop)
        await until(lambda: not runner.running)
        assert "what was in force before is not put back" in runner.problem
        kept = load_state(tmp_path)
        assert kept is not None
        assert not kept.left_to_undo, "an operator may have done something since"
        servicer = ExperimentServicer(cast("LoopLink", loop))
        servicer.runner = runner
        await servicer.SetMode(pb.SetModeRequest(mode=pb.MODE_OFF), CONTEXT)
        assert runner.problem == ""

    asyncio.run(run())
