"""The Python client of the daemon; it takes and returns domain values and raises typed errors."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import grpc

from stallward.actuator.client.latency_reports import Reported, ReportSummary, to_messages
from stallward.actuator.client.remote_daemon import RemoteDaemon
from stallward.actuator.client.status import (
    POLICY,
    STATUS,
    STORED_POLICY,
    DaemonStatus,
    PolicyInfo,
    StoredPolicyInfo,
)
from stallward.actuator.errors import (
    DaemonError,
    DaemonUnavailableError,
    LeaseHeldError,
    RequestError,
)
from stallward.actuator.experiments.plan import ExperimentPlan
from stallward.actuator.experiments.wire import EXPERIMENT, EXPERIMENT_PLAN, Experiment
from stallward.actuator.record.advice.advice import Advice
from stallward.actuator.record.advice.wire import ADVICE
from stallward.actuator.record.reasons import Reasons
from stallward.actuator.record.reasons_text import reason_notes
from stallward.actuator.record.tick_record import Mode, TickRecord
from stallward.actuator.record.wire import DESIRED_STATE, MODE, REASONS, TICK_RECORD
from stallward.actuator.runtime.addresses import grpc_target
from stallward.actuator.runtime.socket_options import keepalive_options
from stallward.agent.desired import DesiredState
from stallward.agent.errors import PolicyError
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc


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


# ---------- What calls of the client return, where it is more than one value


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The daemon's answer to a desired state."""

    granted: DesiredState
    reasons: Reasons
    """Why it is less than was asked for, if it is."""
    lease_remaining_s: float

    @property
    def guard_notes(self) -> tuple[str, ...]:
        """The reasons as sentences, for people; a program reads ``reasons``."""
        return reason_notes(self.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One tick that a watcher received."""

    record: TickRecord
    skipped: int
    """Records that were left out because this watcher was too slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """One piece of advice that a follower received."""

    advice: Advice
    skipped: int
    """Pieces of advice that were left out because this follower was too slow."""


# ---------- Experiments on a daemon's node, for its client

_EXPERIMENTS_TIMEOUT_S: Final = 10.0
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
        request = pb.StartExperimentRequest(plan=EXPERIMENT_PLAN.to_wire(plan))
        return self._call(self._stub.StartExperiment, request, _START_TIMEOUT_S)

    def get(self) -> Experiment | None:
        """The experiment that runs, or else the last one; ``None`` if there was none.

        Raises:
            RequestError: If the daemon runs no experiments.
            DaemonError: If it cannot be reached.
        """
        try:
            return self._call(
                self._stub.GetExperiment, pb.GetExperimentRequest(), _EXPERIMENTS_TIMEOUT_S
            )
        except PolicyError:  # what NOT_FOUND stands for
            return None

    def stop(self) -> Experiment:
        """Stop the experiment that runs; what was in force before is put back.

        Raises:
            RequestError: If none runs.
            DaemonError: If the daemon cannot be reached.
        """
        return self._call(self._stub.StopExperiment, pb.StopExperimentRequest(), _START_TIMEOUT_S)

    def _call(self, method: Any, request: Any, timeout_s: float) -> Experiment:
        try:
            return EXPERIMENT.from_wire(method(request, timeout=timeout_s).experiment)
        except grpc.RpcError as error:
            raise to_error(error, self._daemon) from error


# ---------- Sending a policy to a daemon part by part, and going on where an upload broke off

_OFFSET_TIMEOUT_S: Final = 5.0
_PUSH_TIMEOUT_S: Final = 600.0
_CHUNK_BYTES: Final = 256 << 10
_TRIES: Final = 5
_PAUSE_S: Final = 0.3
_STILL_SENDING: Final = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED)


