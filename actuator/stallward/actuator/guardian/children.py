"""What connects the daemon's processes: their sockets, and with what each child is started.

The guardian keeps both ends of what must outlive a child, so that the next one finds it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import RecordConfig
from stallward.actuator.guardian.child import Child, Launch
from stallward.actuator.ipc.channels import LOOP_DIED
from stallward.actuator.latency.config import (
    UNIT_MS,
    GrpcLatency,
    LinesLatency,
    PrometheusLatency,
    StatsdLatency,
)
from stallward.actuator.record.frames import FRAMES_NAME

_KIND = socket.SOCK_SEQPACKET
_SILENCE_S = 2.0
"""A loop of which the service has heard nothing for so long is not serving ..."""
_SILENT_TICKS = 3.0
"""... or for so many of its longest ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a loop finds of those before it.

    Attributes:
        memory_fd: See :mod:`stallward.actuator.ipc.shared_memory`.
        first_place: The first place of it that no earlier loop's entry needs.
        heir: Whether there was a loop that may have paused something lately.
        unfinished: Whether something that a loop left could not be undone: the journal has it.
    """

    memory_fd: int
    first_place: int
    heir: bool
    unfinished: bool = False


class Wiring:
    """The channels of one daemon.

    Args:
        config: The daemon's configuration.
        lock_fds: The locks of the daemon. The loop inherits them: what it has not put back yet
            is not for another daemon.
        started_s: When the daemon was started, CLOCK_MONOTONIC.

    Attributes:
        link: The guardian's end of its socket to the loop; ``None`` once that is closed.
    """

    def __init__(self, config: DaemonConfig, lock_fds: tuple[int, ...], started_s: float) -> None:
        self._config = config
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
        records = self._loop_records.fileno() if self._config.record else -1
        latencies = self._latencies[0].fileno() if self._latencies else -1
        own = (theirs.fileno(), self._loop_commands.fileno(), self._config_fd, left.memory_fd)
        fds = (*own, *self._lock_fds)
        arguments = (
            *("--config", f"/proc/self/fd/{self._config_fd}"),
            *("--guardian-fd", str(theirs.fileno())),
            *("--command-fd", str(self._loop_commands.fileno())),
            *("--record-fd", str(records)),
            *("--latency-fd", str(latencies)),
            *("--restarts", str(restarts)),
            *("--memory-fd", str(left.memory_fd)),
            *("--first-place", str(left.first_place)),
            *("--heir", str(int(left.heir))),
            *("--unfinished", str(int(left.unfinished))),
            *("--daemon-start-s", repr(self._started_s)),
        )
        return Launch(
            module="stallward.actuator.loop",
            arguments=arguments,
            fds=(*fds, *(fd for fd in (records, latencies) if fd >= 0)),
            handed_over=(theirs,),
        )

    def launch_service(self) -> Launch:
        """How to start the service."""
        config = self._config
        fds = (self._service_commands.fileno(), self._life_read)
        latency = config.latency
        reports = -1
        if self._latencies and isinstance(latency, GrpcLatency):
            reports = self._latencies[1].fileno()
        return Launch(
            module="stallward.actuator.service",
            arguments=(
                *("--socket", str(config.service.socket)),
                *("--command-fd", str(fds[0])),
                *("--life-fd", str(fds[1])),
                *("--silence-s", repr(self._service_silence_s)),
                *("--latency-fd", str(reports)),
                *("--latency-source", latency.source if latency else ""),
                *("--metrics", config.service.metrics or ""),
                *("--slo-ms", repr(config.control.slo_ms)),
                *(f"--slot={slot.name}" for slot in config.background),
            ),
            fds=(*fds, *([reports] if reports >= 0 else [])),
        )

    def launch_collector(self, source: PrometheusLatency | StatsdLatency) -> Launch:
        """How to start the collector of latencies."""
        fds = (self._latencies[1].fileno() if self._latencies else -1, self._life_read)
        if isinstance(source, PrometheusLatency):
            own: tuple[str, ...] = (
                f"--url={source.url}",
                *("--period-s", repr(source.period_s)),
                *("--timeout-s", repr(source.timeout_s)),
            )
        else:
            own = (f"--listen={source.address}", *(f"--tag={tag}" for tag in source.tags))
        return Launch(
            module="stallward.actuator.latency.collector",
            arguments=(
                *("--fd", str(fds[0])),
                *("--life-fd", str(fds[1])),
                f"--metric={source.metric}",
                *("--unit-ms", repr(UNIT_MS[source.unit])),
                *own,
            ),
            fds=fds,
        )

    def launch_recorder(self, record: RecordConfig) -> Launch:
        """How to start the recorder."""
        fd = self._recorder_records.fileno()
        return Launch(
            module="stallward.actuator.record.recorder",
            arguments=("--fd", str(fd), "--path", str(record.dir / FRAMES_NAME)),
            fds=(fd,),
        )


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
