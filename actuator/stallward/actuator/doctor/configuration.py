"""The examination of what a configuration names, by the daemon's own code. It changes nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.doctor.finding import Finding, finding
from stallward.actuator.doctor.kubelet import try_kubelet
from stallward.actuator.doctor.latency import try_latency
from stallward.actuator.doctor.node_facts import groups_below
from stallward.actuator.doctor.pods import try_pods
from stallward.actuator.doctor.remote import try_remote
from stallward.actuator.doctor.watchdogs import watchdogs
from stallward.actuator.doctor.work import try_work
from stallward.actuator.errors import JournalError
from stallward.actuator.kernel.refusals import Place, next_step, why_not_writable
from stallward.actuator.node.node import Node
from stallward.actuator.sensors.missing import Why
from stallward.agent.errors import StallwardError
from stallward.agent.sample import Sample

_NAMED: Final = 2
"""How many absent signals with the same reason are named one by one; more are summed up."""


def _refuse(_entries: object) -> NoReturn:
    raise JournalError("Nothing is changed by an examination.")


def examine_config(config: DaemonConfig) -> tuple[list[Finding], list[str]]:
    """Examine what a configuration names.

    Returns:
        The findings, and the obstacles to protecting the application.
    """
    findings, obstacles = [], []
    for folder in (config.journal.path.parent, config.service.socket.parent):
        fault, step = _unwritable(folder)
        if fault:
            obstacles.append(fault)
        findings.append(finding("configuration", str(folder), fault, step))
    if config.journal.path.exists():
        findings.append(
            Finding(
                area="safety",
                name="journal",
                state="degraded",
                why=f"{config.journal.path} is there: a daemon runs, or left settings behind",
                next_step="If none runs: start one, it restores first.",
            )
        )
    findings += try_remote(config.remote)
    pods = try_pods(config)
    findings += [*pods.findings, *try_kubelet(config)]
    obstacles += [pods.obstacle] if pods.obstacle else []
    try:
        node = Node(config, _refuse)
    except StallwardError as error:
        obstacles.append(str(error))
        findings.append(
            Finding(
                area="configuration",
                name="groups",
                state="missing",
                why=error.cause,
                next_step=error.next_step,
            )
        )
        return findings, obstacles
    address = pods.protected_address if config.latency_of_pod else ""
    latency = try_latency(config.latency, address)
    try:
        sample = node.read(0, 0.0)
        findings += [
            Finding(area="configuration", name="processes", state="degraded", why=fault)
            for fault in node.process_faults
        ]
        findings += _signals_of(node, () if latency is None else ("latency",))
        findings += () if latency is None else (latency,)
        findings += try_work(config.background)
        findings += [*groups_below(config), *watchdogs(config)]
        findings += [
            Finding(area="lever", name=name, state="missing" if why else "works", why=why)
            for name, why in node.levers.survey()
        ]
        if not node.levers.can_hold_back():
            obstacles.append("no background group can be paused or limited")
        if _blind(sample) and (latency is None or latency.state != "works"):
            obstacles.append("neither a stall nor a latency of the application can be seen")
    finally:
        node.close()
    return findings, obstacles


def _signals_of(node: Node, tried: tuple[str, ...]) -> Iterable[Finding]:
    """The findings of absent signals that were not ``tried``, grouped by their reason."""
    reasons: dict[tuple[Why, str], list[str]] = {}
    for absence in node.absences():
        if absence.broken and absence.signal not in tried:
            reasons.setdefault((absence.why, absence.detail), []).append(absence.signal)
    for (why, detail), names in reasons.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield Finding(
            area="signal",
            name=", ".join(names[:_NAMED]) + more,
            state="degraded" if why is Why.OFF else "missing",
            why=f"{why.value} ({detail})" if detail else why.value,
        )


def _blind(sample: Sample) -> bool:
    psi = (sample.protected.psi.memory_some_us, sample.node.psi.memory_some_us)
    return sample.latency is None and all(value is None for value in psi)


def _unwritable(folder: Path) -> tuple[str, str]:
    """Why no file can be made in ``folder``, and what to do; both empty if one can."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    number = why_not_writable(there) if there.is_dir() else errno.ENOTDIR
    if not number:
        return "", ""
    step = next_step(number, there, place=Place.OTHER) if number == errno.EROFS else ""
    return f"{folder} cannot be written", step or "Make the folder, or let the daemon write there."
