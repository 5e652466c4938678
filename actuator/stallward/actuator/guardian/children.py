"""The guardian's children: the channels between them, and the options each is started with.

The guardian keeps both ends of every channel that must outlive a child, so that the child's
successor gets the same one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import write_config
from stallward.actuator.config.tables import RecordConfig, RestartConfig
from stallward.actuator.ipc.channels import LOOP_DIED
from stallward.actuator.ipc.options import Inheritance, LoopOptions, Modules, ServiceOptions
from stallward.actuator.latency.config import (
    CollectorOptions,
    GrpcLatency,
    LinesLatency,
    PrometheusLatency,
    StatsdLatency,
)
from stallward.actuator.record.frames import FRAMES_NAME
from stallward.actuator.record.recorder import RecorderOptions
from stallward.actuator.runtime.process_start import (
    QUIET_GRPC,
    SAFE_IMPORTS,
    SINGLE_THREADED_MATHS,
    command_line,
)
from stallward.actuator.targets.config import PodsOptions
from stallward.actuator.work.config import WorkOptions

YOUNG_S: Final = 2.0
"""If a process dies younger than this, the delay before the next start is doubled."""
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything that is needed to start a child."""

    module: str
    """The Python module that it runs."""
    options: object
    """A frozen dataclass, for :func:`stallward.actuator.runtime.process_start.read_options`."""
    fds: tuple[int, ...]
    """The descriptors that it inherits."""
    handed_over: tuple[socket.socket, ...] = ()
    """Sockets that the guardian closes once the child has them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables in addition to those of this process."""


@dataclass(slots=True, kw_only=True)
class Child:
    """One process of the daemon."""

    name: str
    launch: Callable[[], Launch]
    """Called at every start."""
    policy: RestartConfig
    """When to start it again after a death."""
    vital: bool = True
    """Whether the daemon gives up if it dies too often."""
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    due_s: float | None = None
    """When it is to be started again, CLOCK_MONOTONIC; ``None`` if no start is planned."""
    restarts: int = 0
    """How often it was started again, counting a start that is planned."""
    started_s: float = 0.0
    """When it was last started, CLOCK_MONOTONIC."""
    _delay_s: float = 0.0
    _deaths: deque[float] = field(default_factory=deque)

    def start(self, now_s: float) -> None:
        """Start the process.

        Raises:
            OSError: If there is no room for another process or descriptor; then none runs.
        """
        self.started_s, self.due_s = now_s, None
        launch = self.launch()
        try:
            process = subprocess.Popen(
                command_line(launch.module, launch.options),
                pass_fds=launch.fds,
                env={**os.environ, **SAFE_IMPORTS, **launch.environment},
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C reaches only the guardian
            )
        finally:
            for end in launch.handed_over:
                end.close()
        try:
            self.pidfd = os.pidfd_open(process.pid)
        except OSError:
            process.kill()
            process.wait()
            raise
        self.process = process

    def reap(self) -> int | None:
        """The exit status, once the process has ended with all its threads; ``None`` before."""
        if self.process is None:
            return None
        status = self.process.poll()
        if status is not None:
            os.close(self.pidfd)
            self.process, self.pidfd = None, -1
        return status

    def plan_restart(self, now_s: float) -> bool:
        """Choose when to start it again after a death.

        Returns:
            Whether it will be started again; ``False`` if a vital process died too often.
        """
        self._deaths.append(now_s)
        while self._deaths[0] < now_s - _MINUTE_S:
            self._deaths.popleft()
        too_often = len(self._deaths) > self.policy.max_per_minute
        if too_often and self.vital:
            return False
        young = now_s - self.started_s < YOUNG_S
        doubled_s = min(self._delay_s * 2, self.policy.max_delay_s)
        self._delay_s = max(doubled_s, self.policy.delay_s) if young else self.policy.delay_s
        self.restarts += 1
        self.due_s = now_s + (self.policy.max_delay_s if too_often else self._delay_s)
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process is gone."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def end(
        self, timeout_s: float, *, ask: bool = True, killed: Callable[[], None] | None = None
    ) -> int | None:
        """Stop the process and wait for its end; returns its exit status.

        Args:
            timeout_s: The time after which it is killed with SIGKILL.
            ask: Whether to send SIGTERM first; otherwise it must end by itself.
            killed: Called after SIGKILL was sent and before the process has ended: a thread that
                is stuck in the kernel may delay its end.
        """
        if self.process is None:
            return None
        if ask:
            self.signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            if killed is not None:
                killed()
            self.process.wait()
        return self.reap()


_TYPE = socket.SOCK_SEQPACKET
_SILENCE_S = 2.0
"""The time without a message from the loop after which the service reports it as not serving."""
_SILENT_TICKS = 3.0
"""The same as a number of ticks of the slowest rate; the longer of both times counts."""


