"""The daemon's configuration and its checks: a mistake anywhere refuses it as a whole."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.config.tables import (
    ControlConfig,
    ExperimentsConfig,
    JournalConfig,
    NodeConfig,
    NotifyConfig,
    PolicyConfig,
    ProtectedConfig,
    RecordConfig,
    RemoteConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.errors import ConfigError, GroupError, KubeletGroupError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.cgroups import parse_name
from stallward.actuator.kernel.process_spec import check_target
from stallward.actuator.latency.config import (
    LatencyConfig,
    LinesLatency,
    PrometheusLatency,
    StatsdLatency,
)
from stallward.actuator.parts import Part, load_part
from stallward.actuator.runtime.addresses import grpc_target
from stallward.actuator.targets.config import KubernetesConfig, PodConfig
from stallward.actuator.work.config import CpuWork, SlotWork

# ---------- Checks of the addresses under which a daemon can be asked


def check_report_socket(service: ServiceConfig) -> None:
    """Check the socket for those who only look on.

    Raises:
        ConfigError: If it is no socket of its own, or lets others write more than it may.
    """
    path, mode = service.report_socket, service.report_mode
    if path is None:
        if service.report_group is not None:
            raise ConfigError(
                "config.service.report_group goes with report_socket only.",
                next_step="Give report_socket, or remove it.",
            )
        return
    grpc_target(path, "config.service.report_socket")
    if mode & ~0o666 or mode & 0o600 != 0o600:
        raise ConfigError(
            f"config.service.report_mode is {mode:#o}, not a mode of a socket.",
            next_step="Write 0o660 for a group, 0o600 for this user alone, or 0o666.",
        )


def check_socket_paths(config: DaemonConfig) -> None:
    """Check that each socket has a path of its own: the later one would replace the earlier.

    Raises:
        ConfigError: If two are the same.
    """
    taken = {os.path.normpath(config.service.socket)}
    metrics = config.service.metrics_address
    for key, path in (
        ("service.report_socket", config.service.report_socket),
        ("service.metrics", metrics.path if metrics is not None else ""),
        *(
            (f"{place}.listen", source.address.path)
            for place, source in config.named_latencies
            if isinstance(source, StatsdLatency)
        ),
    ):
        place = os.path.normpath(path or "")
        if path and place in taken:
            raise ConfigError(
                f"config.{key} is {str(path)!r}, like another socket.",
                next_step="Give it a path of its own.",
            )
        taken.add(place)


def check_remote(remote: RemoteConfig) -> None:
    """Check the address for other machines, and who may change something from there.

    Raises:
        ConfigError: If it is a path, an operator has no name, or a network is none.
    """
    if remote.listening.path:
        raise ConfigError(
            f"config.remote.address is {remote.address!r}, a path.",
            next_step="Write HOST:PORT; a Unix socket is the socket under [service].",
        )
    for i, name in enumerate(remote.operators):
        if not name.strip():
            raise ConfigError(f"config.remote.operators[{i}] is empty: no certificate is meant.")
    for i, network in enumerate(remote.networks):
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ConfigError(
                f"config.remote.networks[{i}] is {network!r:.80}, no network ({error}).",
                next_step="Write an IP address, or a network such as 10.0.0.0/8.",
            ) from error


MOST_APPLICATIONS: Final = 16
"""The most protected applications; each is read at every tick."""
_PAGE_CACHE_MODES: Final = ("off", "auto", "ebpf")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig:
    """The whole configuration of a daemon, checked when it is made."""

    protected: ProtectedConfig | tuple[ProtectedConfig, ...]
    """The protected application; a tuple of several."""
    background: tuple[SlotConfig, ...]
    service: ServiceConfig = field(default_factory=ServiceConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    remote: RemoteConfig | None = None
    """How other machines reach the daemon; ``None`` if they do not."""
    node: NodeConfig = field(default_factory=NodeConfig)
    latency: LatencyConfig | None = None
    """The source of the application's request latencies; ``None`` for none, and where there are
    several applications, each with its own."""
    control: ControlConfig = field(default_factory=ControlConfig)
    guard: Budgets = field(default_factory=Budgets)
    record: RecordConfig | None = None
    """Where tick records are written; ``None`` for nowhere."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    experiments: ExperimentsConfig = field(default_factory=ExperimentsConfig)
    notify: NotifyConfig = field(default_factory=NotifyConfig)
    kubernetes: KubernetesConfig = field(default_factory=KubernetesConfig)
    """Where pods are looked up, if any target is a pod."""
    restart: RestartConfig = field(default_factory=RestartConfig)

    def __post_init__(self) -> None:
        check_config(self)

    @property
    def applications(self) -> tuple[ProtectedConfig, ...]:
        """The protected applications, at least one."""
        return self.protected if isinstance(self.protected, tuple) else (self.protected,)

    @property
    def named_applications(self) -> tuple[tuple[str, ProtectedConfig], ...]:
        """The same, each with the place of its table in the file."""
        if not isinstance(self.protected, tuple):
            return (("protected", self.protected),)
        return tuple((f"protected[{i}]", one) for i, one in enumerate(self.protected))

    @property
    def latencies(self) -> tuple[LatencyConfig | None, ...]:
        """The source of latencies of each application."""
        if len(self.applications) == 1:
            return (self.latency,)
        return tuple(one.latency for one in self.applications)

    @property
    def named_latencies(self) -> tuple[tuple[str, LatencyConfig | None], ...]:
        """The same, each with the place of its table in the file."""
        if len(self.applications) == 1:
            return (("latency", self.latency),)
        return tuple((f"{place}.latency", one.latency) for place, one in self.named_applications)

    @property
    def targets_ms(self) -> tuple[float, ...]:
        """The latency target of each application."""
        return tuple(one.slo_ms or self.control.slo_ms for one in self.applications)

    @property
    def protected_pods(self) -> tuple[PodConfig | None, ...]:
        """The pod of each protected application; ``None`` for one that is not a pod."""
        return tuple(one.pod for one in self.applications)

    @property
    def exempt_pids(self) -> frozenset[int]:
        """Further processes that are left alone."""
        return frozenset(pid for one in self.applications for pid in one.pids)

    @property
    def protected_groups(self) -> tuple[str, ...]:
        """The groups of the applications, and further ones that are left alone."""
        named = (name for one in self.applications for name in (one.group, *one.groups))
        return tuple(name for name in named if name is not None)

    @property
    def read_work(self) -> tuple[SlotWork, ...]:
        """The sources of work that are read: those of slots without processor time as theirs."""
        return tuple(
            SlotWork(slot=i, work=slot.work)
            for i, slot in enumerate(self.background)
            if not isinstance(slot.work, CpuWork)
        )

    @property
    def follows_pods(self) -> bool:
        """Whether any target is a pod."""
        pods = (*self.protected_pods, *(slot.pod for slot in self.background))
        return any(pod is not None for pod in pods)

    @property
    def shared_slots(self) -> dict[int, str]:
        """The names of the slots that several pods may share, by their indices."""
        slots = enumerate(self.background)
        return {i: slot.name for i, slot in slots if slot.pod is not None and slot.pod.shared}

    @property
    def latencies_of_pods(self) -> tuple[bool, ...]:
        """Whether the pod of each application is asked for latencies, wherever it is."""
        return tuple(
            isinstance(one, PrometheusLatency) and one.port is not None for one in self.latencies
        )


