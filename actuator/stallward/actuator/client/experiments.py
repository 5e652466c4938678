"""Experiments on a daemon's node, for its client."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import grpc

from stallward.actuator.client.call_errors import to_error
from stallward.actuator.client.remote_daemon import RemoteDaemon
from stallward.actuator.experiments.plan import ExperimentPlan
from stallward.actuator.experiments.wire import Experiment, experiment_from_wire, plan_to_wire
from stallward.agent.errors import PolicyError
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc

_TIMEOUT_S: Final = 10.0
_START_TIMEOUT_S: Final = 90.0
"""Both policies are loaded first."""


class Experiments:
    """The calls about experiments.

    Args:
        stub: Calls the daemon.
        daemon: Where the daemon is reached, for messages.
    """

    def __init__(self, stub: pb_grpc.ActuatorServiceStub, daemon: Path | RemoteDaemon) -> None:
        self._stub = stub
        self._daemon = daemon

    def start(self, plan: ExperimentPlan) -> Experiment:
        """Start an experiment.

        Raises:
            RequestError: If it cannot be started; the message says why.
            PolicyError: If there is no such policy.
            DaemonError: If the daemon cannot be reached, or cannot write.
        """
        request = pb.StartExperimentRequest(plan=plan_to_wire(plan))
        return self._call(self._stub.StartExperiment, request, _START_TIMEOUT_S)

    def get(self) -> Experiment | None:
        """The experiment that runs, or else the last one; ``None`` if there was none.

        Raises:
            RequestError: If the daemon runs no experiments.
            DaemonError: If it cannot be reached.
        """
        try:
            return self._call(self._stub.GetExperiment, pb.GetExperimentRequest(), _TIMEOUT_S)
        except PolicyError:  # what NOT_FOUND stands for
            return None

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
            raise to_error(error, self._daemon) from error
        return experiment_from_wire(answer.experiment)

    def _call(self, method: Any, request: Any, timeout_s: float) -> Experiment:
        try:
            return experiment_from_wire(method(request, timeout=timeout_s).experiment)
        except grpc.RpcError as error:
            raise to_error(error, self._daemon) from error
