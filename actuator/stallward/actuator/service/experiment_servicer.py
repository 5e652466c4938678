"""Answers the calls about experiments."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc

from stallward.actuator.errors import ExperimentDiskError, ExperimentError
from stallward.actuator.experiments.plan import ExperimentPlan
from stallward.actuator.experiments.wire import experiment_to_wire, plan_from_wire
from stallward.actuator.service.arm_switch import LoadRefusedError
from stallward.actuator.service.experiment_runner import ExperimentRunner
from stallward.actuator.service.policy_servicer import PolicyServicer
from stallward.proto.v1 import stallward_pb2 as pb

_NO_FOLDER: Final = "No folder for experiments is configured. Set dir under [experiments]."
_RUNS: Final = "An experiment runs. Stop it first: stallward ab stop."
_Context = grpc.aio.ServicerContext[Any, Any]


class ExperimentServicer(PolicyServicer):
    """Answers the calls about experiments, and refuses calls that would disturb one."""

    runner: ExperimentRunner | None = None
    """Runs experiments; ``None`` if no folder for them is configured."""

    async def StartExperiment(  # noqa: N802 - gRPC's name
        self, request: pb.StartExperimentRequest, context: _Context
    ) -> pb.StartExperimentResponse:
        """Compare two controllers on this node."""
        runner = await self._needed_runner(context)
        plan = await self._read_plan(request, context)
        if runner.running:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, _RUNS)
        try:
            # To its end, even if the client goes away: else the arm that was tried might stay.
            await asyncio.shield(runner.start(plan))
        except LoadRefusedError as error:
            await self._refuse(context, grpc.StatusCode[error.code], error.message)
        except ExperimentDiskError as error:
            await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except ExperimentError as error:
            await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.StartExperimentResponse(experiment=_shown(runner))

    async def GetExperiment(  # noqa: N802
        self, request: pb.GetExperimentRequest, context: _Context
    ) -> pb.GetExperimentResponse:
        """The experiment that runs, or else the last one."""
        runner = await self._needed_runner(context)
        if runner.state is None:
            # An answer rather than a refusal: `ab status --nodes` also asks nodes that have none.
            await context.abort(grpc.StatusCode.NOT_FOUND, "There was no experiment.")
        return pb.GetExperimentResponse(experiment=_shown(runner))

    async def StopExperiment(  # noqa: N802
        self, request: pb.StopExperimentRequest, context: _Context
    ) -> pb.StopExperimentResponse:
        """Stop the experiment that runs."""
        runner = await self._needed_runner(context)
        try:
            await asyncio.shield(runner.stop())
        except ExperimentError as error:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.StopExperimentResponse(experiment=_shown(runner))

    async def Load(  # noqa: N802
        self, request: pb.LoadRequest, context: _Context
    ) -> pb.LoadResponse:
        """Load a policy, unless an experiment runs."""
        await self._refuse_during_experiment(context)
        return await super().Load(request, context)

    async def SetMode(  # noqa: N802
        self, request: pb.SetModeRequest, context: _Context
    ) -> pb.SetModeResponse:
        """Set the mode of the loaded policy, unless an experiment runs."""
        await self._refuse_during_experiment(context)
        return await super().SetMode(request, context)

    async def RollBack(  # noqa: N802
        self, request: pb.RollBackRequest, context: _Context
    ) -> pb.RollBackResponse:
        """Activate the policy that was active before, unless an experiment runs."""
        await self._refuse_during_experiment(context)
        return await super().RollBack(request, context)

    async def _refuse_during_experiment(self, context: _Context) -> None:
        if self.runner is not None and self.runner.running:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, _RUNS)

    async def _needed_runner(self, context: _Context) -> ExperimentRunner:
        if self.runner is None:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, _NO_FOLDER)
        return self.runner

    async def _read_plan(
        self, request: pb.StartExperimentRequest, context: _Context
    ) -> ExperimentPlan:
        try:
            return plan_from_wire(request.plan)
        except ExperimentError as error:
            await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))


def _shown(runner: ExperimentRunner) -> pb.Experiment | None:
    return None if runner.state is None else experiment_to_wire(runner.state, runner.phase)
