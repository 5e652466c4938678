"""What a daemon says of itself when it starts: its version, its configuration and its sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import ProtectedConfig, SlotConfig
from stallward.actuator.kernel.paths import SOCKET
from stallward.actuator.latency.config import describe as describe_latency
from stallward.actuator.work.config import CpuWork
from stallward.actuator.work.config import describe as describe_work


def start_lines(config: DaemonConfig, path: Path, version: str) -> Iterator[str]:
    """Make the lines that are printed before the daemon starts.

    Args:
        config: Its configuration.
        path: The file that it was read from.
        version: The version of the daemon.
    """
    control = config.control
    yield f"version {version} starts with {path}"
    slots = ", ".join(f"{slot.name} ({_target(slot)})" for slot in config.background)
    protected = " and ".join(
        f"{_target(one)} (p95 within {slo_ms:g} ms)"
        for one, slo_ms in zip(config.applications, config.targets_ms, strict=True)
    )
    yield f"it protects {protected} from {slots or 'nothing'}"
    effect = ""
    if control.dry_run:
        effect = ", and nothing is changed (dry_run)"
    elif control.controller == "none":
        effect = ", which changes nothing"
    yield f"{control.controller} decides{effect}"
    several = len(config.applications) > 1
    for one, latency in zip(config.applications, config.latencies, strict=True):
        source = (
            describe_latency(latency) if latency else "no latencies: stalls alone show pressure"
        )
        yield f"{one.name}: {source}" if several else source
    for slot in config.background:
        if not isinstance(slot.work, CpuWork):
            yield f"work of {slot.name}: {slot.work.unit} from {describe_work(slot.work)}"
    places = {
        "records in": config.record and config.record.dir,
        "pushed policies in": config.policy.store,
        "metrics at": config.service.metrics,
        "other machines at": config.remote and config.remote.address,
        "journal of changes in": config.journal.path,
    }
    yield ", ".join(f"{what} {where}" for what, where in places.items() if where)
    socket = config.service.socket
    option = "" if socket == SOCKET else f" --socket {socket}"
    yield f"ask it with `stallward ctl status{option}`; Ctrl-C or SIGTERM ends it"


def _target(target: ProtectedConfig | SlotConfig) -> str:
    """The group, the processes or the pods that are meant."""
    if target.group is not None:
        return target.group
    if target.processes is not None:
        tree = target.processes
        if tree.command is not None:
            return f"processes that match {tree.command!r}"
        return f"processes of {tree.pidfile or ', '.join(map(str, tree.pids))}"
    pod = target.pod
    if pod is None:
        return "nothing"
    qos = (one.value for one in pod.qos)
    named = (pod.namespace, pod.selector, pod.role and f"role {pod.role}", *qos)
    return f"pods {' '.join(filter(None, named))}"
