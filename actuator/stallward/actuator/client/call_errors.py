"""The typed errors of failed calls; gRPC's status codes are read only here."""

from __future__ import annotations

from pathlib import Path

import grpc

from stallward.actuator.client.remote_daemon import RemoteDaemon
from stallward.actuator.errors import DaemonError, DaemonUnavailableError, RequestError
from stallward.agent.errors import PolicyError


def to_error(
    error: grpc.RpcError,
    daemon: Path | RemoteDaemon,
    precondition: type[DaemonError] = RequestError,
) -> DaemonError | PolicyError:
    """Make the typed error of a failed call.

    Args:
        error: The error that gRPC raised.
        daemon: Where the daemon is reached, for the message.
        precondition: The error that FAILED_PRECONDITION stands for in this call.
    """
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = (error.details() if isinstance(error, grpc.Call) else None) or str(error)
    match code:
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
            return DaemonUnavailableError(
                f"The daemon at {daemon} does not answer: {details}",
                next_step="Start one with `stallward serve`, or give its socket.",
            )
        case grpc.StatusCode.FAILED_PRECONDITION:
            return precondition(details)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.PERMISSION_DENIED:
            return RequestError(details)
        case grpc.StatusCode.NOT_FOUND:
            return PolicyError(details)
        case grpc.StatusCode.UNIMPLEMENTED:
            return RequestError(
                f"{daemon} does not answer this call: {details}",
                next_step="If it is the socket for reports alone, give that of the service.",
            )
        case _:
            return DaemonError(f"The daemon at {daemon} failed ({code.name}): {details}")
