"""The typed errors of failed calls; gRPC's status codes are read only here."""

from __future__ import annotations

from pathlib import Path

import grpc

from stallward.actuator.errors import DaemonError, DaemonUnavailableError, RequestError
from stallward.agent.errors import PolicyError


def to_error(
    error: grpc.RpcError, socket_path: Path, precondition: type[DaemonError] = RequestError
) -> DaemonError | PolicyError:
    """Make the typed error of a failed call.

    Args:
        error: The error that gRPC raised.
        socket_path: The daemon's socket, for the message.
        precondition: The error that FAILED_PRECONDITION stands for in this call.
    """
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = (error.details() if isinstance(error, grpc.Call) else None) or str(error)
    match code:
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
            return DaemonUnavailableError(
                f"The daemon at {socket_path} does not answer: {details}",
                next_step="Start one with `stallward serve`, or give its socket.",
            )
        case grpc.StatusCode.FAILED_PRECONDITION:
            return precondition(details)
        case grpc.StatusCode.INVALID_ARGUMENT:
            return RequestError(details)
        case grpc.StatusCode.NOT_FOUND:
            return PolicyError(details)
        case grpc.StatusCode.UNIMPLEMENTED:
            return RequestError(
                f"{socket_path} does not answer this call: {details}",
                next_step="If it is the socket for reports alone, give that of the service.",
            )
        case _:
            return DaemonError(f"The daemon at {socket_path} failed ({code.name}): {details}")
