"""What connects the daemon's processes: their sockets, and with what each child is started.

The guardian keeps both ends of what must outlive a child, so that the next one finds it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import RecordConfig
from stallward.actuator.guardian.child import Child, Launch
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
from stallward.actuator.runtime.process_start import SINGLE_THREADED_MATHS

_KIND = socket.SOCK_SEQPACKET
_SILENCE_S = 2.0
"""A loop of which the service has heard nothing for so long is not serving ..."""
_SILENT_TICKS = 3.0
"""... or for so many of its longest ticks."""


class Wiring:
    """The channels of one daemon.

    Args:
        config: The daemon's configuration.
        lock_fds: The locks of the daemon. The loop inherits them: what it has not put back yet
            is not for another daemon.
        started_s: When the daemon was started, CLOCK_MONOTONIC.
        modules: What each process runs.

    Attributes:
        link: The guardian's end of its socket to the loop; ``None`` once that is closed.
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
        os.write(self._config_fd, config_toml(config).encode())
        self._loop_commands, self._service_commands = socket.socketpair(socket.AF_UNIX, _KIND)
        self._loop_records, self._recorder_records = socket.socketpair(socket.AF_UNIX, _KIND)
        self._latencies: tuple[socket.socket, socket.socket] | None = None
        if config.latency is not None and not isinstance(config.latency, LinesLatency):
            self._latencies = socket.socketpair(socket.AF_UNIX, _KIND)
        self._life_read, self._life_write = os.pipe()
        self.link: socket.socket | None = None

    def drop_link(self) -> None:
        """Close the socket to the loop."""
        if self.link is not None:
            self.link.close()
            self.link = None

    def fail_commands(self) -> None:
        """Drop what a dead loop was asked, and tell the service that no answer will come."""
        with contextlib.suppress(OSError):
            while self._loop_commands.recv(1, socket.MSG_DONTWAIT):
                pass  # the rest of a message goes with its first byte
        with contextlib.suppress(OSError):
            self._loop_commands.send(LOOP_DIED, socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Close what keeps the service and the recorder waiting for more."""
        os.close(self._life_write)
        commands = (self._loop_commands, self._service_commands)
        for end in (
            self._loop_records,
            self._recorder_records,
            *commands,
            *(self._latencies or ()),
        ):
            end.close()

    def launch_loop(self, restarts: int, left: Inheritance) -> Launch:
        """How to start the loop, on a new link."""
        self.drop_link()
        self.link, theirs = socket.socketpair(socket.AF_UNIX, _KIND)
        options = LoopOptions(
            config_fd=self._config_fd,
            guardian_fd=theirs.fileno(),
            command_fd=self._loop_commands.fileno(),
            record_fd=self._loop_records.fileno() if self._config.record else -1,
            latency_fd=self._latencies[0].fileno() if self._latencies else -1,
            restarts=restarts,
            daemon_start_s=self._started_s,
            inherited=left,
        )
        own = (options.config_fd, options.guardian_fd, options.command_fd, left.memory_fd)
        perhaps = (options.record_fd, options.latency_fd)
        return Launch(
            module=self._modules.loop,
            options=options,
            fds=(*own, *self._lock_fds, *(fd for fd in perhaps if fd >= 0)),
            handed_over=(theirs,),
            environment=SINGLE_THREADED_MATHS,
        )

    def launch_service(self) -> Launch:
        """How to start the service."""
        config, latency = self._config, self._config.latency
        reports = -1
        if self._latencies and isinstance(latency, GrpcLatency):
            reports = self._latencies[1].fileno()
        options = ServiceOptions(
            socket=config.service.socket,
            command_fd=self._service_commands.fileno(),
            life_fd=self._life_read,
            silence_s=self._service_silence_s,
            latency_fd=reports,
            latency_source=latency.source if latency else "",
            metrics=config.service.metrics or "",
            slo_ms=config.control.slo_ms,
            slots=tuple(slot.name for slot in config.background),
        )
        return Launch(
            module=self._modules.service,
            options=options,
            fds=(options.command_fd, options.life_fd, *([reports] if reports >= 0 else [])),
        )

    def launch_collector(self, source: PrometheusLatency | StatsdLatency) -> Launch:
        """How to start the collector of latencies."""
        fd = self._latencies[1].fileno() if self._latencies else -1
        options = CollectorOptions(fd=fd, life_fd=self._life_read, source=source)
        return Launch(module=self._modules.collector, options=options, fds=(fd, options.life_fd))

    def launch_recorder(self, record: RecordConfig) -> Launch:
        """How to start the recorder."""
        fd = self._recorder_records.fileno()
        options = RecorderOptions(fd=fd, path=record.dir / FRAMES_NAME)
        return Launch(module=self._modules.recorder, options=options, fds=(fd,))


class Children:
    """The processes of one daemon beside its guardian.

    Args:
        config: The daemon's configuration.
        wiring: What connects them.
        launch_loop: Called at every start of the loop.
    """

    def __init__(
        self, config: DaemonConfig, wiring: Wiring, launch_loop: Callable[[], Launch]
    ) -> None:
        self._wiring = wiring
        policy = config.restart
        self.loop = Child(name="loop", launch=launch_loop, policy=policy)
        self.service = Child(name="service", launch=wiring.launch_service, policy=policy)
        self.all = [self.loop, self.service]
        """In the order in which they start."""
        self.recorder: Child | None = None
        if config.record is not None:
            launch = partial(wiring.launch_recorder, config.record)
            self.recorder = Child(name="recorder", launch=launch, policy=policy)
            self.all.insert(0, self.recorder)
        self.collector: Child | None = None
        if isinstance(config.latency, PrometheusLatency | StatsdLatency):
            launch = partial(wiring.launch_collector, config.latency)
            self.collector = Child(name="collector", launch=launch, policy=policy, vital=False)
            self.all.append(self.collector)

    def end_others(self, timeout_s: float) -> None:
        """Stop all but the loop, which has ended, and close what connected them."""
        self.service.end(timeout_s)
        if self.collector is not None:
            self.collector.end(timeout_s)
        self._wiring.close()
        if self.recorder is not None:
            self.recorder.end(timeout_s, ask=False)  # it ends by itself when all is on disk