def check_config(config: DaemonConfig) -> None:
    """Check the ranges of values and how they fit together; types were checked before.

    Raises:
        ConfigError: If something is wrong; it names the first mistake.
    """
    _check_groups(config)
    _check_numbers(config)
    _check_names(config)
    _check_paths(config)


def _inside(inner: str, outer: str) -> bool:
    """Whether the group ``inner`` is ``outer`` or below it."""
    return outer in {"", inner} or inner.startswith(f"{outer}/")


def _group(place: str, name: str) -> str:
    try:
        return parse_name(name)
    except GroupError as error:
        raise ConfigError(f"config.{place}: {error.cause}", next_step=error.next_step) from error


def _check_groups(config: DaemonConfig) -> None:
    zone = _group("node.zone", config.node.zone)
    protected: dict[str, str] = {}
    for place, one in config.named_applications:
        check_target(place, one)
        _check_one_pod(place, one)
        of_it = [] if one.group is None else [(f"{place}.group", one.group)]
        of_it += [(f"{place}.groups[{i}]", name) for i, name in enumerate(one.groups)]
        protected |= {where: _group(where, name) for where, name in of_it}
    _check_several(config)
    if "" in protected.values():
        raise ConfigError("config.protected: the whole machine cannot be the protected group.")
    earlier: dict[str, str] = {}
    for i, slot in enumerate(config.background):
        check_target(f"background[{i}]", slot)
        if slot.group is None:
            continue  # what a tree or a pod has is known only on the node
        place = f"background[{i}].group"
        try:
            if "kubepods" in slot.group:
                load_part(Part.KUBELET_GROUP)(slot.group)
        except KubeletGroupError as error:
            raise ConfigError(
                f"config.{place}: {error.cause}", next_step=error.next_step
            ) from error
        group = _group(place, slot.group)
        if not group or not _inside(group, zone) or group == zone:
            raise ConfigError(
                f"config.{place} is {slot.group!r}, not below the zone {config.node.zone!r}."
            )
        for other_place, other in {**protected, **earlier}.items():
            if _inside(group, other) or _inside(other, group):
                raise ConfigError(
                    f"config.{place} ({slot.group!r}) and config.{other_place} overlap.",
                    next_step="Put the background into groups of its own.",
                )
        earlier[place] = group
    names = [slot.name for slot in config.background]
    for i, name in enumerate(names):
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or name in names[:i]:
            raise ConfigError(
                f"config.background[{i}].name is {name!r}.",
                next_step="Use letters, digits, '.', '_' and '-', each name once.",
            )
    _check_called(config)


