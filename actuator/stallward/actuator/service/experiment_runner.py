"""Runs an experiment on the node: makes the arm of each block decide, and adds up its ticks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ExperimentError
from stallward.actuator.experiments.block_tally import (
    BackgroundCpu,
    BlockResult,
    BlockTally,
    Loss,
    SlotTotals,
    TickFacts,
)
from stallward.actuator.experiments.file import load_state, save_state
from stallward.actuator.experiments.plan import Arm, ExperimentPlan
from stallward.actuator.experiments.state import ExperimentState, Progress
from stallward.actuator.experiments.wire import HISTOGRAM, Phase
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.arm_switch import ArmSwitch, LoadRefusedError
from stallward.actuator.service.loop_link import LoopLink
from stallward.agent.latency_histogram import merged
from stallward.proto.v1 import stallward_pb2 as pb

_LEAST_SILENCE_S: Final = 2.0
_AGAIN_S: Final = 1.0
"""The time until the loop is asked again to put back what was in force before."""
_GIVE_UP_S: Final = 300.0
"""For so long it is asked; until then clients are refused to change policies."""
_NOT_PUT_BACK: Final = (
    "experiments: the loop gave no answer, so what was in force before is not put back"
)


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
        self._arms = ArmSwitch(link)
        self._folder = folder
        self._slo_ms = slo_ms
        self._silence_s = max(silence_s, _LEAST_SILENCE_S)
        self._now_s = now_s
        self._tally: BlockTally | None = None
        """That of the block that runs; ``None`` while the arms change places."""
        self._ended: tuple[BlockTally, Callable[[], BlockResult]] | None = None
        """That of the block before and what makes its result, until the next answer comes."""
        self._cpu = BackgroundCpu()
        self._start_s: float | None = None
        self._time_s = self._block_began_s = 0.0
        self._judged_batches = 0
        self._changing: asyncio.Task[None] | None = None
        self._undoing: asyncio.Task[None] | None = None
        self._starting = False
        self.state: ExperimentState | None = None
        """The experiment that runs, or the last one."""
        self.problem = ""
        """What is wrong with keeping or undoing experiments; empty for nothing."""

    @property
    def running(self) -> bool:
        """Whether an experiment decides what is in force, from its start until it is undone."""
        return self._starting or self.ending or (self.state is not None and self.state.running)

    @property
    def ending(self) -> bool:
        """Whether an experiment has ended, and what was in force before is being put back."""
        return self.state is not None and self.state.left_to_undo

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
        if self.state is not None and self.state.left_to_undo:
            self._changing = asyncio.create_task(self._change(self.state))
        elif self.state is not None and self.state.running:
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
        before = self._arms.in_force()
        try:
            baseline = await self._arms.resolved(plan.baseline)
            treatment = await self._arms.resolved(plan.treatment)
            if baseline.sha256 == treatment.sha256:
                raise ExperimentError(
                    "Both arms are the same controller.", next_step="Give two different ones."
                )
            resolved = replace(plan, baseline=baseline, treatment=treatment)
            state = ExperimentState(plan=resolved, before=before, began_s=self._now_s())
            await asyncio.to_thread(save_state, self._folder, state)
        except (ExperimentError, LoadRefusedError):
            if not await self._arms.put_back(before):
                self.problem = _NOT_PUT_BACK
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
        await self.settled()
        if self.state.running:
            self._advance(self.state.ended(Progress.STOPPED, self._now_s()))
            await self.settled()
        return self.state

    async def settled(self) -> None:
        """Wait until no arm is being changed: a tick may have begun another change meanwhile."""
        while self._changing is not None:
            await asyncio.wait({self._changing})

    def changed_by_client(self) -> None:
        """A client has decided what is in force since, so nothing is to be put back any more."""
        if self.problem == _NOT_PUT_BACK:
            self.problem = ""

    def take(self, record: pb.TickRecord) -> None:
        """Take one tick."""
        self._look_back(record)
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
            fits = self._arms.decides(plan.candidate(arm), record)
            self._tally.take(_facts(record, self._cpu, fits=fits))
        if not is_over and not self._breaks_guardrail(self.state, self._tally, arm):
            return
        number = len(self.state.blocks)
        result = partial(
            self._tally.result,
            pair=number // 2,
            arm=arm,
            began_s=self._block_began_s,
            block_s=min(elapsed_s - plan.burn_in_s, plan.block_s),
        )
        self._ended = (self._tally, result)
        self._advance(self.state.with_block(result()))
        self._look_back(record)

    def _look_back(self, record: pb.TickRecord) -> None:
        """Let the first answer after a block tell whether requests waited at its end.

        The guardrail sees it with the next batch or block.
        """
        latency = record.sample.latency
        if self._ended is None or self.state is None or not latency.HasField("p95_ms"):
            return
        (tally, result), self._ended = self._ended, None
        tally.note_answer(record.time_s, _longest_ms(latency))
        self.state = self.state.with_last(result())

    def _breaks_guardrail(self, state: ExperimentState, tally: BlockTally, arm: Arm) -> bool:
        """Whether the treatment certainly misses the target too often; asked once a batch."""
        batches = tally.batches
        if len(batches) == self._judged_batches:
            return False
        self._judged_batches = len(batches)
        return state.breaks_guardrail(arm, batches)

    def _advance(self, state: ExperimentState) -> None:
        """Go on to the next block, or end."""
        self._tally, self._start_s, self._judged_batches = None, None, 0
        if not state.running:
            self._ended = None
            if state.ended_s is None:
                state = state.ended(state.progress, self._now_s())
        self.state = state
        self._changing = asyncio.create_task(self._change(state))

    async def _change(self, state: ExperimentState) -> None:
        try:
            await self._change_to(state)
        finally:
            self._changing = None

    async def _change_to(self, state: ExperimentState) -> None:
        """Keep the state, and make the arm of its next block decide, or what did before."""
        await self._keep(state)
        if state.running:
            candidate = state.plan.candidate(state.plan.arm_of(len(state.blocks)))
            # If that fails, the ticks show it, and the block is lost.
            await self._arms.make_decide(candidate)
            self._tally = BlockTally(slo_ms=self._slo_ms, silence_s=self._silence_s)
        else:
            say(f"The experiment ended: {state.progress}.", "service")
            if await self._arms.put_back(state.before):
                await self._undone(state)
            else:
                self.problem = _NOT_PUT_BACK
                self._undoing = asyncio.create_task(self._undo(state))

    async def _undo(self, state: ExperimentState) -> None:
        """Put back what was in force before as soon as the loop answers, or give up."""
        until_s = time.monotonic() + _GIVE_UP_S
        is_back = False
        while not is_back and time.monotonic() < until_s:
            await asyncio.sleep(_AGAIN_S)
            is_back = await self._arms.put_back(state.before)
        await self._undone(state)
        if not is_back:
            self.problem = _NOT_PUT_BACK

    async def _undone(self, state: ExperimentState) -> None:
        """Note that nothing is left to undo; then clients may change policies again."""
        await self._keep(state.undone())  # first, or it might replace the next experiment
        self.state = state.undone()

    async def _keep(self, state: ExperimentState) -> None:
        try:
            await asyncio.to_thread(save_state, self._folder, state)
            self.problem = ""
        except ExperimentError as error:
            self.problem = f"experiments: {error}"


def _facts(record: pb.TickRecord, cpu: BackgroundCpu, *, fits: bool) -> TickFacts:
    latency, slots = record.sample.latency, record.sample.slots
    used = [(s.name, s.cpu_usage_us if s.HasField("cpu_usage_us") else None) for s in slots]
    work = record.sample.work
    units = {one.unit for one in work}
    one_unit = len(work) == len(slots) and len(units) == 1
    parts = [one.latency for one in record.sample.applications] or [latency]  # of each its own
    new = [HISTOGRAM.from_wire(one.new_requests) for one in parts if one.HasField("new_requests")]
    return TickFacts(
        time_s=record.time_s,
        p95_ms=latency.p95_ms if latency.HasField("p95_ms") else None,
        longest_ms=_longest_ms(latency),
        background_cpu_us=cpu.take(used),
        work_unit=units.pop() if one_unit else "",
        work=tuple(SlotTotals(units=one.units, known_s=one.known_s) for one in work)
        if one_unit
        else (),
        new_requests=merged(new) if new else None,
        fallback=record.fallback,
        leased=record.decision.leased,
        fits=fits,
    )


def _longest_ms(latency: pb.LatencySample) -> float | None:
    return latency.max_ms if latency.HasField("max_ms") else None