class Channels:
    """The channels between the processes of one daemon.

    Args:
        config: The daemon's configuration.
        lock_fds: The locks of the daemon. The loop inherits them, so that no other daemon starts
            before the loop has put everything back.
        started_s: When the daemon was started, CLOCK_MONOTONIC.
        modules: The module that each process runs.

    Attributes:
        link: The guardian's end of its socket to the loop; ``None`` after it was closed.
    """

    def __init__(
        self,
        config: DaemonConfig,
        lock_fds: tuple[int, ...],
        started_s: float,
        modules: Modules,
    ) -> None:
        self._config = config
        self._modules = modules
        self._lock_fds = lock_fds
        self._started_s = started_s
        silent_s = _SILENT_TICKS * config.control.slowest_tick_s
        self._service_silence_s = max(_SILENCE_S, silent_s)
        self._config_fd = os.memfd_create("config")
        write_config(self._config_fd, config)
        self._loop_commands, self._service_commands = socket.socketpair(socket.AF_UNIX, _TYPE)
        self._loop_records, self._recorder_records = socket.socketpair(socket.AF_UNIX, _TYPE)
        self._latencies: tuple[tuple[socket.socket, socket.socket] | None, ...] = tuple(
            None
            if source is None or isinstance(source, LinesLatency)
            else socket.socketpair(socket.AF_UNIX, _TYPE)
            for source in config.latencies
        )
        """For each application the two ends of the way of its latencies."""
        self._work: tuple[socket.socket, socket.socket] | None = None
        if config.read_work:
            self._work = socket.socketpair(socket.AF_UNIX, _TYPE)
        self._pods: tuple[socket.socket, socket.socket] | None = None
        if config.follows_pods:
            self._pods = socket.socketpair(socket.AF_UNIX, _TYPE)
        self._addresses = tuple(
            socket.socketpair(socket.AF_UNIX, _TYPE) if of_pod else None
            for of_pod in config.latencies_of_pods
        )
        """For each application the two ends of the way of its pod's address, if it is needed."""
        self._life_read, self._life_write = os.pipe()
        self.link: socket.socket | None = None

    def replace_config(self, config: DaemonConfig) -> None:
        """Give another configuration to what is started or reads it from now on."""
        self._config = config
        write_config(self._config_fd, config)

    def drop_link(self) -> None:
        """Close the socket to the loop."""
        if self.link is not None:
            self.link.close()
            self.link = None

    def fail_commands(self) -> None:
        """Drop the commands to a dead loop, and tell the service that no answer will come."""
        with contextlib.suppress(OSError):
            while self._loop_commands.recv(1, socket.MSG_DONTWAIT):
                pass  # the socket discards the rest of each message
        with contextlib.suppress(OSError):
            self._loop_commands.send(LOOP_DIED, socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Close the channels on which the service, the collector and the recorder wait."""
        os.close(self._life_write)
        commands = (self._loop_commands, self._service_commands)
        for end in (
            self._loop_records,
            self._recorder_records,
            *commands,
            *(end for ends in self._latencies if ends for end in ends),
            *(self._work or ()),
            *(self._pods or ()),
            *(end for ends in self._addresses if ends for end in ends),
        ):
            end.close()

    def launch_loop(self, restarts: int, inherited: Inheritance) -> Launch:
        """Make a new link to the loop; returns how to start the loop with it."""
        self.drop_link()
        self.link, loop_end = socket.socketpair(socket.AF_UNIX, _TYPE)
        options = LoopOptions(
            config_fd=self._config_fd,
            guardian_fd=loop_end.fileno(),
            command_fd=self._loop_commands.fileno(),
            record_fd=self._loop_records.fileno() if self._config.record else -1,
            latency_fds=tuple(ends[0].fileno() if ends else -1 for ends in self._latencies),
            work_fd=self._work[0].fileno() if self._work else -1,
            pods_fd=self._pods[0].fileno() if self._pods else -1,
            restarts=restarts,
            daemon_start_s=self._started_s,
            inherited=inherited,
        )
        fds = (options.config_fd, options.guardian_fd, options.command_fd, inherited.memory_fd)
        optional = (options.record_fd, *options.latency_fds, options.work_fd, options.pods_fd)
        return Launch(
            module=self._modules.loop,
            options=options,
            fds=(*fds, *self._lock_fds, *(fd for fd in optional if fd >= 0)),
            handed_over=(loop_end,),
            environment=SINGLE_THREADED_MATHS,
        )

    def launch_service(self) -> Launch:
        """How to start the service."""
        config, remote = self._config, self._config.remote
        several = len(config.applications) > 1
        latency_fds = tuple(
            ends[1].fileno() if ends and isinstance(source, GrpcLatency) else -1
            for ends, source in zip(self._latencies, config.latencies, strict=True)
        )
        options = ServiceOptions(
            socket=config.service.socket,
            socket_group=config.service.socket_group or "",
            command_fd=self._service_commands.fileno(),
            life_fd=self._life_read,
            silence_s=self._service_silence_s,
            latency_fds=latency_fds,
            latency_source=" and ".join(one.source for one in config.latencies if one),
            applications=tuple(one.name for one in config.applications) if several else (),
            metrics=config.service.metrics or "",
            slo_ms=config.control.slo_ms,
            slots=tuple(slot.name for slot in config.background),
            policy_store=config.policy.store,
            canary_s=config.policy.canary_s,
            canary_margin=config.policy.canary_margin,
            experiments=config.experiments.dir,
            # In a dry run nothing is paused or limited, so there is nothing to tell.
            notify_journal=config.notify.journal and not config.control.dry_run,
            notify_command=() if config.control.dry_run else config.notify.command,
            notify_interval_s=config.notify.interval_s,
            remote=remote.address if remote else "",
            remote_certificate=remote.certificate if remote else None,
            remote_key=remote.key if remote else None,
            remote_client_ca=remote.client_ca if remote else None,
            remote_operators=remote.operators if remote else (),
            report_socket=config.service.report_socket,
            report_group=config.service.report_group or "",
            report_mode=config.service.report_mode,
        )
        return Launch(
            module=self._modules.service,
            options=options,
            fds=(options.command_fd, options.life_fd, *(fd for fd in latency_fds if fd >= 0)),
            environment=QUIET_GRPC,
        )

    def launch_collector(
        self, application: int, source: PrometheusLatency | StatsdLatency
    ) -> Launch:
        """How to start the process that collects the latencies of one application."""
        ends = self._latencies[application]
        fd = ends[1].fileno() if ends else -1
        address = self._addresses[application]
        at = address[1].fileno() if address else -1
        options = CollectorOptions(fd=fd, life_fd=self._life_read, source=source, address_fd=at)
        fds = (fd, options.life_fd, *((at,) if at >= 0 else ()))
        return Launch(module=self._modules.collector, options=options, fds=fds)

    def launch_work(self) -> Launch:
        """How to start the process that reads the counters of the background's work."""
        fd = self._work[1].fileno() if self._work else -1
        options = WorkOptions(fd=fd, life_fd=self._life_read, sources=self._config.read_work)
        return Launch(module=self._modules.work, options=options, fds=(fd, options.life_fd))

    def launch_pods(self) -> Launch:
        """How to start the process that follows the pods."""
        config, fd = self._config, self._pods[1].fileno() if self._pods else -1
        at = tuple(ends[0].fileno() if ends else -1 for ends in self._addresses)
        options = PodsOptions(
            fd=fd,
            life_fd=self._life_read,
            kubernetes=config.kubernetes,
            paths=config.node.paths,
            protected=config.protected_pods,
            slots=tuple(slot.pod for slot in config.background),
            names=(*_said(config), *(slot.name for slot in config.background)),
            address_fds=at,
        )
        fds = (fd, options.life_fd, *(one for one in at if one >= 0))
        return Launch(module=self._modules.pods, options=options, fds=fds)

    def launch_recorder(self, record: RecordConfig) -> Launch:
        """How to start the recorder."""
        fd = self._recorder_records.fileno()
        options = RecorderOptions(fd=fd, path=record.dir / FRAMES_NAME, max_bytes=record.max_bytes)
        return Launch(module=self._modules.recorder, options=options, fds=(fd,))


def _said(config: DaemonConfig) -> tuple[str, ...]:
    """The protected applications, as they are called in messages."""
    if len(config.applications) == 1:
        return ("the protected application",)
    return tuple(one.name for one in config.applications)


class Children:
    """All processes of one daemon except the guardian.

    Args:
        config: The daemon's configuration.
        channels: The channels between them.
        launch_loop: Called at every start of the loop.
    """

    def __init__(
        self, config: DaemonConfig, channels: Channels, launch_loop: Callable[[], Launch]
    ) -> None:
        self._channels = channels
        policy = config.restart
        self.loop = Child(name="loop", launch=launch_loop, policy=policy)
        self.service = Child(
            name="service", launch=channels.launch_service, policy=policy, vital=False
        )
        self.all = [self.loop, self.service]
        """All children, in the order in which they start."""
        self.recorder: Child | None = None
        if config.record is not None:
            launch = partial(channels.launch_recorder, config.record)
            self.recorder = Child(name="recorder", launch=launch, policy=policy, vital=False)
            self.all.insert(0, self.recorder)
        self.collectors = [
            Child(
                name="collector"
                if len(config.applications) == 1
                else f"collector of {config.applications[index].name}",
                launch=partial(channels.launch_collector, index, source),
                policy=policy,
                vital=False,
            )
            for index, source in enumerate(config.latencies)
            if isinstance(source, PrometheusLatency | StatsdLatency)
        ]
        self.all += self.collectors
        self.work: Child | None = None
        if config.read_work:
            self.work = Child(name="work", launch=channels.launch_work, policy=policy, vital=False)
            self.all.append(self.work)
        self.pods: Child | None = None
        if config.follows_pods:
            self.pods = Child(
                name="pod watcher", launch=channels.launch_pods, policy=policy, vital=False
            )
            self.all.append(self.pods)

    def end_remaining(self, timeout_s: float) -> None:
        """Stop all children except the loop, which must have ended, and close the channels."""
        self.service.end(timeout_s)
        for collector in (*self.collectors, self.work, self.pods):
            if collector is not None:
                collector.end(timeout_s)
        self._channels.close()
        if self.recorder is not None:
            self.recorder.end(timeout_s, ask=False)  # it ends by itself when everything is on disk