def _check_called(config: DaemonConfig) -> None:
    """Check that no two targets have one name: levers, sensors and places are called by it.

    A group is called by its path, a process tree or a pod by the name of its table.

    Raises:
        ConfigError: If two have.
    """
    named: list[tuple[str, ProtectedConfig | SlotConfig]] = [*config.named_applications]
    named += [(f"background[{i}]", slot) for i, slot in enumerate(config.background)]
    called: dict[str, str] = {}
    for place, one in named:
        key = "name" if one.group is None else "group"
        name = one.name if one.group is None else parse_name(one.group)
        if name in called:
            raise ConfigError(
                f"config.{called[name]} and config.{place}.{key} are both {name!r}, by which levers "
                "are called.",
                next_step="Give one of them another name.",
            )
        called[name] = f"{place}.{key}"


def _check_several(config: DaemonConfig) -> None:
    """Check what several applications must have, and one must not.

    Raises:
        ConfigError: If something is missing, is in the wrong place, or there are too many.
    """
    applications = config.named_applications
    if not 1 <= len(applications) <= MOST_APPLICATIONS:
        raise ConfigError(
            f"config.protected names {len(applications)} applications.",
            next_step=f"Name 1 to {MOST_APPLICATIONS}.",
        )
    if len(applications) == 1:
        place, one = applications[0]
        for key, given, instead in (
            ("slo_ms", one.slo_ms, "control.slo_ms"),
            ("latency", one.latency, "[latency]"),
        ):
            if given is not None:
                raise ConfigError(
                    f"config.{place}.{key} is for several applications, and there is one.",
                    next_step=f"Write {instead}.",
                )
        return
    if config.latency is not None:
        raise ConfigError(
            "config.latency is of one application, and there are several.",
            next_step="Write [protected.latency] below each [[protected]].",
        )
    groups: dict[str, str] = {}
    names: set[str] = set()
    for place, one in applications:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", one.name) or one.name in names:
            raise ConfigError(
                f"config.{place}.name is {one.name!r}.",
                next_step="Give each application a name of its own, of letters, digits, '.', '_' "
                "and '-'.",
            )
        names.add(one.name)
        if one.slo_ms is not None and not 1e-3 <= one.slo_ms <= 1e6:
            raise ConfigError(f"config.{place}.slo_ms is {one.slo_ms:g}, outside 0.001..1e+06.")
        if one.group is None:
            continue
        group = _group(f"{place}.group", one.group)
        for other, earlier in groups.items():
            if _inside(group, earlier) or _inside(earlier, group):
                raise ConfigError(
                    f"config.{place}.group ({one.group!r}) and config.{other}.group overlap.",
                    next_step="Put each application into a group of its own.",
                )
        groups[place] = group
    _check_addresses(config)


