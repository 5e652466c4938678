"""The examination of a machine: whether the daemon could protect an application on it.

``stallward doctor`` prints the result. With a configuration, the groups, levers and sources that
it names are examined, too, by the daemon's own code. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.doctor.configuration import examine_config
from stallward.actuator.doctor.finding import Finding, finding
from stallward.actuator.doctor.node_facts import node_facts, text_of
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.memory.compressed_swap import zswap_dir
from stallward.actuator.kernel.memory.pressure import why_no_psi
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.privileges import (
    CAPABILITIES,
    OTHER_DAEMONS,
    effective_capabilities,
    lockable_bytes,
    other_daemons,
)
from stallward.actuator.kernel.process_table import why_no_pidfd
from stallward.actuator.kernel.refusals import Place, more_rights, unwritable
from stallward.actuator.node.node import MakeController
from stallward.actuator.node.stall_watch import StallWatch

# ---------- Finding out whether the kernel reclaims idle pages although there is no pressure
# DAMON does so where it is configured to: by the module ``damon_reclaim``
# (Documentation/admin-guide/mm/damon/reclaim.rst) or by a scheme with the action ``pageout``
# (Documentation/admin-guide/mm/damon/usage.rst). An application whose files are seldom read then
# waits for the disk although memory is free, and none of our levers changes that.

_ADMIN: Final = "kernel/mm/damon/admin/kdamonds"
_MODULE: Final = "module/damon_reclaim/parameters"


def idle_pages_taken_after_s(paths: Paths) -> float | None:
    """Return the seconds without use after which the kernel reclaims a page proactively.

    Returns:
        The least time of all schemes that run; ``None`` if none runs, or none can be read.
    """
    ages_s = [_module_age_s(paths.sys / _MODULE)]
    for daemon in sorted((paths.sys / _ADMIN).glob("[0-9]*")):
        if text_of(daemon / "state") == "on":
            schemes = sorted(daemon.glob("contexts/*/schemes/[0-9]*"))
            ages_s += [_scheme_age_s(scheme) for scheme in schemes]
    return min((age_s for age_s in ages_s if age_s is not None), default=None)


def _module_age_s(folder: Path) -> float | None:
    if text_of(folder / "enabled") != "Y":
        return None
    return 1e-6 * _number(folder / "min_age")


def _scheme_age_s(scheme: Path) -> float | None:
    if text_of(scheme / "action") != "pageout":
        return None
    periods = _number(scheme / "access_pattern" / "age" / "min")
    attributes = scheme.parents[1] / "monitoring_attrs" / "intervals"
    return 1e-6 * periods * _number(attributes / "aggr_us")


def _number(path: Path) -> float:
    try:
        return float(text_of(path))
    except ValueError:
        return 0.0


_LOOKED_AT: Final = "the loop looks at the file itself, 26 to 50 times a second"
_HOLD_BACK: Final = "hold back"
_ESSENTIAL: Final = frozenset({_HOLD_BACK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings, and whether an application can be protected."""

    kind: str
    """``v2``, ``hybrid`` or ``none``."""
    why: str
    findings: tuple[Finding, ...]
    obstacles: tuple[str, ...]
    """Why the application cannot be protected; empty if it can."""

    @property
    def protectable(self) -> bool:
        """Whether the daemon could protect the application here."""
        return not self.obstacles


def examine(
    paths: Paths,
    config: DaemonConfig | None = None,
    make_controller: MakeController | None = None,
) -> Diagnosis:
    """Examine everything once.

    Args:
        paths: The kernel's files.
        config: The daemon's configuration; without one only the machine is examined.
        make_controller: Makes the controller that it names; ``None`` to leave that out.
    """
    if not paths.proc.is_dir():
        return _without_proc(paths.proc)
    hierarchy = detect(paths)
    findings = [
        *_pressure(paths),
        *_levers_of(paths, hierarchy),
        *_promptness(paths),
        *_neighbours(paths),
        *node_facts(paths),
    ]
    obstacles = [
        f"{f.name}: {f.why}" for f in findings if f.state == "missing" and f.name in _ESSENTIAL
    ]
    if config is not None:
        configured, hindered = examine_config(config, make_controller)
        findings += configured
        obstacles += hindered
    return Diagnosis(
        kind=hierarchy.kind,
        why=hierarchy.why,
        findings=tuple(findings),
        obstacles=tuple(dict.fromkeys(obstacles)),
    )


def _without_proc(proc: Path) -> Diagnosis:
    """The diagnosis of a node without the kernel's files of processes: nothing works."""
    why = f"there is no {proc}"
    step = "Mount it there, or name another folder by `proc` under [node]."
    found = Finding(area="node", name="proc", state="missing", why=why, next_step=step)
    return Diagnosis(kind="none", why=why, findings=(found,), obstacles=(why,))


