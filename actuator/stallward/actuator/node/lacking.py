"""Finds out what a node lacks of what controllers may need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import KernelFileError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.scheduling import read_online_cpus
from stallward.actuator.kernel.target import is_unbound
from stallward.actuator.levers.base.plugin import lacks_of_levers
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.sensors.missing import Absence, Why, is_latency
from stallward.actuator.sensors.processes.tracked_process import NOT_COUNTED, is_counted
from stallward.agent.controller import THREAD_NEEDS, Need
from stallward.agent.sample import GroupSample, Sample

# ---------- What a node lacks of what controllers may need.

_LEVERS: Final[dict[Need, tuple[str, ...]]] = {
    Need.PAUSE: ("pause",),
    Need.LIMIT: ("limit",),
    Need.CPU_WEIGHT: ("cpu_weight", "nice"),
    Need.CPU_MAX: ("cpu_max",),
    Need.RECLAIM: ("reclaim",),
    Need.TERMINATE: ("terminate",),
}
"""The levers that will do for a need, by the part of their names before the colon."""
_VM: Final = "vm."
"""How the names of the levers on the node's settings begin."""
_NO_GROUP_SWAPPINESS: Final = "protected_swappiness"
"""The name of the lever that is missing where no group has a swappiness."""
_MEMORY: Final = ("psi.memory_some_us", "psi.memory_full_us")
_IO: Final = ("psi.io_some_us", "psi.io_full_us")
_SIGNALS: Final[dict[Need, tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]]] = {
    Need.MEMORY_STALL: (("zone",), tuple((name,) for name in _MEMORY)),
    Need.SLOT_STALL: (("slots",), tuple((name,) for name in _MEMORY)),
    Need.IO_STALL: (("zone",), ((_IO[0],),)),
    Need.SLOT_IO_STALL: (("slots",), tuple((name,) for name in _IO)),
    Need.AVAILABLE_MEMORY: (
        ("zone",),
        (("memory_usage_bytes",), ("file_bytes", "inactive_file_bytes")),
    ),
    Need.REFAULTS: (
        ("protected", "slots"),
        (("refault_file_pages", "refault_anon_pages", "major_faults"),),
    ),
    Need.SWAP_USE: (("protected", "slots"), (("swap_bytes",),)),
}
"""The parts of a sample that must have the signals of a need: any one of each tuple."""


def lacks_of(
    levers: Iterable[tuple[str, str]],
    *,
    slots: Sequence[str],
    applications: Sequence[str],
    threads_allowed: bool,
    trees: Sequence[str],
    sample: Sample,
    absent: Mapping[str, str],
    others: Mapping[Need, str],
) -> dict[Need, str]:
    """What a node lacks, each with the reason.

    Args:
        levers: The name of every lever, such as ``pause:hog0``, and why it is missing.
        slots: The name of each slot, as in the names of its levers.
        applications: The names of the protected applications that are there, likewise.
        threads_allowed: Whether the configuration allows other settings of its threads.
        trees: Those of the slots that are process trees.
        sample: The last sample.
        absent: The signals that it has not and that will not come by themselves, such as
            ``zone.psi.io_some_us``, each with the reason.
        others: What else is missing, each with the reason.
    """
    missing = dict(levers)
    lacks = dict(others)
    for need, names in _LEVERS.items():
        for slot in slots:
            reasons = [missing.get(f"{name}:{slot}", "no such lever") for name in names]
            if all(reasons):
                lacks.setdefault(need, reasons[0])
    for need in THREAD_NEEDS:
        whys = [missing.get(f"{need}:{name}", "no such lever") for name in applications]
        if any(whys) or not threads_allowed:
            why = next(filter(None, whys), "")
            lacks[need] = why or "guard.allow_protected_threads is not true"
    if trees:
        lacks[Need.LIMIT] = f"limit:{trees[0]}: process trees have no memory limit"
    lacks |= _settings(missing, applications)
    lacks |= _signals(sample, absent)
    return lacks


def _settings(missing: Mapping[str, str], applications: Sequence[str]) -> dict[Need, str]:
    """What is lacking of the levers on the node's settings and on groups' swappiness."""
    lacks = {}
    of_vm = [why for name, why in missing.items() if name.startswith(_VM)]
    if not of_vm or any(of_vm):
        lacks[Need.NODE_TUNING] = next(filter(None, of_vm), "no such lever")
    none = "the application has no cgroup of its own"
    whys = [missing.get(f"swappiness:{name}", none) for name in applications]
    why = missing.get(_NO_GROUP_SWAPPINESS, "") or next(filter(None, whys), "")
    if why:
        lacks[Need.GROUP_SWAPPINESS] = why
    return lacks


def _signals(sample: Sample, absent: Mapping[str, str]) -> dict[Need, str]:
    """What is lacking of the signals."""
    lacks: dict[Need, str] = {}
    for need, (parts, required) in _SIGNALS.items():
        prefixes = {name.partition(".")[0] for name in absent if name.startswith(parts)}
        for prefix in sorted(prefixes):
            for choices in required:
                names = [f"{prefix}.{choice}" for choice in choices]
                if all(name in absent for name in names):
                    lacks.setdefault(need, absent[names[-1]])
    # Of a group that is not there yet nothing is known, but where the zone has no stalls it will
    # have none either. The application's are taken from the zone where it has none of its own.
    for need, groups, name in (
        (Need.APPLICATION_STALL, (sample.protected,), _MEMORY[0]),
        (Need.SLOT_STALL, sample.slots, _MEMORY[0]),
        (Need.SLOT_IO_STALL, sample.slots, _IO[0]),
    ):
        why = absent.get(f"zone.{name}", "")
        if why and all(_stall(group, name) is None for group in groups):
            lacks.setdefault(need, why)
    swap_bytes = sample.node.swap_total_bytes
    if not swap_bytes:
        lacks[Need.SWAP] = "no swap is on" if swap_bytes == 0 else "its size is not known"
        lacks.pop(Need.SWAP_USE, None)
    latencies = [absent[name] for name in absent if is_latency(name)]
    # The latencies of some applications are enough: a controller follows the worst of them.
    if latencies and len(latencies) >= max(len(sample.applications), 1):
        lacks[Need.LATENCY] = latencies[0]
    return lacks


def _stall(group: GroupSample, name: str) -> int | None:
    value: int | None = getattr(group.psi, name.partition(".")[2])
    return value


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
    slots = levers.targets
    # What one application lacks, all lack: a controller sees them as one.
    applications = [one.short_name for one in levers.applications if not is_unbound(one)]
    others = lacks_of_levers(levers.plugins, paths.proc)
    if not is_counted(paths.proc):
        others[Need.THREAD_TIMES] = NOT_COUNTED
    if why := _why_no_count(paths):
        others[Need.CPU_COUNT] = why
    return lacks_of(
        levers.survey(),
        slots=[slot.short_name for slot in slots if not is_unbound(slot)],
        applications=applications,
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
    if is_latency(absence.signal):
        return absence.why is not Why.OFF
    return absence.why in _MAY_COME
