"""The service process: serves gRPC on a Unix socket, so that no client can disturb the loop.

The guardian starts it as ``python -m stallward.actuator.service OPTIONS``. It passes commands to
the loop and tick records to watchers. It has no state except counters, so it can be restarted at
any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from stallward.actuator.errors import DaemonError
from stallward.actuator.ipc.channels import EXIT_USER
from stallward.actuator.ipc.options import ServiceOptions
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.runtime.addresses import parse_address
from stallward.actuator.runtime.locks import lock_file
from stallward.actuator.service.latency_reports import (
    MAX_REQUESTS,
    MAX_STREAMS,
    LatencyReports,
    TooManyStreamsError,
)
from stallward.actuator.service.loop_link import LoopLink
from stallward.actuator.service.metrics.counts import MetricsConfig
from stallward.actuator.service.metrics.server import serve_metrics
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc

SERVICE: Final = "stallward.proto.v1.ActuatorService"
_ANSWER_S: Final = 2.0
_LOAD_ANSWER_S: Final = 30.0
_LOCK_WAIT_S: Final = 5.0
_RESTARTING: Final = "The loop does not answer: it is restarting. Try again in a second."


class Servicer(pb_grpc.ActuatorServiceServicer):
    """Answers clients by asking the loop. A refused call gets the reason and is counted.

    Args:
        link: The connection to the loop.
        silence_s: The time without a tick after which the loop counts as gone.
        reports: Receives reported latencies; ``None`` if latencies come from elsewhere.
        latency_source: The configured source of latencies; empty for none.
    """

    def __init__(
        self,
        link: LoopLink,
        silence_s: float,
        reports: LatencyReports | None = None,
        latency_source: str = "",
    ) -> None:
        self._link = link
        self._silence_s = silence_s
        self._reports = reports
        self._latency_source = latency_source
        self.refused: Counter[str] = Counter()

    async def Status(  # noqa: N802 - gRPC's name
        self, request: pb.StatusRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.StatusResponse:
        """The daemon's status."""
        # The loop is not asked, so that a thousand calls a second cannot delay a tick.
        await self._link.wait_for_status(_ANSWER_S)  # so clients need not retry at the start
        status = self._link.status()
        if status is None or self._link.silent_s > self._silence_s:
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, _RESTARTING)
        status.version = version("stallward")
        status.refused.update(self.refused)
        status.records_dropped += self._link.skipped
        return status

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.WatchResponse]:
        """Stream tick records as they happen."""
        every = max(request.every, 1)
        with self._link.watch() as watcher:
            await context.send_initial_metadata(())  # the client knows that it is watching
            while True:
                record = await watcher.queue.get()
                if record.sequence % every == 0:
                    yield pb.WatchResponse(record=record, skipped=watcher.skipped)

    async def Apply(  # noqa: N802
        self, request: pb.ApplyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ApplyResponse:
        """Put a desired state in force for the time of a lease."""
        return (await self._ask(context, apply=request)).apply

    async def Release(  # noqa: N802
        self, request: pb.ReleaseRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ReleaseResponse:
        """Release the lease."""
        return (await self._ask(context, release=request)).release

    async def Load(  # noqa: N802
        self, request: pb.LoadRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.LoadResponse:
        """Load a policy; its mode is off at first."""
        return (await self._ask(context, timeout_s=_LOAD_ANSWER_S, load=request)).load

    async def SetMode(  # noqa: N802
        self, request: pb.SetModeRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.SetModeResponse:
        """Set the mode of the loaded policy: active, shadow or off."""
        return (await self._ask(context, set_mode=request)).set_mode

    async def Report(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.ReportRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> pb.ReportResponse:
        """Receive the protected application's latencies, message by message."""
        if self._reports is None:
            now = self._latency_source or "nowhere"
            why = f"Latencies come from {now!r} here. Set source = 'grpc' under [latency]."
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, why)
        try:
            with self._reports.stream() as stream:
                async for request in request_iterator:
                    if len(request.requests) > MAX_REQUESTS:
                        why = f"{len(request.requests)} requests in a message, max {MAX_REQUESTS}."
                        await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, why)
                    stream.take(request)
                return stream.response()
        except TooManyStreamsError:
            why = f"{MAX_STREAMS} clients report already."
            await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, why)

    async def _ask(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        *,
        timeout_s: float = _ANSWER_S,
        **kind: Any,
    ) -> pb.CommandResult:
        result = await self._link.ask(pb.Command(**kind), timeout_s)
        if result is None:
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, _RESTARTING)
        if result.code:
            await self._refuse(context, grpc.StatusCode[result.code], result.message)
        return result

    async def _refuse(
        self, context: grpc.aio.ServicerContext[Any, Any], code: grpc.StatusCode, message: str
    ) -> NoReturn:
        self.refused[code.name] += 1
        await context.abort(code, message)
        raise AssertionError  # abort raises


def claim_socket(path: Path) -> int:
    """Lock the socket's name, so that no other daemon takes it; returns the lock's descriptor.

    Raises:
        DaemonError: If another daemon serves there, or the folder is not writable.
    """
    lock = path.with_name(f"{path.name}.lock")
    fd = lock_file(lock, f"Another daemon serves {path}.", wait_s=_LOCK_WAIT_S)
    if path.is_socket():
        path.unlink()  # left by a server that was killed: we hold its lock
    elif path.exists():
        os.close(fd)
        raise DaemonError(f"{path} is not a socket.", next_step="Choose another path.")
    return fd


async def _follow_health(
    servicer: health.aio.HealthServicer, link: LoopLink, silence_s: float
) -> None:
    """Keep the health status up to date: SERVING while the loop ticks."""
    statuses = health_pb2.HealthCheckResponse
    while True:
        alive = link.silent_s < silence_s
        status = statuses.SERVING if alive else statuses.NOT_SERVING
        for name in ("", SERVICE):
            await servicer.set(name, status)
        await asyncio.sleep(0.2)


def _open_reports(latency_fd: int) -> LatencyReports | None:
    if latency_fd < 0:
        return None
    return LatencyReports(LatencyFeed(socket.socket(fileno=latency_fd)))


async def serve(options: ServiceOptions) -> None:
    """Serve until the guardian ends or a signal to stop arrives."""
    events = asyncio.get_running_loop()
    done = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        events.add_signal_handler(number, done.set)
    events.add_reader(options.life_fd, done.set)
    commands = socket.socket(fileno=options.command_fd)
    link = LoopLink(commands)
    events.add_reader(commands.fileno(), link.receive)
    server = grpc.aio.server()
    reports = _open_reports(options.latency_fd)
    servicer = Servicer(link, options.silence_s, reports, options.latency_source)
    pb_grpc.add_ActuatorServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    mask = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{options.socket}")
        await server.start()
    finally:
        os.umask(mask)
    tasks = [asyncio.create_task(_follow_health(health_servicer, link, options.silence_s))]
    if reports is not None:
        tasks.append(asyncio.create_task(reports.flush_for_ever()))
    metrics = None
    if options.metrics:
        address = parse_address(options.metrics, "options.metrics")
        config = MetricsConfig(slots=options.slots, slo_ms=options.slo_ms)
        metrics = await serve_metrics(address, link, servicer.refused, config)
    await done.wait()
    if metrics is not None:
        await metrics.stop()
    for task in tasks:
        task.cancel()
    await health_servicer.enter_graceful_shutdown()
    await server.stop(0.2)


def main(options: ServiceOptions) -> int:
    """Run the service process; returns its exit status."""
    try:
        claim_socket(options.socket)
        asyncio.run(serve(options))
        with contextlib.suppress(OSError):
            options.socket.unlink()
    except (DaemonError, RuntimeError) as error:
        sys.stderr.write(f"stallward service: {error}\n")
        return EXIT_USER
    return 0