def _check_addresses(config: DaemonConfig) -> None:
    """Check that no two applications send their latencies to the same place."""
    places: dict[str, str] = {}
    for place, source in config.named_latencies:
        if isinstance(source, StatsdLatency):
            where = source.listen
        elif isinstance(source, LinesLatency):
            where = str(source.path)
        else:
            continue
        if where in places:
            raise ConfigError(
                f"config.{place} and config.{places[where]} are both {where!r}.",
                next_step="Give each application a source of its own.",
            )
        places[where] = place


def _check_one_pod(place: str, protected: ProtectedConfig) -> None:
    pod = protected.pod
    if pod is None or (pod.slots == 1 and not pod.shared):
        return
    wrong = f"group_by is {pod.group_by!r}" if pod.shared else "slots is not 1"
    raise ConfigError(
        f"config.{place}.pod.{wrong}.",
        next_step="Remove it: one pod is the protected application; others that match are left "
        "alone.",
    )


def _check_numbers(config: DaemonConfig) -> None:
    guard, control, restart = config.guard, config.control, config.restart
    bounds: list[tuple[str, float, float, float]] = [
        ("guard.max_pause_s", guard.max_pause_s, 0.1, 3600),
        ("guard.max_pause_share", guard.max_pause_share, 0, 1),
        ("guard.min_run_s", guard.min_run_s, 0, 60),
        ("guard.late_allowance_s", guard.late_allowance_s, 0, 10),
        ("guard.hard_limit_margin_bytes", guard.hard_limit_margin_bytes, 0, 2**62),
        ("guard.kill_wait_s", guard.kill_wait_s, 0, 7 * 86400),
        (
            "guard.max_hold_without_pressure_share",
            guard.max_hold_without_pressure_share,
            0,
            1,
        ),
        ("guard.pressure_lasts_s", guard.pressure_lasts_s, 0, 86400),
        ("guard.min_cpu_cores", guard.min_cpu_cores, 0.001, 1024),
        ("guard.min_io_bytes_per_s", guard.min_io_bytes_per_s, 1, 2**62),
        ("guard.max_thread_wait_s", guard.max_thread_wait_s, 0.1, 60),
        ("guard.stale_s", guard.stale_s, 0.01, 60),
        ("guard.return_after_ticks", guard.return_after_ticks, 0, 100_000),
        ("node.keep_available_bytes", config.node.keep_available_bytes, 0, 2**62),
        ("policy.canary_s", config.policy.canary_s, 0, 7 * 86400),
        ("policy.canary_margin", config.policy.canary_margin, 0, 1),
        ("control.slo_ms", control.slo_ms, 1e-3, 1e6),
        ("control.tick_period_s", control.tick_period_s, 0.02, 10),
        ("control.calm_tick_period_s", control.calm_tick_period_s, 0.02, 10),
        ("control.calm_after_s", control.calm_after_s, 0, 3600),
        ("control.watch_period_s", control.watch_period_s, 0.002, 1),
        ("control.calm_watch_period_s", control.calm_watch_period_s, 0.002, 1),
        ("control.foreign_wait_s", control.foreign_wait_s, 1, 86400),
        ("control.seed", control.seed, 0, 2**32 - 1),
        ("notify.interval_s", config.notify.interval_s, 0, 86400),
        ("restart.delay_s", restart.delay_s, 0, 60),
        ("restart.max_delay_s", restart.max_delay_s, restart.delay_s, 3600),
        ("restart.max_per_minute", restart.max_per_minute, 0, 10_000),
    ]
    bounds += [
        (f"background[{i}].floor_bytes", slot.floor_bytes, 4096, 2**62)
        for i, slot in enumerate(config.background)
    ]
    bounds += [
        (f"background[{i}].max_pause_s", slot.max_pause_s, 0, 3600)
        for i, slot in enumerate(config.background)
        if slot.max_pause_s is not None
    ]
    for place, one in config.named_applications:
        bounds.append((f"{place}.demand_bytes", one.demand_bytes, 0, 2**62))
        bounds += [(f"{place}.pids[{i}]", pid, 1, 2**31 - 1) for i, pid in enumerate(one.pids)]
    if config.record is not None:
        bounds += [("record.max_bytes", config.record.max_bytes, 16 << 20, 2**62)]
    for name, value, low, high in bounds:
        if not low <= value <= high:
            raise ConfigError(f"config.{name} is {value:g}, outside {low:g}..{high:g}.")


