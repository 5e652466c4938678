"""The tables of the configuration file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from stallward.actuator.kernel.paths import DEFAULT_PATHS, RUN, SOCKET, Paths
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.latency.config import LatencyConfig
from stallward.actuator.runtime.addresses import Address, parse_address
from stallward.actuator.targets.config import PodConfig
from stallward.actuator.work.config import CpuWork, WorkConfig
from stallward.agent.desired import DEFAULT_FLOOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The zone in which the applications share memory, and the kernel's files on the node."""

    zone: str = "/"
    """The group that contains all other groups; ``/`` is the whole machine."""
    proc: Path = DEFAULT_PATHS.proc
    cgroup: Path = DEFAULT_PATHS.cgroup
    sys: Path = DEFAULT_PATHS.sys
    keep_available_bytes: int = 0
    """How much of the zone stays free at least, e.g. more than the kubelet's eviction threshold;
    controllers that share memory keep the larger of this and their own margin."""
    page_cache: str = "off"
    """Whether page-cache hits and misses are counted by eBPF: ``off`` for never, ``auto`` if the
    kernel allows it; with ``ebpf`` the daemon does not start if it does not."""

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
    """A protected application, and other groups and processes that are never touched.

    One of ``group``, ``processes`` and ``pod`` names the application. Where there are several,
    each is a table ``[[protected]]`` with a name, a target and a source of latencies of its own.
    """

    name: str = "protected"
    """Its name, where there are several."""
    slo_ms: float | None = None
    """Its latency target, where there are several; by default ``control.slo_ms``."""
    latency: LatencyConfig | None = None
    """The source of its request latencies, where there are several; ``None`` for none."""
    group: str | None = None
    """The group of the latency-critical application."""
    processes: ProcessesConfig | None = None
    """The process tree of the latency-critical application."""
    pod: PodConfig | None = None
    """The pod of the latency-critical application, which may come and go."""
    demand_bytes: int = 0
    """The memory that it is known to need, e.g. its working set under full load; 0 if that was not
    measured. Controllers that share memory begin with it, and do not have to see it first."""
    profile: Path | None = None
    """A file of ``stallward profile``, whose working set is taken for ``demand_bytes``."""
    hard_protection: bool = False
    """Whether what a controller guarantees it is never reclaimed (v2 memory.min), instead of
    reclaimed last (memory.low)."""
    groups: tuple[str, ...] = ()
    """Further groups that are left alone."""
    pids: tuple[int, ...] = ()
    """Further processes that are left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotConfig:
    """One background group or process tree, or pods; the first in the file is acted on first."""

    name: str
    group: str | None = None
    processes: ProcessesConfig | None = None
    """A process tree instead of a group."""
    pod: PodConfig | None = None
    """Pods instead of a group, one or several that share the slot; they may come and go."""
    floor_bytes: int = DEFAULT_FLOOR_BYTES
    """The lowest limit that it ever gets."""
    profile: Path | None = None
    """A file of ``stallward profile``; the smallest limit at which it ran is taken for
    ``floor_bytes``."""
    max_pause_s: float | None = None
    """The longest pause that its work tolerates, if that is less than that of the guard: a part of
    the time within which it must answer a watchdog, renew a lease or answer a client."""
    work: WorkConfig = field(default_factory=CpuWork)
    """Where its work is counted; by default its processor time counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """Which controller decides, and how often."""

    controller: str = "partition"
    """``NAME`` or ``NAME:key=value,...``; a policy starts active, and ``none`` only watches. The
    rule that shares memory is the default, because nothing did better on live nodes yet."""
    default_controller: str = "partition"
    """The controller that decides when the decision of ``controller`` cannot be used, or while
    that is a policy that is off. It is not used if ``controller`` is ``none``."""
    slo_ms: float = 100.0
    """The latency target of the protected application; where there are several, of those without
    one of their own."""
    tick_period_s: float = 0.1
    """The time between two ticks under pressure, and while any setting is held."""
    calm_tick_period_s: float = 0.5
    """The time between two ticks of a calm node; ``tick_period_s`` for a constant period."""
    calm_after_s: float = 2.0
    """The time without pressure after which a node counts as calm."""
    watch_period_s: float = 0.025
    """The longest time between two checks of the protected application's stall, soon after
    pressure."""
    calm_watch_period_s: float = 0.039
    """The longest time between two such checks, long after pressure."""
    seed: int = 0
    """The seed of a controller that decides at random."""
    read_processes: bool = False
    """Whether to read the background's processes even if the controller does not ask for them; a
    remote one may need them."""
    read_threads: bool = False
    """Whether to read the protected application's threads even if the controller does not ask for
    them; a remote one may need them."""
    levers: tuple[str, ...] = ()
    """Levers of other packages to load even if the controller does not ask for them: ``file_pages``
    of ``stallward[papers]``. A remote one, or a controller of an experiment, may need them."""
    dry_run: bool = False
    """Whether to decide and record but change nothing; the records say what would be done."""
    foreign_wait_s: float = 60.0
    """How long a setting is left alone after the last report of a foreign change to it, whatever
    the controller wants."""

    @property
    def fallback_controller(self) -> str:
        """The controller that decides when the one in force cannot.

        A controller that only watches is not replaced: a bad sample must not be the reason for
        changes to the node.
        """
        return self.controller if self.controller == "none" else self.default_controller

    @property
    def slowest_tick_s(self) -> float:
        """The longest time between two ticks."""
        return max(self.tick_period_s, self.calm_tick_period_s)

    @property
    def rates(self) -> Rates:
        """The rates of ticks and checks."""
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

    socket: Path = SOCKET
    """The Unix socket of the gRPC service."""
    socket_group: str | None = None
    """A group whose members may use this socket, and so give the daemon any command, by name or
    number; ``None`` for this user alone."""
    metrics: str | None = None
    """Where Prometheus metrics are served: ``HOST:PORT`` or the path of a Unix socket."""
    metrics_public: bool = False
    """Whether other machines may reach the metrics."""
    report_socket: Path | None = None
    """A Unix socket on which an application may report its latencies and do nothing else; with
    ``source = "grpc"`` under ``[latency]``."""
    report_group: str | None = None
    """The group that this socket is given to, by name or number."""
    report_mode: int = 0o660
    """The mode of this socket."""

    @property
    def metrics_address(self) -> Address | None:
        """Where Prometheus metrics are served; ``None`` for nowhere."""
        if self.metrics is None:
            return None
        return parse_address(self.metrics, "config.service.metrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """How other machines reach the daemon: by TCP, with mutual TLS and no other way."""

    address: str
    """Where to listen, ``HOST:PORT``."""
    certificate: Path
    """The certificate that the daemon shows, with those between it and its authority, as PEM."""
    key: Path
    """Its private key, as PEM."""
    client_ca: Path
    """The authorities whose certificates clients must show, as PEM."""
    operators: tuple[str, ...] = ()
    """The names of clients that may change something: the common name of their certificate, or one
    of its alternative names. All others may only observe."""
    networks: tuple[str, ...] = ()
    """The addresses and networks that clients have, e.g. ``10.0.0.0/8``. The systemd unit lets no
    packet of others in or out; any, if none is given."""

    @property
    def listening(self) -> Address:
        """The address."""
        return parse_address(self.address, "config.remote.address")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """The journal, which keeps original settings while they are changed."""

    path: Path = RUN / "stallward/journal"
    """The file, best in memory (/run): the changes that it undoes are lost in a power cut, too."""
    memory_only: bool = False
    """Whether to change settings even if the file cannot be written. Then nothing undoes them if
    guardian and loop die together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """Where tick records are written, and how much of them is kept."""

    dir: Path
    max_bytes: int = 1 << 30
    """The most bytes on disk; beyond them the oldest records are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """Where policies are found, besides the shipped ones."""

    dir: Path | None = None
    """A folder of policies, which the daemon only reads; ``None`` for none."""
    store: Path | None = None
    """The folder in which the daemon keeps policies that clients push, and which were active;
    ``None`` to take none."""
    canary_s: float = 1800.0
    """How long a policy is watched after it was activated. If it certainly keeps the target less
    often than what decided before, it is turned off. 0 for not at all."""
    canary_margin: float = 0.02
    """By how much less often it may keep the target, as a share of the seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentsConfig:
    """Experiments that compare two controllers on this node."""

    dir: Path | None = None
    """The folder in which the daemon keeps the experiment that runs, so that it goes on after a
    restart; ``None`` to run none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyConfig:
    """Who is told when a slot is paused, limited or let go."""

    journal: bool = True
    """Whether it is written to systemd's journal, with fields of its own, or to standard error where
    there is no journal. Advice is, too."""
    command: tuple[str, ...] = ()
    """A program that is run for it, and its arguments; empty for none. It is told in variables of
    its environment, and runs with the daemon's rights."""
    interval_s: float = 10.0
    """The least time between two notices of one slot, and between two pieces of advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartConfig:
    """What the guardian does when a process of the daemon dies."""

    delay_s: float = 0.1
    """The delay before a restart; it doubles, up to ``max_delay_s``, each time the process dies
    soon after its start."""
    max_delay_s: float = 5.0
    max_per_minute: int = 20
    """The most deaths of the loop in a minute; after more, the daemon restores everything and
    gives up. Another process that dies more often is started again after ``max_delay_s``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates of the loop's ticks, and of its checks for pressure between them."""

    tick_s: float = 0.1
    """The time between two ticks under pressure."""
    calm_tick_s: float = 0.5
    """The time between two ticks of a calm node."""
    calm_after_s: float = 2.0
    """The time without a sign of pressure after which a node counts as calm."""
    watch_s: float = 0.025
    """The longest time between two checks of the protected application's stall, soon after
    pressure."""
    calm_watch_s: float = 0.039
    """The longest time between two such checks, long after pressure."""
