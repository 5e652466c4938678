"""Finds out what a node lacks of what controllers may need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import KernelFileError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.scheduling import read_online_cpus
from stallward.actuator.kernel.target import is_unbound
from stallward.actuator.levers.cgroup.cpu_and_io import short
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.levers.process.file_page_parts import why_no_file_pages
from stallward.actuator.node.needs import lacks_of
from stallward.actuator.sensors.missing import Absence, Why
from stallward.actuator.sensors.processes.run_delay import NOT_COUNTED, is_counted
from stallward.agent.controller import Need
from stallward.agent.sample import Sample

_MAY_COME: Final = frozenset({Why.GROUP_GONE, Why.NOT_YET})
"""Why a signal is absent that comes with its group, or with time."""


def find_lacks(
    config: DaemonConfig,
    budgets: Budgets,
    levers: LeverSet,
    sample: Sample,
    absences: Sequence[Absence],
) -> dict[Need, str]:
    """Return what a node lacks of what controllers may need, each with the reason.

    Args:
        config: The node's configuration.
        budgets: The guard's budgets.
        levers: Its levers.
        sample: The last sample.
        absences: The signals that are absent from it.
    """
    paths = config.node.paths
    protected, *slots = levers.targets
    others = {need: f"file_pages: {why}" for need, why in why_no_file_pages(paths.proc).items()}
    if not is_counted(paths.proc):
        others[Need.THREAD_TIMES] = NOT_COUNTED
    if why := _why_no_count(paths):
        others[Need.CPU_COUNT] = why
    return lacks_of(
        levers.survey(),
        slots=[short(slot) for slot in slots if not is_unbound(slot)],
        protected="" if is_unbound(protected) else short(protected),
        threads_allowed=budgets.allow_protected_threads,
        trees=[slot.name for slot in slots if not isinstance(slot, Cgroup)],
        sample=sample,
        absent=_lasting(absences),
        others=others,
    )


def _why_no_count(paths: Paths) -> str:
    """Why the number of CPUs is not known; empty if it is."""
    try:
        return "" if read_online_cpus(paths) else f"{paths.proc / 'stat'} names none"
    except KernelFileError as error:
        return str(error)


def _lasting(absences: Sequence[Absence]) -> dict[str, str]:
    """The signals that will not come by themselves, each with the reason.

    What the zone lacks the machine lacks, too, where the zone is the whole machine: then the
    reason of the machine is the better one.
    """
    found = {one.signal: str(one) for one in absences if not _may_come(one)}
    return {
        name: found.get(name.replace("zone.", "node.", 1), why)
        if name.startswith("zone.")
        else why
        for name, why in found.items()
    }


def _may_come(absence: Absence) -> bool:
    """Whether a signal may come; the source of the latencies may not have begun yet."""
    if absence.signal == "latency":
        return absence.why is not Why.OFF
    return absence.why in _MAY_COME
