"""What the guardian, the loop and the service are told at their start, and how they are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """The module that each process of a daemon runs; its name tells the processes apart."""

    guardian: str = "stallward.actuator.guardian"
    loop: str = "stallward.actuator.loop"
    service: str = "stallward.actuator.service"
    recorder: str = "stallward.actuator.record.recorder"
    collector: str = "stallward.actuator.latency.collector"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardianOptions:
    """What a daemon is told at its start."""

    config: Path
    """Its configuration, a TOML file."""
    owner_fd: int = -1
    """The daemon stops when the other end of this descriptor is closed; -1 for none."""
    owned_folder: Path | None = None
    """A temporary folder of the owner, removed if the owner cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a loop finds of those before it."""

    memory_fd: int
    """See :mod:`stallward.actuator.ipc.shared_memory`."""
    first_place: int
    """The first place of that memory that no earlier loop's entry needs."""
    heir: bool
    """Whether there was a loop that may have paused something lately."""
    unfinished: bool = False
    """Whether something that a loop left could not be undone: the journal has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """What the guardian tells its loop."""

    config_fd: int
    """Holds the daemon's configuration as TOML."""
    guardian_fd: int
    command_fd: int
    record_fd: int = -1
    """Where tick records go; -1 for nowhere."""
    latency_fd: int = -1
    """Where another process sends latencies; -1 for none."""
    restarts: int
    """How many loops this daemon has had before."""
    daemon_start_s: float
    """When the daemon was started, CLOCK_MONOTONIC."""
    left: Inheritance


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """What the guardian tells its service."""

    socket: Path
    command_fd: int
    life_fd: int
    silence_s: float
    """A loop that says nothing for so long is not there."""
    latency_fd: int = -1
    """Where reported latencies go; -1 if they come from elsewhere."""
    latency_source: str = ""
    """The configured source; empty for none."""
    metrics: str = ""
    """Where metrics are served; empty for nowhere."""
    slo_ms: float
    slots: tuple[str, ...] = ()
