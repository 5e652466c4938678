"""The options with which the daemon's processes are started, and the modules that they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """The module that each process of a daemon runs; processes are recognised by its name."""

    guardian: str = "stallward.actuator.guardian"
    loop: str = "stallward.actuator.loop"
    service: str = "stallward.actuator.service"
    recorder: str = "stallward.actuator.record.recorder"
    collector: str = "stallward.actuator.latency.collector"
    work: str = "stallward.actuator.work.collector"
    pods: str = ""
    """That of another package; empty if no target is a pod."""
    restorer: str = "stallward.actuator.guardian.restorer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardianOptions:
    """The options of the guardian, and so of the whole daemon."""

    config: Path
    """The configuration, a TOML file."""
    owner_fd: int = -1
    """The daemon stops when the other end of this descriptor is closed; -1 for none."""
    owned_folder: Path | None = None
    """A temporary folder of the owner, which the guardian removes if the owner cannot."""
    pods_module: str = ""
    """The module of the process that follows pods; empty if no target is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a loop takes over from earlier loops."""

    memory_fd: int
    """The shared memory; see :mod:`stallward.actuator.ipc.shared_memory`."""
    first_place: int
    """The first place in that memory that is free of earlier loops' entries."""
    after_restart: bool
    """Whether an earlier loop may have paused a slot lately."""
    unfinished: bool = False
    """Whether some changes of an earlier loop could not be undone; the journal holds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """The options of the loop."""

    config_fd: int
    """A file with the daemon's configuration as TOML."""
    guardian_fd: int
    """The socket to the guardian."""
    command_fd: int
    """The socket to the service."""
    record_fd: int = -1
    """The socket to the recorder; -1 if nothing is recorded."""
    latency_fds: tuple[int, ...] = ()
    """For each application the socket from which its latencies come; -1 if no other process sends
    any."""
    work_fd: int = -1
    """The socket from which the work of slots comes; -1 if none has a source of its own."""
    pods_fd: int = -1
    """The socket from which comes which pods have which place; -1 if no target is a pod."""
    restarts: int
    """How many loops this daemon has had before."""
    daemon_start_s: float
    """When the daemon was started, CLOCK_MONOTONIC."""
    inherited: Inheritance
    """What the loop takes over from earlier loops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The options of the service."""

    socket: Path
    """The Unix socket at which the service listens."""
    socket_group: str = ""
    """The group that this socket is given to, by name or number; empty for none."""
    command_fd: int
    """The socket to the loop."""
    life_fd: int
    """The service ends when the other end of this descriptor is closed."""
    silence_s: float
    """The loop counts as unavailable when it sends nothing for so long."""
    latency_fds: tuple[int, ...] = ()
    """For each application the socket for latencies that clients report; -1 if its latencies come
    from another source."""
    latency_source: str = ""
    """The configured source of latencies; empty for none."""
    applications: tuple[str, ...] = ()
    """The names of the applications, where there are several."""
    metrics: str = ""
    """The address at which metrics are served; empty if they are not."""
    slo_ms: float
    slots: tuple[str, ...] = ()
    policy_store: Path | None = None
    """The folder of the policies that clients push; ``None`` to take none."""
    canary_s: float = 0.0
    """How long a policy that was activated is watched; 0 for not at all."""
    canary_margin: float = 0.0
    """By how much less often it may keep the target, as a share of the seconds."""
    experiments: Path | None = None
    """The folder in which experiments are kept; ``None`` to run none."""
    notify_journal: bool = False
    """Whether notices and advice go to systemd's journal."""
    notify_command: tuple[str, ...] = ()
    """The program that is run for each notice, and its arguments; empty for none."""
    notify_interval_s: float = 10.0
    """The least time between two notices of one slot, and between two pieces of advice."""
    remote: str = ""
    """The TCP address for other machines; empty for none."""
    remote_certificate: Path | None = None
    remote_key: Path | None = None
    remote_client_ca: Path | None = None
    remote_operators: tuple[str, ...] = ()
    """The names in certificates of clients that may change something."""
    remote_silence_s: float = 30.0
    """After how long without a sign of life a client there is gone: one whose network failed would
    keep its place among the watchers."""
    report_socket: Path | None = None
    """The Unix socket for reports of latencies alone; ``None`` for none."""
    report_group: str = ""
    """The group that this socket is given to, by name or number; empty for none."""
    report_mode: int = 0o660