def _pressure(paths: Paths) -> Iterable[Finding]:
    """The findings on signals of the whole machine that the daemon needs."""
    file = paths.proc / "pressure" / "memory"
    no_psi = why_no_psi(file)
    if no_psi is not None:
        yield Finding(
            area="signal",
            name="PSI",
            state="missing",
            why=f"{no_psi.cause}; stalls cannot be seen, only latencies",
            next_step=no_psi.next_step,
        )
    else:
        yield finding("signal", "PSI", "", "", works=str(file))
        watch = StallWatch(file)
        watch.close()
        why = watch.trigger_missing and f"{watch.trigger_missing}; {_LOOKED_AT}"
        yield finding("signal", "PSI trigger", why, "")
    yield _swap(paths)


def _swap(paths: Paths) -> Finding:
    """The finding on swap: whether there is some, and whether it takes memory itself."""
    lines = (read_text(paths.proc / "swaps") or "").splitlines()[1:]
    devices = [line.split()[0] for line in lines if line.split()]
    zram = [device for device in devices if device.startswith("/dev/zram")]
    zswap = zswap_dir(paths)
    where = [f"{', '.join(zram)} compresses it into memory"] if zram else []
    if devices and (read_text(zswap / "enabled") or "").strip() == "Y":
        percent = (read_text(zswap / "max_pool_percent") or "?").strip()
        where.append(f"zswap compresses it into at most {percent} % of the memory first")
    counted = "; `partition` counts what that takes" if where else ""
    return finding(
        "node",
        "swap",
        "" if devices else "none: a limit below a group's anonymous memory makes the kernel kill",
        "Add a swap file or zram.",
        works="; ".join(where) + counted,
    )


def _levers_of(paths: Paths, hierarchy: Hierarchy) -> Iterable[Finding]:
    """The findings on levers: whether background work can be held back at all."""
    ways = {"pause": hierarchy.unified_root, "limit": hierarchy.memory_root}
    refused = {
        name: ("no such hierarchy", "Use a node with cgroup v2.")
        if root is None
        else unwritable(root, place=Place.CGROUP)
        for name, root in ways.items()
    }
    for name, root in ways.items():
        yield finding("lever", name, *refused[name], works=str(root))
    no_pidfd = why_no_pidfd()
    may_signal = "CAP_KILL" in _held(paths) and not no_pidfd
    yield finding(
        "lever",
        "stop processes",
        no_pidfd
        or ("" if may_signal else "no CAP_KILL: only processes of this user can be stopped"),
        "Use Linux 5.3 or newer, a Python built for it, and a container that allows it."
        if no_pidfd
        else more_rights("CAP_KILL"),
        works="SIGSTOP by pidfd",
    )
    if all(why for why, _ in refused.values()) and not may_signal:
        yield Finding(
            area="lever",
            name=_HOLD_BACK,
            state="missing",
            why="neither cgroups nor signals can hold background work back",
            next_step=more_rights("CAP_KILL")
            if hierarchy.memory_root is None
            else refused["limit"][1],
        )
    knob = paths.proc / "sys" / "vm" / "swappiness"
    why, step = unwritable(knob, place=Place.SETTING)
    yield finding("lever", "tune vm.*", why, step, works=str(knob.parent))


def _promptness(paths: Paths) -> Iterable[Finding]:
    """The findings on whether the daemon can act while the machine thrashes."""
    held = _held(paths)
    locks = "CAP_IPC_LOCK" in held or lockable_bytes() < 0
    yield finding(
        "safety",
        "stay in memory",
        "" if locks else f"only {lockable_bytes()} bytes may be locked",
        "Give it CAP_IPC_LOCK, or LimitMEMLOCK=infinity.",
    )
    lacking = [c for c in CAPABILITIES if c.name not in held]
    for capability in lacking:
        why = f"not held; needed for {capability.use}"
        yield finding("safety", capability.name, why, more_rights(capability.name))


def _held(paths: Paths) -> frozenset[str]:
    """The capabilities that this process is known to have."""
    return effective_capabilities(paths.proc) or frozenset()


def _neighbours(paths: Paths) -> Iterable[Finding]:
    """The findings on other programs, and kernel features, that act on memory."""
    idle_s = idle_pages_taken_after_s(paths)
    if idle_s is not None:
        yield finding(
            "node",
            "DAMON",
            f"reclaims pages that were idle for {idle_s:g} s although memory is free: what "
            "the application seldom reads then comes from the disk, whatever is decided",
            "Switch DAMON's reclaim scheme off, or exclude the application by a filter.",
        )
    for pid, name in other_daemons(paths):
        yield finding(
            "node",
            name,
            f"runs as process {pid} and {OTHER_DAEMONS[name]}, also what is paused",
            "Stop it, or exempt the groups that stallward looks after.",
        )
