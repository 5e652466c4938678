"""The service process: serves gRPC, so that no client can disturb the loop.

The guardian starts it as ``python -m stallward.actuator.service OPTIONS``. It passes commands to
the loop and tick records to watchers. What it remembers besides counters are the seconds that the
canary compares, so it can be restarted at any time; then a policy is not watched any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from stallward.actuator.errors import DaemonError
from stallward.actuator.ipc.channels import EXIT_USER
from stallward.actuator.ipc.options import ServiceOptions
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.policies.canary import Canary, CanarySettings
from stallward.actuator.policies.store import PolicyStore
from stallward.actuator.runtime.addresses import grpc_target, parse_address
from stallward.actuator.runtime.process_setup import group_id, use_one_heap
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.service.advice import AdviceEntry
from stallward.actuator.service.canary_watch import CanaryWatch
from stallward.actuator.service.doors import Door, open_doors
from stallward.actuator.service.experiment_runner import ExperimentRunner
from stallward.actuator.service.latency_reports import LatencyReports, OpenStreams
from stallward.actuator.service.loop_link import LoopLink
from stallward.actuator.service.metrics.counts import MetricsConfig
from stallward.actuator.service.metrics.server import MetricsServer, make_metrics_server
from stallward.actuator.service.notices import Journald, NoticeCommand, SlotChanges
from stallward.actuator.service.refused import WellFormed
from stallward.actuator.service.remote import RemotePort
from stallward.actuator.service.report_servicer import SERVICE, ReportServicer, add_report_only
from stallward.actuator.service.servicer import Servicer
from stallward.actuator.service.socket_files import claimed_socket, give_to_group, socket_mode
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc


async def _follow_health(
    servicer: health.aio.HealthServicer, link: LoopLink, silence_s: float
) -> None:
    """Keep the health status up to date: SERVING while the loop ticks."""
    statuses = health_pb2.HealthCheckResponse
    told = None
    while True:
        alive = link.silent_s < silence_s
        if alive is not told:  # else every client that watches would be woken five times a second
            status = statuses.SERVING if alive else statuses.NOT_SERVING
            for name in ("", SERVICE):
                await servicer.set(name, status)
            told = alive
        await asyncio.sleep(0.2)


def _open_reports(options: ServiceOptions) -> dict[str, LatencyReports]:
    """Open the ways of the latencies that clients report, by application."""
    names, of_all = options.applications or ("",), OpenStreams()
    return {
        name: LatencyReports(LatencyFeed(socket.socket(fileno=fd)), of_all)
        for name, fd in zip(names, options.latency_fds, strict=False)
        if fd >= 0
    }


def _group_ids(options: ServiceOptions) -> dict[Path, int]:
    """The sockets that are given to a group, and the group's number.

    Raises:
        DaemonError: If there is no such group.
    """
    gids = {}
    if options.socket_group:
        gids[options.socket] = group_id(options.socket_group, "socket_group")
    if options.report_socket is not None and options.report_group:
        gids[options.report_socket] = group_id(options.report_group, "report_group")
    return gids


def _give(path: Path, gid: int) -> str:
    """Give a socket to a group; returns what went wrong, if anything."""
    try:
        give_to_group(path, gid)
    except OSError as error:
        return f"socket: {path} is not the group {gid}'s ({error.strerror})"
    return ""


async def _serve_reports(
    options: ServiceOptions,
    door: Door,
    servicer: ReportServicer,
    health_servicer: health.aio.HealthServicer,
) -> grpc.aio.Server | None:
    """Serve Report, and health, on the socket for them.

    Args:
        options: The options of the service.
        door: How much its clients may hold.
        servicer: Takes the reports.
        health_servicer: Answers whether the service is well.
    """
    if options.report_socket is None:
        return None
    server = grpc.aio.server(interceptors=(WellFormed(servicer.refusals),), options=door.options())
    add_report_only(servicer, server)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    with socket_mode(options.report_mode):
        server.add_insecure_port(grpc_target(options.report_socket))
        await server.start()
    return server


def _make_metrics(
    options: ServiceOptions, link: LoopLink, servicer: Servicer
) -> MetricsServer | None:
    if not options.metrics:
        return None
    address = parse_address(options.metrics, "options.metrics")
    config = MetricsConfig(slots=options.slots, slo_ms=options.slo_ms, silence_s=options.silence_s)
    return make_metrics_server(
        address, link, servicer.refusals.counts, config, servicer.own_status
    )


def _make_servicer(
    options: ServiceOptions, link: LoopLink, reports: Mapping[str, LatencyReports]
) -> Servicer:
    store = None if options.policy_store is None else PolicyStore(options.policy_store)
    servicer = Servicer(
        link,
        options.silence_s,
        reports,
        options.latency_source,
        store,
        options.slo_ms,
        options.notify_interval_s,
    )
    if options.canary_s > 0.0:
        settings = CanarySettings(length_s=options.canary_s, margin=options.canary_margin)
        servicer.canary = CanaryWatch(Canary(settings), options.slo_ms, link, servicer.forget)
    if options.experiments is not None:
        servicer.runner = ExperimentRunner(
            link, options.experiments, slo_ms=options.slo_ms, silence_s=options.silence_s
        )
    link.listeners.append(servicer.take)
    return servicer


async def _serve_everything(
    options: ServiceOptions,
    door: Door,
    servicer: Servicer,
    health_servicer: health.aio.HealthServicer,
) -> grpc.aio.Server:
    """Serve the whole service on the Unix socket."""
    server = grpc.aio.server(interceptors=(WellFormed(servicer.refusals),), options=door.options())
    pb_grpc.add_ActuatorServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    with socket_mode(0o660 if options.socket_group else 0o600):
        server.add_insecure_port(grpc_target(options.socket))
        await server.start()
    return server


def _tell_changes(
    options: ServiceOptions, link: LoopLink, servicer: Servicer
) -> NoticeCommand | None:
    """Tell what changes for the slots, and advice; returns the command that is run, if one is."""
    if not options.notify_journal and not options.notify_command:
        return None
    changes = SlotChanges(options.slots, options.notify_interval_s)
    journal = Journald() if options.notify_journal else None
    command = NoticeCommand(options.notify_command) if options.notify_command else None
    tellers = [teller for teller in (journal, command) if teller is not None]

    def take(record: pb.TickRecord) -> None:
        for notice in changes.take(record):
            for teller in tellers:
                teller.tell(notice)

    link.listeners.append(take)
    if journal is not None:  # the command is for what is done, and advice is not
        servicer.advice.tellers.append(
            lambda advice: journal.tell(AdviceEntry(advice=advice, slots=options.slots))
        )
    return command


def _stop_event(options: ServiceOptions) -> asyncio.Event:
    """An event that is set when the guardian ends or a signal to stop arrives."""
    events, done = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        events.add_signal_handler(number, done.set)
    events.add_reader(options.life_fd, done.set)
    return done


async def serve(options: ServiceOptions) -> None:
    """Serve until the guardian ends or a signal to stop arrives."""
    # First: a process whose server runs may not end by itself.
    gids = _group_ids(options)
    doors = open_doors()
    done = _stop_event(options)
    commands = socket.socket(fileno=options.command_fd)
    link = LoopLink(commands)
    asyncio.get_running_loop().add_reader(commands.fileno(), link.receive)
    reports = _open_reports(options)
    servicer, health_servicer = _make_servicer(options, link, reports), health.aio.HealthServicer()
    command = _tell_changes(options, link, servicer)  # before anything waits: no tick is missed
    servers = [
        await _serve_everything(options, doors.local, servicer, health_servicer),
        await _serve_reports(options, doors.reports, servicer, health_servicer),
    ]
    not_given = [why for path, gid in gids.items() if (why := _give(path, gid))]
    tasks = [asyncio.create_task(_follow_health(health_servicer, link, options.silence_s))]
    if servicer.runner is not None:
        await servicer.runner.resume()
    tasks += [asyncio.create_task(one.flush_for_ever()) for one in reports.values()]
    if command is not None:
        tasks.append(asyncio.create_task(command.run_for_ever()))
    metrics = _make_metrics(options, link, servicer)
    remote = None
    if options.remote:
        remote = RemotePort(options, doors.remote, servicer, health_servicer)
    ports = {name: port for name, port in (("metrics", metrics), ("remote", remote)) if port}
    tasks += [asyncio.create_task(port.keep_trying()) for port in ports.values()]

    def problems() -> tuple[str, ...]:
        unserved = (f"{name}: {port.problem}" for name, port in ports.items() if port.problem)
        untold = (f"notify: {command.problem}",) if command and command.problem else ()
        return (*not_given, *unserved, *untold)

    servicer.problems = problems
    await done.wait()
    for task in tasks:
        task.cancel()
    if metrics is not None:
        await metrics.stop()
    await health_servicer.enter_graceful_shutdown()
    if remote is not None:
        await remote.stop()
    for one in servers:
        if one is not None:
            await one.stop(0.2)


def main(options: ServiceOptions) -> int:
    """Run the service process; returns its exit status."""
    use_one_heap()
    try:
        with contextlib.ExitStack() as claimed:
            for path in filter(None, (options.socket, options.report_socket)):
                claimed.enter_context(claimed_socket(path))
            asyncio.run(serve(options))
    except (DaemonError, RuntimeError) as error:
        say(str(error), "service")
        return EXIT_USER
    return 0
