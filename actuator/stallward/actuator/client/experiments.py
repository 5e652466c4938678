"""Experiments on a daemon's node, for its client."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import grpc

from stallward.actuator.client.call_errors import to_error
from stallward.actuator.experiments.plan import ExperimentPlan
from stallward.actuator.experiments.wire import Experiment, experiment_from_wire, plan_to_wire
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc

_TIMEOUT_S: Final = 10.0
_START_TIMEOUT_S: Final = 90.0
"""Both policies are loaded first."""


class Experiments:
    """The calls about experiments.

    Args:
        stub: Calls the daemon.
        socket_path: The daemon's socket, for messages.
    """

    def __init__(self, stub: pb_grpc.ActuatorServiceStub, socket_path: Path) -> None:
        self._stub = stub
        self._socket_path = socket_path

    def start(self, plan: ExperimentPlan) -> Experiment:
        """Start an experiment.

        Raises:
            RequestError: If it cannot be started; the message says why.
            PolicyError: If there is no such policy.
            DaemonError: If the daemon cannot be reached, or cannot write.
        """
        request = pb.StartExperimentRequest(plan=plan_to_wire(plan))
        try:
            answer = self._stub.StartExperiment(request, timeout=_START_TIMEOUT_S)
        except grpc.RpcError as error:
            raise to_error(error, self._socket_path) from error
        return experiment_from_wire(answer.experiment)

    def get(self) -> Experiment | None:
        """The experiment that runs, or else the last one; ``None`` if there was none.

        Raises:
            RequestError: If the daemon runs no experiments.
            DaemonError: If it cannot be reached.
        """
        try:
            answer = self._stub.GetExperiment(pb.GetExperimentRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise to_error(error, self._socket_path) from error
        return experiment_from_wire(answer.experiment)

    def stop(self) -> Experiment:
        """Stop the experiment that runs; what was in force before is put back.

        Raises:
            RequestError: If none runs.
            DaemonError: If the daemon cannot be reached.
        """
        try:
            answer = self._stub.StopExperiment(
                pb.StopExperimentRequest(), timeout=_START_TIMEOUT_S
            )
        except grpc.RpcError as error:
            raise to_error(error, self._socket_path) from error
        return experiment_from_wire(answer.experiment)