def _check_names(config: DaemonConfig) -> None:
    if config.node.page_cache not in _PAGE_CACHE_MODES:
        raise ConfigError(
            f"config.node.page_cache is {config.node.page_cache!r}.",
            next_step=f"Use one of {', '.join(_PAGE_CACHE_MODES)}.",
        )
    asked = zip(config.named_latencies, config.latencies_of_pods, config.applications, strict=True)
    for (place, _), of_pod, one in asked:
        if of_pod and one.pod is None:
            raise ConfigError(
                f"config.{place}.port is of a pod, and the protected application is none.",
                next_step="Write url, or name the application by its pod.",
            )


def _check_paths(config: DaemonConfig) -> None:
    paths: list[tuple[str, Path | None]] = [
        ("node.proc", config.node.proc),
        ("node.cgroup", config.node.cgroup),
        ("node.sys", config.node.sys),
        ("service.socket", config.service.socket),
        ("service.report_socket", config.service.report_socket),
        ("journal.path", config.journal.path),
        ("record.dir", config.record.dir if config.record else None),
        ("policy.dir", config.policy.dir),
        ("policy.store", config.policy.store),
        ("experiments.dir", config.experiments.dir),
    ]
    paths += [(f"{place}.profile", one.profile) for place, one in config.named_applications]
    paths += [
        (f"{place}.path", latency.path)
        for place, latency in config.named_latencies
        if isinstance(latency, LinesLatency)
    ]
    paths += [
        (f"background[{i}].profile", slot.profile) for i, slot in enumerate(config.background)
    ]
    if config.notify.command:
        paths.append(("notify.command[0]", Path(config.notify.command[0])))
    if config.remote is not None:
        paths += [
            ("remote.certificate", config.remote.certificate),
            ("remote.key", config.remote.key),
            ("remote.client_ca", config.remote.client_ca),
        ]
    for name, path in paths:
        if path is not None and not path.is_absolute():
            raise ConfigError(
                f"config.{name} is {str(path)!r}, a relative path.",
                next_step="Write the whole path, from /.",
            )
    grpc_target(config.service.socket, "config.service.socket")
    check_report_socket(config.service)
    check_socket_paths(config)
    if config.remote is not None:
        check_remote(config.remote)
    metrics = config.service.metrics_address
    if metrics is not None and not (metrics.is_local or config.service.metrics_public):
        raise ConfigError(
            f"config.service.metrics is {config.service.metrics!r}, which other machines reach.",
            next_step="Serve on 127.0.0.1 or a Unix socket, or write metrics_public = true.",
        )
