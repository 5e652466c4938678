"""Runs an experiment on the node: makes the arm of each block decide, and adds up its ticks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ExperimentError
from stallward.actuator.experiments.block_tally import BlockResult, BlockTally, Loss, TickFacts
from stallward.actuator.experiments.file import load_state, save_state
from stallward.actuator.experiments.plan import Candidate, ExperimentPlan
from stallward.actuator.experiments.state import Before, ExperimentState, Progress
from stallward.actuator.experiments.wire import Phase
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.loop_link import LoopLink
from stallward.proto.v1 import stallward_pb2 as pb

LOAD_ANSWER_S: Final = 30.0
"""How long the runner waits for a policy to be loaded."""
_LEAST_SILENCE_S: Final = 2.0
_MODES: Final = {"off": pb.MODE_OFF, "shadow": pb.MODE_SHADOW, "active": pb.MODE_ACTIVE}


class LoadRefusedError(Exception):
    """The loop did not load a policy.

    Args:
        code: The name of a gRPC status code.
        message: Why.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class ExperimentRunner:
    """Runs one experiment at a time, by the ticks that arrive. The event loop's thread uses it.

    Blocks are timed by the loop's own clock, so time in which the loop is silent is no part of
    any. An experiment that cannot be kept on the disk goes on, and ``problem`` says so.

    Args:
        link: The connection to the loop.
        folder: Where the experiment is kept.
        slo_ms: The latency target.
        silence_s: A longer time between two ticks loses a block.
        now_s: Returns the Unix time.
    """

    def __init__(
        self,
        link: LoopLink,
        folder: Path,
        *,
        slo_ms: float,
        silence_s: float,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._link = link
        self._folder = folder
        self._slo_ms = slo_ms
        self._silence_s = max(silence_s, _LEAST_SILENCE_S)
        self._now_s = now_s
        self._tally: BlockTally | None = None
        """That of the block that runs; ``None`` while the arms change places."""
        self._start_s: float | None = None
        self._time_s = self._block_began_s = 0.0
        self._changing: asyncio.Task[None] | None = None
        self._starting = False
        self.state: ExperimentState | None = None
        """The experiment that runs, or the last one."""
        self.problem = ""
        """What is wrong with keeping experiments; empty for nothing."""

    @property
    def running(self) -> bool:
        """Whether the arms of an experiment decide now, or are about to."""
        return self._starting or (self.state is not None and self.state.running)

    @property
    def phase(self) -> Phase | None:
        """Where the experiment is; ``None`` if none runs."""
        if self.state is None or not self.state.running:
            return None
        plan, block = self.state.plan, len(self.state.blocks)
        elapsed_s = 0.0 if self._start_s is None else self._time_s - self._start_s
        return Phase(
            block=block,
            blocks=plan.blocks,
            arm=plan.arm_of(block),
            measured=elapsed_s >= plan.burn_in_s,
            left_s=max(plan.burn_in_s + plan.block_s - elapsed_s, 0.0),
        )

    async def resume(self) -> None:
        """Go on with the experiment that ran before a restart; the block that ran is lost."""
        try:
            self.state = await asyncio.to_thread(load_state, self._folder)
        except ExperimentError as error:
            self.problem = f"experiments: {error}"
            return
        if self.state is not None and self.state.running:
            number = len(self.state.blocks)
            lost = BlockResult(
                pair=number // 2,
                arm=self.state.plan.arm_of(number),
                began_s=self._now_s(),
                loss=Loss.SERVICE_RESTARTED,
            )
            say(f"The experiment goes on after block {number}, which is lost.", "service")
            self._advance(self.state.with_block(lost))

    async def start(self, plan: ExperimentPlan) -> ExperimentState:
        """Start an experiment.

        Raises:
            ExperimentError: If one runs already, both arms are the same, or it cannot be kept.
            LoadRefusedError: If the policy of an arm cannot be loaded.
        """
        if self.running:
            raise ExperimentError(
                "An experiment runs already.", next_step="Stop it first: stallward ab stop."
            )
        self._starting = True
        try:
            return await self._start(plan)
        finally:
            self._starting = False

    async def _start(self, plan: ExperimentPlan) -> ExperimentState:
        before = self._in_force()
        try:
            baseline = await self._resolved(plan.baseline)
            treatment = await self._resolved(plan.treatment)
            if baseline.sha256 == treatment.sha256:
                raise ExperimentError(
                    "Both arms are the same controller.", next_step="Give two different ones."
                )
            resolved = replace(plan, baseline=baseline, treatment=treatment)
            state = ExperimentState(plan=resolved, before=before, began_s=self._now_s())
            await asyncio.to_thread(save_state, self._folder, state)
        except (ExperimentError, LoadRefusedError):
            await self._put_back(before)
            raise
        self.problem = ""
        self._advance(state)
        return state

    async def stop(self) -> ExperimentState:
        """Stop the experiment that runs, and put back what was in force before.

        Raises:
            ExperimentError: If none runs.
        """
        if self.state is None or not self.state.running:
            raise ExperimentError("No experiment runs.")
        if self._changing is not None:
            await asyncio.wait({self._changing})
        if self.state.running:
            self._advance(self.state.ended(Progress.STOPPED, self._now_s()))
        if self._changing is not None:
            await asyncio.wait({self._changing})
        return self.state

    def take(self, record: pb.TickRecord) -> None:
        """Take one tick."""
        if self._tally is None or self.state is None:
            return
        if self._start_s is None:
            self._start_s, self._block_began_s = record.time_s, self._now_s()
        is_late = record.time_s - self._time_s > self._silence_s
        self._time_s = record.time_s
        plan, elapsed_s = self.state.plan, record.time_s - self._start_s
        if elapsed_s < plan.burn_in_s:
            return
        arm = plan.arm_of(len(self.state.blocks))
        is_over = elapsed_s >= plan.burn_in_s + plan.block_s
        if is_late or not is_over:  # a late tick loses the block, also when it is over by then
            self._tally.take(_facts(record, fits=self._decides(plan.candidate(arm), record)))
        if not is_over and not self.state.breaks_guardrail(arm, self._tally.batches):
            return
        number = len(self.state.blocks)
        result = self._tally.result(
            pair=number // 2,
            arm=arm,
            began_s=self._block_began_s,
            block_s=min(elapsed_s - plan.burn_in_s, plan.block_s),
        )
        self._advance(self.state.with_block(result))

    def _advance(self, state: ExperimentState) -> None:
        """Go on to the next block, or end."""
        self._tally, self._start_s = None, None
        if not state.running and state.ended_s is None:
            state = state.ended(state.progress, self._now_s())
        self.state = state
        self._changing = asyncio.create_task(self._change(state))

    async def _change(self, state: ExperimentState) -> None:
        try:
            await asyncio.to_thread(save_state, self._folder, state)
            self.problem = ""
        except ExperimentError as error:
            self.problem = f"experiments: {error}"
        if state.running:
            candidate = state.plan.candidate(state.plan.arm_of(len(state.blocks)))
            # If that fails, the ticks show it, and the block is lost.
            await self._make_decide(candidate)
            self._tally = BlockTally(slo_ms=self._slo_ms, silence_s=self._silence_s)
        else:
            say(f"The experiment ended: {state.progress}.", "service")
            await self._put_back(state.before)
        self._changing = None

    async def _make_decide(self, candidate: Candidate) -> bool:
        """Make a controller decide; returns whether it does."""
        if not candidate.is_policy:
            return await self._set_mode(pb.MODE_OFF)
        loaded = self._link.policy
        if loaded is None or loaded.sha256 != candidate.sha256:
            try:
                loaded = await self._load(candidate.policy)
            except LoadRefusedError as error:
                say(f"{candidate.policy} cannot be loaded: {error.message}", "service")
                return False
        return loaded.sha256 == candidate.sha256 and await self._set_mode(pb.MODE_ACTIVE)

    async def _put_back(self, before: Before) -> None:
        """Put back what was in force before the experiment."""
        loaded = self._link.policy
        try:
            if before.policy and (loaded is None or loaded.path != before.policy):
                await self._load(before.policy)
        except LoadRefusedError as error:
            say(f"{before.policy} cannot be loaded again: {error.message}", "service")
            await self._set_mode(pb.MODE_OFF)
            return
        await self._set_mode(_MODES[before.mode])

    def _in_force(self) -> Before:
        status = self._link.status()
        if status is None or not status.HasField("policy"):
            return Before()
        mode = next((name for name, wire in _MODES.items() if wire == status.mode), "off")
        return Before(policy=status.policy.path, mode=mode)

    async def _resolved(self, candidate: Candidate) -> Candidate:
        """The candidate with the file and the digest that its name means now."""
        if not candidate.is_policy:
            return Candidate()
        loaded = await self._load(candidate.policy)
        return Candidate(policy=loaded.path, sha256=loaded.sha256)

    async def _load(self, policy: str) -> pb.PolicyStatus:
        command = pb.Command(load=pb.LoadRequest(path=policy))
        result = await self._link.ask(command, LOAD_ANSWER_S)
        if result is None:
            raise LoadRefusedError("UNAVAILABLE", "The loop does not answer.")
        if result.code:
            raise LoadRefusedError(result.code, result.message)
        return result.load.policy

    async def _set_mode(self, mode: pb.Mode) -> bool:
        result = await self._link.ask(pb.Command(set_mode=pb.SetModeRequest(mode=mode)))
        return result is not None and not result.code

    def _decides(self, candidate: Candidate, record: pb.TickRecord) -> bool:
        """Whether a controller is in force at a tick."""
        is_active = record.mode == pb.MODE_ACTIVE
        if not candidate.is_policy:
            return not is_active
        loaded = self._link.policy
        return is_active and loaded is not None and loaded.sha256 == candidate.sha256


def _facts(record: pb.TickRecord, *, fits: bool) -> TickFacts:
    latency, slots = record.sample.latency, record.sample.slots
    known = all(slot.HasField("cpu_usage_us") for slot in slots)
    return TickFacts(
        time_s=record.time_s,
        p95_ms=latency.p95_ms if latency.HasField("p95_ms") else None,
        background_cpu_us=sum(slot.cpu_usage_us for slot in slots) if known else None,
        fallback=record.fallback,
        leased=record.decision.leased,
        fits=fits,
    )
