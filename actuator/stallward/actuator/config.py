"""The daemon's configuration: one TOML file, parsed once, refused whole if anything is off."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.addresses import Address, parse_address
from stallward.actuator.config_processes import ProcessesConfig, check_target
from stallward.actuator.errors import ConfigError, GroupError
from stallward.actuator.groups import parse_name
from stallward.actuator.guard import Budgets
from stallward.actuator.latency.config import LatencyConfig, LinesLatency
from stallward.actuator.pacing import Rates
from stallward.actuator.paths import Paths
from stallward.actuator.toml_schema import from_table, to_toml
from stallward.agent.desired import DEFAULT_FLOOR_BYTES
from stallward.agent.toml_text import read_toml

PAGE_CACHE_MODES: Final = ("off", "auto", "ebpf")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Where the protected application and the background share memory."""

    zone: str = "/"
    """Group that contains all the others; ``/`` is the whole machine."""
    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    page_cache: str = "off"
    """``auto`` or ``ebpf``: count page-cache hits and misses by eBPF where the kernel allows it;
    with ``ebpf`` the daemon does not start where it does not."""

    @property
    def paths(self) -> Paths:
        """The roots of the kernel's files."""
        return Paths(proc=self.proc, cgroup=self.cgroup)


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

    controller: str = "none"
    """``NAME`` or ``NAME:key=value,...``; a policy starts active."""
    default_controller: str = "none"
    """Takes over when the controller's decision cannot be used, or the policy is off."""
    slo_ms: float = 100.0
    tick_period_s: float = 0.1
    """Between two ticks under pressure, and while anything is held."""
    calm_tick_period_s: float = 0.5
    """Between two ticks of a calm node; the same as ``tick_period_s`` for an even rhythm."""
    calm_after_s: float = 2.0
    """How long without pressure a node counts as calm."""
    watch_period_s: float = 0.02
    """Between two looks at the protected application's stall, soon after pressure."""
    calm_watch_period_s: float = 0.038
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
class DaemonConfig:
    """What the user asked of the daemon."""

    protected: ProtectedConfig
    background: tuple[SlotConfig, ...]
    service: ServiceConfig
    journal: JournalConfig
    node: NodeConfig = field(default_factory=NodeConfig)
    latency: LatencyConfig | None = None
    control: ControlConfig = field(default_factory=ControlConfig)
    guard: Budgets = field(default_factory=Budgets)
    record: RecordConfig | None = None
    policy: PolicyConfig | None = None
    restart: RestartConfig = field(default_factory=RestartConfig)

    def __post_init__(self) -> None:
        _check_groups(self)
        _check_numbers(self)
        _check_names(self)
        _check_paths(self)


def parse_config(text: str, name: str = "config") -> DaemonConfig:
    """Parse a configuration.

    Args:
        text: TOML.
        name: What messages call it, e.g. the file's path.

    Raises:
        ConfigError: If anything is unknown, missing, mistyped or out of range.
    """
    try:
        table = read_toml(text)
    except ValueError as error:
        raise ConfigError(f"{name} is not TOML: {error}.") from error
    try:
        return from_table(DaemonConfig, table, "config")
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.cause}", next_step=error.next_step) from error