def push_policy(stub: pb_grpc.ActuatorServiceStub, content: bytes, name: str) -> StoredPolicyInfo:
    """Send a policy, from the part on that the daemon lacks.

    Raises:
        grpc.RpcError: If the daemon refuses it or cannot be reached.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    for tries_left in reversed(range(_TRIES)):
        asked = pb.PushOffsetRequest(sha256=sha256)
        start = stub.PushOffset(asked, timeout=_OFFSET_TIMEOUT_S).received_bytes
        try:
            answer = stub.PushPolicy(_parts(content, start, sha256, name), timeout=_PUSH_TIMEOUT_S)
            break
        except grpc.RpcError as error:
            # The rest of an upload that broke off may still be on its way.
            late = isinstance(error, grpc.Call) and error.code() in _STILL_SENDING
            if not (late and tries_left):
                raise
            time.sleep(_PAUSE_S)
    return STORED_POLICY.from_wire(answer.policy)


def _parts(content: bytes, start: int, sha256: str, name: str) -> Iterator[pb.PushPolicyRequest]:
    """Yield the parts of a policy from ``start`` on; at least one, which names it."""
    first = content[start : start + _CHUNK_BYTES]
    yield pb.PushPolicyRequest(sha256=sha256, name=name, offset=start, chunk=first)
    for offset in range(start + len(first), len(content), _CHUNK_BYTES):
        chunk = content[offset : offset + _CHUNK_BYTES]
        yield pb.PushPolicyRequest(offset=offset, chunk=chunk)


_TIMEOUT_S: Final = 5.0
_LOAD_TIMEOUT_S: Final = 40.0
_RETRY_S: Final = 0.05
_MOST_BYTES: Final = 32 << 20
"""Of an answer: an experiment of a thousand pairs has two thousand histograms of latencies."""


class ActuatorClient:
    """A connection to one daemon. Use it as a context manager, or close it.

    Args:
        daemon: The daemon's Unix socket, or where another machine's daemon is reached.

    Raises:
        ConfigError: If the path is too long for a socket, or a certificate cannot be read.
    """

    def __init__(self, daemon: Path | RemoteDaemon) -> None:
        self.daemon = daemon
        options: list[tuple[str, int | str]] = [
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 500),
            # Ticks that this client does not take wait in the daemon, and not by the megabyte in
            # the connection.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.max_receive_message_length", _MOST_BYTES),
        ]
        if isinstance(daemon, RemoteDaemon):
            options.extend(keepalive_options(daemon.silence_s))
            if daemon.server_name:
                options.append(("grpc.ssl_target_name_override", daemon.server_name))
            self._channel = grpc.secure_channel(
                daemon.address, daemon.credentials(), options=options
            )
        else:
            self._channel = grpc.insecure_channel(grpc_target(daemon), options=options)
        self._stub = pb_grpc.ActuatorServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.experiments: Final = Experiments(self._stub, daemon)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and end the iterators of :meth:`watch`."""
        self._closed = True
        self._channel.close()

    def wait_ready(self, timeout_s: float = 10.0) -> DaemonStatus:
        """Wait until the daemon's loop answers; returns its status then.

        Raises:
            DaemonUnavailableError: If it does not answer within ``timeout_s``.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = max(deadline_s - time.monotonic(), 0.01)
            try:
                # gRPC waits for the socket; the call returns early while the loop restarts.
                answer = self._stub.Status(pb.StatusRequest(), timeout=left_s, wait_for_ready=True)
                return STATUS.from_wire(answer)
            except grpc.RpcError as error:
                if time.monotonic() + _RETRY_S >= deadline_s:
                    raise DaemonUnavailableError(
                        f"No daemon answers at {self.daemon} within {timeout_s:g} s.",
                        next_step="Start one with `stallward serve`, or give its socket.",
                    ) from error
                time.sleep(_RETRY_S)

    def status(self) -> DaemonStatus:
        """Return what the daemon is doing now.

        Raises:
            DaemonError: If the daemon cannot be reached.
        """
        answer = self._call(self._stub.Status, pb.StatusRequest())
        return STATUS.from_wire(answer)

    def apply(self, desired: DesiredState, *, lease_s: float, holder: str) -> Granted:
        """Hold a desired state for ``lease_s`` seconds (0.1 to 60).

        Raises:
            LeaseHeldError: If another client holds the lease.
            RequestError: If the state cannot be expressed on the node.
            DaemonError: If the daemon cannot be reached.
        """
        try:
            wire = DESIRED_STATE.to_wire(desired)
        except ValueError as error:
            raise RequestError(f"The desired state cannot be sent: {error}.") from error
        request = pb.ApplyRequest(desired=wire, lease_s=lease_s, holder=holder)
        answer = self._call(self._stub.Apply, request, precondition=LeaseHeldError)
        return Granted(
            granted=DESIRED_STATE.from_wire(answer.granted),
            reasons=REASONS.from_wire(answer.reasons),
            lease_remaining_s=answer.lease_remaining_s,
        )

    def release(self, *, holder: str) -> None:
        """Release the lease.

        Raises:
            LeaseHeldError: If another client holds it.
            DaemonError: If the daemon cannot be reached.
        """
        request = pb.ReleaseRequest(holder=holder)
        self._call(self._stub.Release, request, precondition=LeaseHeldError)

    def push(self, policy: Path | bytes, *, name: str) -> StoredPolicyInfo:
        """Send a policy to the node's store; an interrupted upload continues.

        Args:
            policy: Its file, or the content of one.
            name: The name that it is given there.

        Raises:
            PolicyError: If the file cannot be read.
            RequestError: If the node takes no policies, or not this one.
            DaemonError: If the daemon cannot be reached, or cannot write.
        """
        try:
            content = policy if isinstance(policy, bytes) else policy.read_bytes()
        except OSError as error:
            raise PolicyError(f"{policy!s} cannot be read ({error.strerror}).") from error
        try:
            return push_policy(self._stub, content, name)
        except grpc.RpcError as error:
            raise to_error(error, self.daemon) from error

    def policies(self) -> tuple[StoredPolicyInfo, ...]:
        """Return the policies in the node's store, oldest first.

        Raises:
            RequestError: If the node has no store.
            DaemonError: If the daemon cannot be reached.
        """
        answer = self._call(self._stub.ListPolicies, pb.ListPoliciesRequest())
        return tuple(map(STORED_POLICY.from_wire, answer.policies))

    def remove(self, policy: str) -> StoredPolicyInfo:
        """Remove a policy from the node's store, by its name or digest; the newest of a name.

        Raises:
            PolicyError: If there is none.
            RequestError: If it runs, or the node has no store.
            DaemonError: If the daemon cannot be reached, or cannot write.
        """
        answer = self._call(self._stub.RemovePolicy, pb.RemovePolicyRequest(policy=policy))
        return STORED_POLICY.from_wire(answer.policy)

    def roll_back(self) -> PolicyInfo | None:
        """Activate the policy that was active before; ``None`` if the default controller decides.

        Raises:
            RequestError: If no policy is active, or the earlier one cannot be loaded.
            DaemonError: If the daemon cannot be reached.
        """
        answer = self._call(self._stub.RollBack, pb.RollBackRequest(), timeout_s=_LOAD_TIMEOUT_S)
        return POLICY.from_wire(answer.policy) if answer.HasField("policy") else None

    def load(self, policy: str) -> PolicyInfo:
        """Load a policy, by path on the node, name or digest; its mode is off at first.

        Raises:
            PolicyError: If there is no such file.
            RequestError: If it cannot run on the node; the message says why.
            DaemonError: If the daemon cannot be reached.
        """
        request = pb.LoadRequest(path=policy)
        answer = self._call(self._stub.Load, request, timeout_s=_LOAD_TIMEOUT_S)
        return POLICY.from_wire(answer.policy)

    def set_mode(self, mode: Mode) -> Mode:
        """Turn the loaded policy active, shadow, advice or off.

        Raises:
            RequestError: If none is loaded.
            DaemonError: If the daemon cannot be reached.
        """
        request = pb.SetModeRequest(mode=MODE.to_wire(mode))
        answer = self._call(self._stub.SetMode, request)
        return MODE.get(answer.mode) or mode

    def report(
        self, batches: Iterable[Sequence[Reported]], application: str = ""
    ) -> ReportSummary:
        """Report requests of a protected application until ``batches`` ends.

        Args:
            batches: Iterated in a thread of gRPC; each batch is sent when it comes. An empty
                batch is a heartbeat.
            application: Its name, where several are protected.

        Raises:
            RequestError: If its latencies come from another source, or there is no such application.
            DaemonError: If the daemon cannot be reached or ends.
        """
        answer = self._call(self._stub.Report, to_messages(batches, application), timeout_s=None)
        return ReportSummary(
            accepted=answer.accepted,
            failed=answer.failed,
            malformed=answer.malformed,
            late=answer.late,
        )

    def watch(self, *, every: int = 1) -> Iterator[Watched]:
        """Iterate over tick records as they happen, until the iterator or the client is closed.

        Raises:
            DaemonError: If the daemon cannot be reached or ends.
        """
        for answer in self._stream(self._stub.Watch(pb.WatchRequest(every=every))):
            yield Watched(record=TICK_RECORD.from_wire(answer.record), skipped=answer.skipped)

    def advice(self, *, last: int = 0, follow: bool = True) -> Iterator[Advised]:
        """Iterate over what a policy in advice mode would do, as its advice changes.

        Args:
            last: Begin with so many pieces of advice that were given before.
            follow: Go on with those to come, until the iterator or the client is closed.

        Raises:
            DaemonError: If the daemon cannot be reached or ends.
        """
        request = pb.AdviseRequest(last=last, follow=follow)
        for answer in self._stream(self._stub.Advise(request)):
            yield Advised(advice=ADVICE.from_wire(answer.advice), skipped=answer.skipped)

    def _stream(self, call: Any) -> Iterator[Any]:
        """The answers of a call that streams, until it or the client is closed."""
        try:
            yield from call
        except grpc.RpcError as error:
            if not self._closed:
                raise to_error(error, self.daemon) from error
        finally:
            with contextlib.suppress(Exception):
                call.cancel()

    def _call(
        self,
        method: Any,
        request: Any,
        *,
        timeout_s: float | None = _TIMEOUT_S,
        precondition: type[DaemonError] = RequestError,
    ) -> Any:
        try:
            return method(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise to_error(error, self.daemon, precondition) from error
