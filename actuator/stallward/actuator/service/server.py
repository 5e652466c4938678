"""The service process: serves gRPC on a Unix socket, so that no client can disturb the loop.

The guardian starts it as ``python -m stallward.actuator.service OPTIONS``. It passes commands to
the loop and tick records to watchers. What it remembers besides counters are the seconds that the
canary compares, so it can be restarted at any time; then a policy is not watched any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from stallward.actuator.errors import DaemonError
from stallward.actuator.experiments.wire import phase_to_wire
from stallward.actuator.ipc.channels import EXIT_USER
from stallward.actuator.ipc.options import ServiceOptions
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.policies.canary import Canary, CanarySettings
from stallward.actuator.policies.store import PolicyStore
from stallward.actuator.runtime.addresses import grpc_target, parse_address
from stallward.actuator.service.canary_watch import CanaryWatch
from stallward.actuator.service.experiment_runner import ExperimentRunner
from stallward.actuator.service.experiment_servicer import ExperimentServicer
from stallward.actuator.service.latency_reports import LatencyReports
from stallward.actuator.service.loop_link import ANSWER_S, LoopLink
from stallward.actuator.service.metrics.counts import MetricsConfig
from stallward.actuator.service.metrics.server import MetricsServer, make_metrics_server
from stallward.actuator.service.policy_servicer import RESTARTING
from stallward.actuator.service.report_servicer import SERVICE, ReportServicer, add_report_only
from stallward.actuator.service.socket_files import (
    claim_socket,
    give_to_group,
    group_id,
    socket_mode,
)
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc


class Servicer(ExperimentServicer):
    """Answers clients by asking the loop. A refused call gets the reason and is counted.

    Args:
        link: The connection to the loop.
        silence_s: The time without a tick after which the loop counts as gone.
        reports: Receives reported latencies; ``None`` if latencies come from elsewhere.
        latency_source: The configured source of latencies; empty for none.
        store: The policies that were sent; ``None`` if no folder for them is configured.
    """

    def __init__(
        self,
        link: LoopLink,
        silence_s: float,
        reports: LatencyReports | None = None,
        latency_source: str = "",
        store: PolicyStore | None = None,
    ) -> None:
        super().__init__(link, reports, latency_source, store)
        self._silence_s = silence_s
        self.canary: CanaryWatch | None = None
        """Watches policies that were activated."""
        self.problems: Callable[[], tuple[str, ...]] = tuple
        """Returns what the service itself cannot do now, and why."""

    def take(self, record: pb.TickRecord) -> None:
        """Pass a tick to what watches. An experiment changes policies, which is no canary's."""
        if self.runner is not None and self.runner.running:
            self.runner.take(record)
        elif self.canary is not None:
            self.canary.take(record)

    async def Status(  # noqa: N802 - gRPC's name
        self, request: pb.StatusRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.StatusResponse:
        """The daemon's status."""
        # The loop is not asked, so that a thousand calls a second cannot delay a tick.
        await self._link.wait_for_status(ANSWER_S)  # so clients need not retry at the start
        status = self._link.status()
        if status is None or self._link.silent_s > self._silence_s:
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, RESTARTING)
        status.version = version("stallward")
        status.refused.update(self.refused)
        if self.canary is not None:
            status.canary.CopyFrom(self.canary.status())
        unkept = ""
        if self.runner is not None:
            unkept = self.runner.problem
            if self.runner.phase is not None:
                status.experiment.CopyFrom(phase_to_wire(self.runner.phase))
        status.missing.extend(filter(None, (*self.problems(), self._not_noted, unkept)))
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


async def _serve_reports(
    options: ServiceOptions,
    gid: int | None,
    servicer: ReportServicer,
    health_servicer: health.aio.HealthServicer,
) -> tuple[grpc.aio.Server | None, str]:
    """Serve Report, and health, on the socket for them; return also what went wrong, if anything.

    Args:
        options: The options of the service.
        gid: The group to which the socket is given; ``None`` for none.
        servicer: Takes the reports.
        health_servicer: Answers whether the service is well.
    """
    path = options.report_socket
    if path is None:
        return None, ""
    server = grpc.aio.server()
    add_report_only(servicer, server)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    with socket_mode(options.report_mode):
        server.add_insecure_port(grpc_target(path))
        await server.start()
    try:
        if gid is not None:
            give_to_group(path, gid)
    except OSError as error:
        return (
            server,
            f"report: {path} has not the group {options.report_group} ({error.strerror})",
        )
    return server, ""


def _make_metrics(
    options: ServiceOptions, link: LoopLink, servicer: Servicer
) -> MetricsServer | None:
    if not options.metrics:
        return None
    address = parse_address(options.metrics, "options.metrics")
    config = MetricsConfig(slots=options.slots, slo_ms=options.slo_ms)
    return make_metrics_server(address, link, servicer.refused, config)


async def serve(options: ServiceOptions) -> None:
    """Serve until the guardian ends or a signal to stop arrives."""
    # First: a process whose server runs may not end by itself.
    gid = group_id(options.report_group) if options.report_group else None
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
    store = None if options.policy_store is None else PolicyStore(options.policy_store)
    servicer = Servicer(link, options.silence_s, reports, options.latency_source, store)
    if options.canary_s > 0.0:
        settings = CanarySettings(length_s=options.canary_s, margin=options.canary_margin)
        servicer.canary = CanaryWatch(Canary(settings), options.slo_ms, link, servicer.forget)
    if options.experiments is not None:
        servicer.runner = ExperimentRunner(
            link, options.experiments, slo_ms=options.slo_ms, silence_s=options.silence_s
        )
    link.listeners.append(servicer.take)
    pb_grpc.add_ActuatorServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    with socket_mode(0o600):
        server.add_insecure_port(grpc_target(options.socket))
        await server.start()
    report_server, report_problem = await _serve_reports(options, gid, servicer, health_servicer)
    tasks = [asyncio.create_task(_follow_health(health_servicer, link, options.silence_s))]
    if servicer.runner is not None:
        await servicer.runner.resume()
    if reports is not None:
        tasks.append(asyncio.create_task(reports.flush_for_ever()))
    metrics = _make_metrics(options, link, servicer)
    if metrics is not None:
        tasks.append(asyncio.create_task(metrics.keep_trying()))

    def problems() -> tuple[str, ...]:
        unserved = f"metrics: {metrics.problem}" if metrics and metrics.problem else ""
        return tuple(filter(None, (report_problem, unserved)))

    servicer.problems = problems
    await done.wait()
    for task in tasks:
        task.cancel()
    if metrics is not None:
        await metrics.stop()
    await health_servicer.enter_graceful_shutdown()
    for one in (server, report_server):
        if one is not None:
            await one.stop(0.2)


def main(options: ServiceOptions) -> int:
    """Run the service process; returns its exit status."""
    try:
        sockets = tuple(filter(None, (options.socket, options.report_socket)))
        for path in sockets:
            claim_socket(path)
        asyncio.run(serve(options))
        for path in sockets:
            with contextlib.suppress(OSError):
                path.unlink()
    except (DaemonError, RuntimeError) as error:
        sys.stderr.write(f"stallward service: {error}\n")
        return EXIT_USER
    return 0
