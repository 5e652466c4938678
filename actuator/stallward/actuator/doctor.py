"""What this machine can do for a protected application, and what it cannot; changes nothing.

``stallward doctor`` prints it. With a configuration the groups, levers and sources that it names
are looked at too, by the same code that the daemon runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn

from stallward.actuator.config import DaemonConfig
from stallward.actuator.detect import detect
from stallward.actuator.errors import JournalError
from stallward.actuator.groups import Hierarchy
from stallward.actuator.kernelfile import read_text
from stallward.actuator.node import Node
from stallward.actuator.paths import Paths
from stallward.actuator.privileges import (
    CAPABILITIES,
    OTHER_DAEMONS,
    effective_capabilities,
    lockable_bytes,
    other_daemons,
)
from stallward.actuator.sensors.missing import Why
from stallward.actuator.stall_watch import StallWatch
from stallward.agent.errors import StallwardError
from stallward.agent.sample import Sample

State = Literal["works", "degraded", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    area: str
    """``node``, ``signal``, ``lever``, ``safety`` or ``configuration``."""
    name: str
    state: State
    why: str = ""
    next_step: str = ""
    """What to do about it; empty where nothing needs doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings and what follows from them."""

    kind: str
    """``v2``, ``hybrid`` or ``none``."""
    why: str
    findings: tuple[Finding, ...]
    obstacles: tuple[str, ...]
    """Why the application could not be protected; empty if it could."""

    @property
    def protectable(self) -> bool:
        """Whether the daemon could protect the application here."""
        return not self.obstacles


def examine(paths: Paths, config: DaemonConfig | None = None) -> Diagnosis:
    """Look at everything once.

    Args:
        paths: The kernel's files.
        config: The daemon's configuration; without one the machine alone is looked at.
    """
    hierarchy = detect(paths)
    findings = [
        *_pressure(paths),
        *_levers_of(paths, hierarchy),
        *_promptness(paths),
        *_neighbours(paths),
    ]
    obstacles = [
        f"{f.name}: {f.why}" for f in findings if f.state == "missing" and f.name in _ESSENTIAL
    ]
    if config is not None:
        configured, hindered = _configured(config)
        findings += configured
        obstacles += hindered
    return Diagnosis(
        kind=hierarchy.kind,
        why=hierarchy.why,
        findings=tuple(findings),
        obstacles=tuple(dict.fromkeys(obstacles)),
    )


_LOOKED_AT: Final = "the loop looks at the file itself, 26 to 50 times a second"
_NAMED: Final = 2
"""Signals that are absent for one reason and named one by one."""
_HOLD_BACK: Final = "hold back"
_ESSENTIAL: Final = frozenset({_HOLD_BACK})


def _pressure(paths: Paths) -> Iterable[Finding]:
    """The signals of the whole machine that a daemon builds on."""
    file = paths.proc / "pressure" / "memory"
    if not file.exists():
        yield Finding(
            area="signal",
            name="PSI",
            state="missing",
            why=f"{file} is not there; stalls cannot be seen, only latencies",
            next_step="Boot a kernel with CONFIG_PSI=y and psi=1.",
        )
    else:
        yield Finding(area="signal", name="PSI", state="works", why=str(file))
        watch = StallWatch(file)
        watch.close()
        why = watch.trigger_missing and f"{watch.trigger_missing}; {_LOOKED_AT}"
        yield _finding("signal", "PSI trigger", why, "")
    swaps = (read_text(paths.proc / "swaps") or "").splitlines()[1:]
    yield _finding(
        "node",
        "swap",
        "" if swaps else "none: a limit below a group's anonymous memory makes the kernel kill",
        "Add a swap file or zram.",
    )


def _finding(area: str, name: str, fault: str, next_step: str, works: str = "") -> Finding:
    if fault:
        return Finding(area=area, name=name, state="degraded", why=fault, next_step=next_step)
    return Finding(area=area, name=name, state="works", why=works)


def _levers_of(paths: Paths, hierarchy: Hierarchy) -> Iterable[Finding]:
    """Whether background work can be held back at all."""
    ways = {
        "pause": hierarchy.unified_root,
        "limit": hierarchy.memory_root,
    }
    refused = {
        name: "no such hierarchy" if root is None else f"{root} is not writable"
        for name, root in ways.items()
        if root is None or not os.access(root, os.W_OK)
    }
    for name, root in ways.items():
        yield _finding(
            "lever",
            name,
            refused.get(name, ""),
            "Run as root, or give the daemon a delegated group.",
            works=str(root),
        )
    may_signal = "CAP_KILL" in effective_capabilities(paths)
    yield _finding(
        "lever",
        "stop processes",
        "" if may_signal else "no CAP_KILL: only processes of this user can be stopped",
        "Run as root.",
        works="SIGSTOP by pidfd",
    )
    if len(refused) == len(ways) and not may_signal:
        why = "neither cgroups nor signals can hold background work back"
        yield Finding(
            area="lever",
            name=_HOLD_BACK,
            state="missing",
            why=why,
            next_step="Run as root.",
        )
    knob = paths.proc / "sys" / "vm" / "swappiness"
    yield _finding(
        "lever",
        "tune vm.*",
        "" if os.access(knob, os.W_OK) else f"{knob} is not writable",
        "Run as root, outside a container with a read-only /proc/sys.",
        works=str(knob.parent),
    )


def _promptness(paths: Paths) -> Iterable[Finding]:
    """Whether the daemon can act while the machine thrashes."""
    held = effective_capabilities(paths)
    locks = "CAP_IPC_LOCK" in held or lockable_bytes() < 0
    yield _finding(
        "safety",
        "stay in memory",
        "" if locks else f"only {lockable_bytes()} bytes may be locked",
        "Give it CAP_IPC_LOCK, or LimitMEMLOCK=infinity.",
    )
    lacking = [c for c in CAPABILITIES if c.name not in held]
    for capability in lacking:
        yield Finding(
            area="safety",
            name=capability.name,
            state="degraded",
            why=f"not held; needed for {capability.use}",
            next_step="Run as root, or grant it in the systemd unit.",
        )


def _neighbours(paths: Paths) -> Iterable[Finding]:
    """Other programs that act on memory pressure."""
    for pid, name in other_daemons(paths):
        yield Finding(
            area="node",
            name=name,
            state="degraded",
            why=f"runs as process {pid} and {OTHER_DAEMONS[name]}, also what is paused",
            next_step="Stop it, or exempt the groups that stallward looks after.",
        )


def _refuse(_entries: object) -> NoReturn:
    raise JournalError("Nothing is changed by an examination.")


def _configured(config: DaemonConfig) -> tuple[list[Finding], list[str]]:
    """What a configuration names, looked at by the code that the daemon runs."""
    findings, obstacles = [], []
    for folder in (config.journal.path.parent, config.service.socket.parent):
        fault = _unwritable(folder)
        if fault:
            obstacles.append(fault)
        step = "Make the folder, or let the daemon write there."
        findings.append(_finding("configuration", str(folder), fault, step))
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
    try:
        sample = node.read(0, 0.0)
        findings += _signals_of(node)
        findings += [
            Finding(area="lever", name=name, state="missing" if why else "works", why=why)
            for name, why in node.levers.survey()
        ]
        if not node.levers.can_hold_back():
            obstacles.append("no background group can be paused or limited")
        if _blind(sample):
            obstacles.append("neither a stall nor a latency of the application can be seen")
    finally:
        node.close()
    return findings, obstacles


def _signals_of(node: Node) -> Iterable[Finding]:
    """The absent signals, those of one reason together."""
    reasons: dict[tuple[Why, str], list[str]] = {}
    for absence in node.absences():
        if absence.broken:
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


def _unwritable(folder: Path) -> str:
    """Why nothing can be made in ``folder``; empty if something can."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return ""
    return f"{folder} cannot be written"