def load_config(path: Path) -> DaemonConfig:
    """Read a configuration file.

    Raises:
        ConfigError: If it cannot be read or used.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    return parse_config(text, str(path))


def config_toml(config: DaemonConfig) -> str:
    """The file of a configuration; parsing it gives the same value."""
    return to_toml(config)


def _inside(inner: str, outer: str) -> bool:
    return outer in {"", inner} or inner.startswith(f"{outer}/")


def _group(place: str, name: str) -> str:
    try:
        return parse_name(name)
    except GroupError as error:
        raise ConfigError(f"config.{place}: {error.cause}", next_step=error.next_step) from error


def _check_groups(config: DaemonConfig) -> None:
    zone = _group("node.zone", config.node.zone)
    protected: dict[str, str] = {}
    check_target("protected", config.protected.group, config.protected.processes)
    if config.protected.group is not None:
        protected["protected.group"] = _group("protected.group", config.protected.group)
    for i, name in enumerate(config.protected.groups):
        protected[f"protected.groups[{i}]"] = _group(f"protected.groups[{i}]", name)
    if "" in protected.values():
        raise ConfigError("config.protected: the whole machine cannot be the protected group.")
    seen: dict[str, str] = {}
    for i, slot in enumerate(config.background):
        check_target(f"background[{i}]", slot.group, slot.processes)
        if slot.group is None:
            continue  # which processes a tree has is known on the node only
        place = f"background[{i}].group"
        group = _group(place, slot.group)
        if not group or not _inside(group, zone) or group == zone:
            raise ConfigError(
                f"config.{place} is {slot.group!r}, not below the zone {config.node.zone!r}."
            )
        for other_place, other in {**protected, **seen}.items():
            if _inside(group, other) or _inside(other, group):
                raise ConfigError(
                    f"config.{place} ({slot.group!r}) and config.{other_place} overlap.",
                    next_step="Put the background into groups of its own.",
                )
        seen[place] = group
    names = [slot.name for slot in config.background]
    for i, name in enumerate(names):
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or name in names[:i]:
            raise ConfigError(
                f"config.background[{i}].name is {name!r}.",
                next_step="Use letters, digits, '.', '_' and '-', each name once.",
            )


def _check_numbers(config: DaemonConfig) -> None:
    guard, control, restart = config.guard, config.control, config.restart
    bounds: list[tuple[str, float, float, float]] = [
        ("guard.max_pause_s", guard.max_pause_s, 0.1, 3600),
        ("guard.max_pause_share", guard.max_pause_share, 0, 1),
        ("guard.min_run_s", guard.min_run_s, 0, 60),
        ("guard.late_allowance_s", guard.late_allowance_s, 0, 10),
        ("guard.hard_limit_margin_bytes", guard.hard_limit_margin_bytes, 0, 2**62),
        ("guard.min_cpu_cores", guard.min_cpu_cores, 0.001, 1024),
        ("guard.min_io_bytes_per_s", guard.min_io_bytes_per_s, 1, 2**62),
        ("guard.stale_s", guard.stale_s, 0.01, 60),
        ("guard.return_after_ticks", guard.return_after_ticks, 0, 100_000),
        ("control.slo_ms", control.slo_ms, 1e-3, 1e6),
        ("control.tick_period_s", control.tick_period_s, 0.02, 10),
        ("control.calm_tick_period_s", control.calm_tick_period_s, 0.02, 10),
        ("control.calm_after_s", control.calm_after_s, 0, 3600),
        ("control.watch_period_s", control.watch_period_s, 0.002, 1),
        ("control.calm_watch_period_s", control.calm_watch_period_s, 0.002, 1),
        ("control.foreign_wait_s", control.foreign_wait_s, 1, 86400),
        ("control.seed", control.seed, 0, 2**32 - 1),
        ("restart.delay_s", restart.delay_s, 0, 60),
        ("restart.max_delay_s", restart.max_delay_s, restart.delay_s, 3600),
        ("restart.max_per_minute", restart.max_per_minute, 0, 10_000),
    ]
    bounds += [
        (f"background[{i}].floor_bytes", slot.floor_bytes, 4096, 2**62)
        for i, slot in enumerate(config.background)
    ]
    bounds += [
        (f"protected.pids[{i}]", pid, 1, 2**31 - 1) for i, pid in enumerate(config.protected.pids)
    ]
    for name, value, low, high in bounds:
        if not low <= value <= high:
            raise ConfigError(f"config.{name} is {value:g}, outside {low:g}..{high:g}.")


def _check_names(config: DaemonConfig) -> None:
    if config.node.page_cache not in PAGE_CACHE_MODES:
        raise ConfigError(
            f"config.node.page_cache is {config.node.page_cache!r}.",
            next_step=f"Use one of {', '.join(PAGE_CACHE_MODES)}.",
        )


def _check_paths(config: DaemonConfig) -> None:
    lines = config.latency
    paths: list[tuple[str, Path | None]] = [
        ("node.proc", config.node.proc),
        ("node.cgroup", config.node.cgroup),
        ("service.socket", config.service.socket),
        ("journal.path", config.journal.path),
        ("record.dir", config.record.dir if config.record else None),
        ("policy.dir", config.policy.dir if config.policy else None),
        ("latency.path", lines.path if isinstance(lines, LinesLatency) else None),
    ]
    for name, path in paths:
        if path is not None and not path.is_absolute():
            raise ConfigError(
                f"config.{name} is {str(path)!r}, a relative path.",
                next_step="Write the whole path, from /.",
            )
    parse_address(str(config.service.socket), "config.service.socket")
    metrics = config.service.metrics_address
    if metrics is not None and not (metrics.is_local or config.service.metrics_public):
        raise ConfigError(
            f"config.service.metrics is {config.service.metrics!r}, which other machines reach.",
            next_step="Serve on 127.0.0.1 or a Unix socket, or write metrics_public = true.",
        )
