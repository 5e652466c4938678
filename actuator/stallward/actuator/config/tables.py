"""The tables of the configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.runtime.addresses import Address, parse_address
from stallward.agent.desired import DEFAULT_FLOOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Where the protected application and the background share memory."""

    zone: str = "/"
    """Group that contains all the others; ``/`` is the whole machine."""
    proc: Path = DEFAULT_PATHS.proc
    cgroup: Path = DEFAULT_PATHS.cgroup
    sys: Path = DEFAULT_PATHS.sys
    page_cache: str = "off"
    """``auto`` or ``ebpf``: count page-cache hits and misses by eBPF where the kernel allows it;
    with ``ebpf`` the daemon does not start where it does not."""

    @classmethod
    def at(cls, paths: Paths, *, zone: str) -> Self:
        """A node whose kernel files are below ``paths``."""
        return cls(zone=zone, proc=paths.proc, cgroup=paths.cgroup, sys=paths.sys)

    @property
    def paths(self) -> Paths:
        """The roots of the kernel's files."""
        return Paths(proc=self.proc, cgroup=self.cgroup, sys=self.sys)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedConfig:
    """What is never paused, limited or killed."""

    group: str | None = None
    """The latency-critical application; or:"""
    processes: ProcessesConfig | None = None
    """The tree of its processes."""
    groups: tuple[str, ...] = ()
    """Further groups."""
    pids: tuple[int, ...] = ()
    """Further processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotConfig:
    """One background group or process tree; the first listed is acted on first."""

    name: str
    group: str | None = None
    processes: ProcessesConfig | None = None
    """A process tree instead of a group."""
    floor_bytes: int = DEFAULT_FLOOR_BYTES
    """The lowest limit it is ever given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """Who decides, and how often."""

    controller: str = "rule"
    """``NAME`` or ``NAME:key=value,...``; a policy starts active. ``none`` only watches. The tuned
    rule is the default because live no policy is certainly better yet."""
    default_controller: str = "rule"
    """Takes over when the controller's decision cannot be used, or the policy is off; nobody does
    where the controller is ``none``."""
    slo_ms: float = 100.0
    tick_period_s: float = 0.1
    """Between two ticks under pressure, and while anything is held."""
    calm_tick_period_s: float = 0.5
    """Between two ticks of a calm node; the same as ``tick_period_s`` for an even rhythm."""
    calm_after_s: float = 2.0
    """How long without pressure a node counts as calm."""
    watch_period_s: float = 0.025
    """At most between two looks at the protected application's stall, soon after pressure."""
    calm_watch_period_s: float = 0.039
    """The same long after."""
    seed: int = 0
    read_processes: bool = False
    """Read the background's processes even if no controller asks (a remote one may)."""
    dry_run: bool = False
    """Decide and record, but change nothing: the records say what would have been done."""
    foreign_wait_s: float = 60.0
    """How long a setting that somebody else has changed is left to them, unless the controller
    wants something else meanwhile."""

    @property
    def takes_over(self) -> str:
        """Who decides when the controller cannot.

        Who only watches a node does not want a bad sample to be the reason that it is touched.
        """
        return self.controller if self.controller == "none" else self.default_controller

    @property
    def slowest_tick_s(self) -> float:
        """The longest time between two ticks."""
        return max(self.tick_period_s, self.calm_tick_period_s)

    @property
    def rates(self) -> Rates:
        """How often the loop looks."""
        return Rates(
            tick_s=self.tick_period_s,
            calm_tick_s=self.calm_tick_period_s,
            calm_after_s=self.calm_after_s,
            watch_s=self.watch_period_s,
            calm_watch_s=self.calm_watch_period_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """How the daemon is reached."""

    socket: Path
    """Unix socket of the gRPC service, mode 0600."""
    metrics: str | None = None
    """Where Prometheus metrics are served: ``HOST:PORT`` or the path of a Unix socket."""
    metrics_public: bool = False
    """Whether other machines may reach them."""

    @property
    def metrics_address(self) -> Address | None:
        """Where Prometheus metrics are served, if anywhere."""
        if self.metrics is None:
            return None
        return parse_address(self.metrics, "config.service.metrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """Where original settings are kept while they are changed."""

    path: Path
    """Best in memory (/run): what it undoes does not survive a power cut either."""
    memory_only: bool = False
    """Change things even while the file cannot be written: then the death of guardian and loop
    together leaves them changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """Where tick records go."""

    dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """Where ``Load`` looks for policies given by name."""

    dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartConfig:
    """What the guardian does when a process of the daemon dies."""

    delay_s: float = 0.1
    """Before the first restart; doubled, up to ``max_delay_s``, when it died young."""
    max_delay_s: float = 5.0
    max_per_minute: int = 20
    """After so many the daemon gives up, everything restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often the loop looks."""

    tick_s: float = 0.1
    """Between two ticks under pressure."""
    calm_tick_s: float = 0.5
    """Between two ticks of a calm node."""
    calm_after_s: float = 2.0
    """How long a node shows no sign of pressure before it counts as calm."""
    watch_s: float = 0.025
    """At most between two looks at the protected application's stall after recent pressure."""
    calm_watch_s: float = 0.039
    """The same long after."""
