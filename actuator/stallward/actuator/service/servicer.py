"""Answers the calls of clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.metadata import version
from typing import Final

import grpc

from stallward.actuator.errors import ExperimentDiskError, ExperimentError
from stallward.actuator.experiments.wire import EXPERIMENT, EXPERIMENT_PLAN, PHASE, Experiment
from stallward.actuator.policies.store import PolicyStore
from stallward.actuator.service.advice import AdviceLog
from stallward.actuator.service.arm_switch import LoadRefusedError
from stallward.actuator.service.callers import Context, door_of, holder_of
from stallward.actuator.service.canary_watch import CanaryWatch
from stallward.actuator.service.experiment_runner import ExperimentRunner
from stallward.actuator.service.latency_reports import LatencyReports
from stallward.actuator.service.loop_link import ANSWER_S, LoopLink
from stallward.actuator.service.policy_servicer import RESTARTING, PolicyServicer
from stallward.actuator.service.target_seconds import TargetSeconds
from stallward.actuator.service.watchers import MOST_WATCHERS, TooManyWatchersError
from stallward.proto.v1 import stallward_pb2 as pb

# ---------- Answers the calls about experiments

_NO_FOLDER: Final = "No folder for experiments is configured. Set dir under [experiments]."
_RUNS: Final = "An experiment runs. Stop it first: stallward ab stop."
_ENDS: Final = (
    "An experiment has ended, and what was in force before is being put back. Try again in a few "
    "seconds."
)


class ExperimentServicer(PolicyServicer):
    """Answers the calls about experiments, and refuses calls that would disturb one."""

    runner: ExperimentRunner | None = None
    """Runs experiments; ``None`` if no folder for them is configured."""

    async def StartExperiment(  # noqa: N802 - gRPC's name
        self, request: pb.StartExperimentRequest, context: Context
    ) -> pb.StartExperimentResponse:
        """Compare two controllers on this node."""
        runner = await self._needed_runner(context)
        try:
            plan = EXPERIMENT_PLAN.from_wire(request.plan)
            await self._refuse_during_experiment(context)
            # To its end, even if the client goes away: else the arm that was tried might stay.
            await asyncio.shield(runner.start(plan))
        except LoadRefusedError as error:
            await self.refusals.refuse(context, grpc.StatusCode[error.code], error.message)
        except ExperimentDiskError as error:
            await self.refusals.refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except ExperimentError as error:
            await self.refusals.refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.StartExperimentResponse(experiment=_shown(runner))

    async def GetExperiment(  # noqa: N802
        self, request: pb.GetExperimentRequest, context: Context
    ) -> pb.GetExperimentResponse:
        """The experiment that runs, or else the last one."""
        runner = await self._needed_runner(context)
        if runner.state is None:
            # An answer rather than a refusal: `ab status --nodes` also asks nodes that have none.
            await context.abort(grpc.StatusCode.NOT_FOUND, "There was no experiment.")
        return pb.GetExperimentResponse(experiment=_shown(runner))

    async def StopExperiment(  # noqa: N802
        self, request: pb.StopExperimentRequest, context: Context
    ) -> pb.StopExperimentResponse:
        """Stop the experiment that runs."""
        runner = await self._needed_runner(context)
        try:
            await asyncio.shield(runner.stop())
        except ExperimentError as error:
            await self.refusals.refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.StopExperimentResponse(experiment=_shown(runner))

    async def Load(  # noqa: N802
        self, request: pb.LoadRequest, context: Context
    ) -> pb.LoadResponse:
        """Load a policy, unless an experiment runs."""
        await self._refuse_during_experiment(context)
        answer = await super().Load(request, context)
        self._note_change()
        return answer

    async def RemovePolicy(  # noqa: N802
        self, request: pb.RemovePolicyRequest, context: Context
    ) -> pb.RemovePolicyResponse:
        """Remove a policy, unless an experiment runs, which may need it."""
        await self._refuse_during_experiment(context)
        return await super().RemovePolicy(request, context)

    async def SetMode(  # noqa: N802
        self, request: pb.SetModeRequest, context: Context
    ) -> pb.SetModeResponse:
        """Set the mode of the loaded policy, unless an experiment runs."""
        await self._refuse_during_experiment(context)
        answer = await super().SetMode(request, context)
        self._note_change()
        return answer

    async def RollBack(  # noqa: N802
        self, request: pb.RollBackRequest, context: Context
    ) -> pb.RollBackResponse:
        """Activate the policy that was active before, unless an experiment runs."""
        await self._refuse_during_experiment(context)
        answer = await super().RollBack(request, context)
        self._note_change()
        return answer

    def _note_change(self) -> None:
        if self.runner is not None:
            self.runner.changed_by_client()

    async def _refuse_during_experiment(self, context: Context) -> None:
        if self.runner is not None and self.runner.ending:
            await self.runner.settled()  # which takes milliseconds unless the loop gives no answer
        if self.runner is not None and self.runner.running:
            why = _ENDS if self.runner.ending else _RUNS
            await self.refusals.refuse(context, grpc.StatusCode.FAILED_PRECONDITION, why)

    async def _needed_runner(self, context: Context) -> ExperimentRunner:
        if self.runner is None:
            await self.refusals.refuse(context, grpc.StatusCode.FAILED_PRECONDITION, _NO_FOLDER)
        return self.runner


def _shown(runner: ExperimentRunner) -> pb.Experiment | None:
    """Return the experiment that runs, or else the last one, as clients see it."""
    state = runner.state
    if state is None:
        return None
    return EXPERIMENT.to_wire(
        Experiment(
            plan=state.plan,
            progress=state.progress,
            began_s=state.began_s,
            ended_s=state.ended_s,
            blocks=state.blocks,
            phase=runner.phase,
        )
    )


_VERSION: Final = version("stallward")
"""Looked up once: that takes a third of a millisecond, and files that may not be in memory."""
_TOO_MANY: Final = f"{MOST_WATCHERS} clients watch already."


class Servicer(ExperimentServicer):
    """Answers clients by asking the loop. A refused call gets the reason and is counted.

    Args:
        link: The connection to the loop.
        silence_s: The time without a tick after which the loop counts as gone.
        reports: Receives reported latencies, by application; see :class:`ReportServicer`.
        latency_source: The configured source of latencies; empty for none.
        store: The policies that were sent; ``None`` if no folder for them is configured.
        slo_ms: The latency target; ``None`` if it is not known.
        advice_interval_s: The least time between two pieces of advice.
    """

    def __init__(
        self,
        link: LoopLink,
        silence_s: float,
        reports: Mapping[str, LatencyReports] | None = None,
        latency_source: str = "",
        store: PolicyStore | None = None,
        slo_ms: float | None = None,
        advice_interval_s: float = 10.0,
    ) -> None:
        super().__init__(link, reports, latency_source, store)
        self._silence_s = silence_s
        self._slo_ms = slo_ms
        self._target: Final = TargetSeconds()
        self.advice: Final = AdviceLog(advice_interval_s, slo_ms)
        self.canary: CanaryWatch | None = None
        """Watches policies that were activated."""
        self.problems: Callable[[], tuple[str, ...]] = tuple
        """Returns what the service itself cannot do now, and why."""

    def take(self, record: pb.TickRecord) -> None:
        """Pass a tick to what watches. An experiment changes policies, which is not the canary's."""
        self.advice.take(record)
        self._target.take(record)
        if self.runner is not None and self.runner.running:
            self.runner.take(record)
        elif self.canary is not None:
            self.canary.take(record)

    async def Status(  # noqa: N802 - gRPC's name
        self, request: pb.StatusRequest, context: Context
    ) -> pb.StatusResponse:
        """The daemon's status."""
        # The loop is not asked, so that a thousand calls a second cannot delay a tick.
        await self._link.wait_for_status(ANSWER_S)  # so clients need not retry at the start
        status = self._link.status()
        if status is None or self._link.silent_s > self._silence_s:
            await self.refusals.refuse(context, grpc.StatusCode.UNAVAILABLE, RESTARTING)
        status.version = _VERSION
        if self._slo_ms is not None:
            status.slo_ms = self._slo_ms
        status.refused.update(self.refusals.counts)
        own = self.own_status()
        status.missing.extend(own.problems)
        times = {one.name: one for one in own.applications}
        own.ClearField("applications")  # merging would list them twice
        status.MergeFrom(own)
        for one in status.applications:
            if one.name in times:
                one.MergeFrom(times[one.name])
        status.records_dropped += self._link.watchers.skipped
        return status

    def own_status(self) -> pb.StatusResponse:
        """The part of the status that the service knows, and not the loop."""
        own = pb.StatusResponse(
            met_s=self._target.met_s,
            missed_s=self._target.missed_s,
            applications=[
                pb.ApplicationStatus(name=name, met_s=met_s, missed_s=missed_s)
                for name, (met_s, missed_s) in self._target.of.items()
            ],
        )
        if self.canary is not None:
            own.canary.CopyFrom(self.canary.status())
        unkept = ""
        if self.runner is not None:
            unkept = self.runner.problem
            if self.runner.phase is not None:
                own.experiment.CopyFrom(PHASE.to_wire(self.runner.phase))
        own.problems.extend(filter(None, (*self.problems(), self._not_noted, unkept)))
        return own

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        """Stream tick records as they happen."""
        every = max(request.every, 1)
        try:
            with self._link.watchers.watch(door_of(context)) as watcher:
                await context.send_initial_metadata(())  # the client knows that it is watching
                while True:
                    record = await watcher.queue.get()
                    if record.sequence % every == 0:
                        yield pb.WatchResponse(record=record, skipped=watcher.skipped)
        except TooManyWatchersError:
            await self.refusals.refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _TOO_MANY)

    async def Advise(  # noqa: N802
        self, request: pb.AdviseRequest, context: Context
    ) -> AsyncIterator[pb.AdviseResponse]:
        """Stream what a policy in advice mode would do."""
        if not request.follow:
            for advice in self.advice.last(request.last):
                yield pb.AdviseResponse(advice=advice)
            return
        try:
            with self.advice.watchers.watch(door_of(context)) as watcher:
                before = self.advice.last(request.last)
                await context.send_initial_metadata(())  # the client knows that it follows
                for advice in before:
                    yield pb.AdviseResponse(advice=advice)
                while True:
                    advice = await watcher.queue.get()
                    yield pb.AdviseResponse(advice=advice, skipped=watcher.skipped)
        except TooManyWatchersError:
            await self.refusals.refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _TOO_MANY)

    async def Apply(  # noqa: N802
        self, request: pb.ApplyRequest, context: Context
    ) -> pb.ApplyResponse:
        """Put a desired state in force for the time of a lease."""
        request.holder = holder_of(context, request.holder)
        return (await self._ask(context, apply=request)).apply

    async def Release(  # noqa: N802
        self, request: pb.ReleaseRequest, context: Context
    ) -> pb.ReleaseResponse:
        """Release the lease."""
        request.holder = holder_of(context, request.holder)
        return (await self._ask(context, release=request)).release
