"""The examination of what a configuration names, by the daemon's own code. It changes nothing."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import RemoteConfig, ServiceConfig, SlotConfig
from stallward.actuator.doctor.finding import Finding, examine_pods, finding
from stallward.actuator.doctor.latency import try_latency
from stallward.actuator.doctor.node_facts import groups_below, nothing_kept
from stallward.actuator.doctor.watchdogs import watchdogs
from stallward.actuator.errors import JournalError, WorkError
from stallward.actuator.kernel.refusals import Place, next_step, why_not_writable
from stallward.actuator.levers.base.plugin import LeverEntry, levers_of
from stallward.actuator.node.node import MakeController, Node, make_engine
from stallward.actuator.runtime.process_setup import group_id
from stallward.actuator.sensors.missing import Why, latency_signals
from stallward.actuator.work.collector import make_reader
from stallward.actuator.work.config import CommandWork, CpuWork, FileWork, ReadWork, describe
from stallward.actuator.work.counter import fault_of
from stallward.agent.believed_file import MOST_PEM_BYTES, read_believed
from stallward.agent.errors import ControllerError, StallwardError, UnbelievedFileError
from stallward.agent.sample import Sample, WorkFault

# ---------- The files of the port for other machines, which decide who may come in

_MAKE_IT: Final = "Correct [remote] in the configuration, or make the file."


def try_remote(remote: RemoteConfig | None) -> list[Finding]:
    """Whether the service would take the certificate, its key, and the authorities of clients."""
    if remote is None:
        return []
    findings = []
    for path in (remote.certificate, remote.key, remote.client_ca):
        fault, step = "", _MAKE_IT
        try:
            read_believed(path, MOST_PEM_BYTES)
        except UnbelievedFileError as error:
            fault, step = error.cause, error.next_step
        except OSError as error:
            fault = f"{path} cannot be read ({error.strerror})"
        findings.append(finding("configuration", str(path), fault, step))
    return findings


# ---------- A try, within seconds, of the sources of the background's work

_MOST_S: Final = 2.0
"""How long an endpoint or a command may take here."""


def try_work(slots: Iterable[SlotConfig]) -> Iterable[Finding]:
    """Read each source once.

    Yields:
        A finding for each slot. Processor time works, and the finding says that it is used.
    """
    for slot in slots:
        name = f"work of {slot.name}"
        if isinstance(slot.work, CpuWork):
            yield finding("signal", name, "", "", works="its processor time")
            continue
        fault, value = _read(slot.work)
        yield finding(
            "signal",
            name,
            f"{describe(slot.work)} {fault}" if fault else "",
            f"Correct [background.work] of {slot.name}, or start what writes it.",
            works=f"{value:g} {slot.work.unit} so far, from {slot.work.source}",
        )


def _read(work: ReadWork) -> tuple[str, float]:
    """Return what is wrong with a source, empty if nothing is, and its value."""
    bounded = work
    if not isinstance(work, FileWork):
        bounded = replace(work, timeout_s=min(work.timeout_s, _MOST_S))
    reader = make_reader(bounded)
    began_s = time.monotonic()
    try:
        values = reader.read()
    except WorkError as error:
        slow = error.fault is WorkFault.LATE and isinstance(work, CommandWork)
        return ("takes long: it was not waited for" if slow else error.cause), 0.0
    finally:
        reader.close()
    for value in values.values():
        fault = fault_of(value)
        if fault is not WorkFault.NONE:
            return f"shows {value:g}, which is {fault.value.replace('-', ' ')}", 0.0
    took_s = time.monotonic() - began_s
    if took_s > work.period_s:
        return f"takes {took_s:.1f} s, more than its period of {work.period_s:g} s", 0.0
    return "", sum(values.values())


_NAMED: Final = 2
"""How many absent signals with the same reason are named one by one; more are summed up."""


def _refuse(_entries: object) -> NoReturn:
    raise JournalError("Nothing is changed by an examination.")


def examine_config(
    config: DaemonConfig, make_controller: MakeController | None = None
) -> tuple[list[Finding], list[str]]:
    """Examine what a configuration names.

    Args:
        config: The configuration.
        make_controller: Makes the controller; ``None`` to leave that out.

    Returns:
        The findings, and the obstacles to protecting the application.
    """
    findings, obstacles = [], []
    folders = [config.journal.path.parent, config.service.socket.parent]
    folders += [config.record.dir] if config.record else []
    for folder in folders:
        fault, step = _unwritable(folder)
        if fault:
            obstacles.append(fault)
        findings.append(finding("configuration", str(folder), fault, step))
    if _is_there(config.journal.path):
        why = f"{config.journal.path} is there: a daemon runs, or left settings behind"
        findings.append(
            finding("safety", "journal", why, "If none runs: start one, it restores first.")
        )
    for key, group in _groups_of_sockets(config.service):
        try:
            group_id(group, key)
        except StallwardError as error:
            obstacles.append(error.cause)
            findings.append(_mistake(f"service.{key}", error))
    findings += try_remote(config.remote)
    pods = examine_pods(config)
    findings += pods.findings
    obstacles += [pods.obstacle] if pods.obstacle else []
    plugins, faults = _try_levers(config)
    obstacles += [one.why for one in faults]
    findings += faults
    try:
        node = Node(config, _refuse, plugins=plugins)
    except StallwardError as error:
        obstacles.append(str(error))
        findings.append(_mistake("what it names", error))
        return findings, obstacles
    addresses = pods.protected_addresses or ("",) * len(config.applications)
    tried = [
        try_latency(latency, address, slo_ms)
        for latency, address, slo_ms in zip(
            config.latencies, addresses, config.targets_ms, strict=True
        )
    ]
    latencies = tuple(one for one in tried if one is not None)
    try:
        sample = node.read(0, 0.0)
        if make_controller is not None:
            controller = _try_controller(config, node, make_controller)
            obstacles += [controller.why] if controller.state != "works" else []
            findings.append(controller)
        findings += [
            finding("configuration", "processes", fault, "") for fault in node.process_faults
        ]
        findings += _signals_of(node, tried)
        findings += latencies
        findings += try_work(config.background)
        findings += [*groups_below(config), *nothing_kept(config), *watchdogs(config)]
        findings += [
            Finding(area="lever", name=name, state="missing" if why else "works", why=why)
            for name, why in node.levers.survey()
        ]
        if not node.levers.can_hold_back():
            obstacles.append("no background group can be paused or limited")
        if _blind(sample) and not any(one.state == "works" for one in latencies):
            obstacles.append("neither a stall nor a latency of the application can be seen")
    finally:
        node.close()
    return findings, obstacles


def _try_levers(config: DaemonConfig) -> tuple[tuple[LeverEntry, ...], list[Finding]]:
    """The levers of other packages, and a finding where the daemon cannot load them."""
    try:
        return levers_of(config.control.controller, config.control.levers), []
    except ControllerError:  # the finding on the controller says it
        return (), []
    except StallwardError as error:
        return (), [_mistake("levers", error)]


def _try_controller(config: DaemonConfig, node: Node, make: MakeController) -> Finding:
    """The finding on the controller: the daemon makes it in the same way, or does not start."""
    name = config.control.controller
    try:
        make_engine(config, node, make(name), make, frozenset())
    except StallwardError as error:
        return _mistake("controller", error)
    return finding("configuration", "controller", "", "", works=name)


def _mistake(name: str, error: StallwardError) -> Finding:
    """The finding on what keeps the daemon from starting."""
    return Finding(
        area="configuration",
        name=name,
        state="missing",
        why=error.cause,
        next_step=error.next_step,
    )


def _groups_of_sockets(service: ServiceConfig) -> list[tuple[str, str]]:
    """The groups that sockets are given to, by their keys."""
    keys = ("socket_group", "report_group")
    return [(key, group) for key in keys if (group := getattr(service, key))]


def _signals_of(node: Node, tried: Sequence[Finding | None]) -> Iterable[Finding]:
    """The findings of absent signals, grouped by their reason.

    Args:
        node: The node.
        tried: What trying the source of each latency has found, which says more.
    """
    signals = latency_signals([one.name for one in node.sampler.applications])
    found = {signal for signal, one in zip(signals, tried, strict=True) if one is not None}
    reasons: dict[tuple[Why, str], list[str]] = {}
    for absence in node.absences():
        if absence.broken and absence.signal not in found:
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


def _is_there(path: Path) -> bool:
    """Whether this user sees a file there; up to Python 3.13 ``exists`` raises what is denied."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def _unwritable(folder: Path) -> tuple[str, str]:
    """Why no file can be made in ``folder``, and what to do; both empty if one can."""
    there = next(path for path in (folder, *folder.parents) if _is_there(path))
    number = why_not_writable(there) if there.is_dir() else errno.ENOTDIR
    if not number:
        return "", ""
    step = next_step(number, there, place=Place.OTHER) if number == errno.EROFS else ""
    return f"{folder} cannot be written", step or "Make the folder, or let the daemon write there."
