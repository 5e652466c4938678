"""Which signals are absent, and why each is."""

from __future__ import annotations

import enum
import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stallward.actuator.errors import PartlyReadError
from stallward.actuator.kernel.files import OFF, reading_error
from stallward.actuator.kernel.memory.pressure import is_psi, why_no_psi
from stallward.actuator.sensors.files.flat import AnySignal
from stallward.actuator.sensors.group_reader import GroupReader
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.processes.tracked_process import NOT_COUNTED, is_counted
from stallward.actuator.sensors.readers import AnyReader
from stallward.actuator.sensors.sampler import Sampler
from stallward.actuator.sensors.signal_table import (
    EBPF,
    GROUP_SIGNALS,
    NODE_SIGNALS,
    Signal,
)
from stallward.agent.sample import GroupSample, NodeSample, PsiTotals, Sample

if TYPE_CHECKING:
    from stallward.actuator.sensors.pods_reader import PodsReader


class Why(enum.Enum):
    """Why a signal is absent."""

    NOT_THERE = "there is no such file"
    SWITCHED_OFF = "switched off in the kernel"
    NOT_IN_FILE = "the file does not have it"
    NOT_ALLOWED = "not allowed"
    UNREADABLE = "cannot be read"
    MALFORMED = "malformed"
    GROUP_GONE = "it is gone, or empty"
    OFF = "off in the configuration"
    NOT_YET = "not known yet"
    NOT_ON_THIS_NODE = "not on this kind of node"
    """No controller of this kind of node has the signal, so nothing is broken."""


_FINE: Final = frozenset({Why.NOT_ON_THIS_NODE, Why.NOT_YET})


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """One absent signal."""

    signal: str
    """The signal's name, e.g. ``protected.psi.io_some_us``."""
    why: Why
    detail: str = ""
    """The file, or the next step."""

    @property
    def broken(self) -> bool:
        """Whether something that can be put right is wrong or switched off."""
        return self.why not in _FINE

    def __str__(self) -> str:
        reason = f"{self.why.value} ({self.detail})" if self.detail else self.why.value
        return f"{self.signal}: {reason}"


_MAY_BE_UNLIMITED: Final = frozenset({"memory_limit_bytes"})
_GROUP: Final = {signal.name: signal for signal in GROUP_SIGNALS}
_NODE: Final = {signal.name: signal for signal in NODE_SIGNALS}
_SUMS: Final = frozenset({"run_delay_us", "io_read_bytes", "io_written_bytes", "pss_bytes"})
ASK_FOR_PROCESSES: Final = "set control.read_processes"
Known = Mapping[str, tuple[Why, str]]
"""Reasons from outside of the sampler, by the field's name."""


def absences(sampler: Sampler, sample: Sample, known: Known | None = None) -> tuple[Absence, ...]:
    """List every signal that is absent from ``sample``, with the reason.

    A limit is never listed: ``None`` means that the group has no limit.

    Args:
        sampler: The sampler that read the sample.
        sample: The sample that was read last.
        known: Reasons that the sampler does not know, e.g. why there is no eBPF.
    """
    known = known or {}
    absent = [
        Absence(signal=f"node.{name}", why=why, detail=detail)
        for name in _absent(sample.node)
        for why, detail in (known.get(name) or _why_node(sampler, _NODE[name]),)
    ]
    parts: list[tuple[str, AnyReader, GroupSample]] = [("zone", sampler.zone, sample.zone)]
    protected = sampler.groups[0]
    if protected.kind == "applications":
        each = zip(protected.readers, protected.each, strict=True)
        parts += [(f"protected[{i}]", reader, group) for i, (reader, group) in enumerate(each)]
    else:
        parts.append(("protected", protected, sample.protected))
    slots = zip(sampler.groups[1:], sample.slots, strict=True)
    parts += [(f"slots[{i}]", reader, group) for i, (reader, group) in enumerate(slots)]
    for prefix, reader, group in parts:
        if not group.bound:
            continue  # a pod that is not there lacks nothing
        for name in _absent(group):
            signal = _GROUP[name]
            if reader.kind == "tree":
                why, detail = _why_tree(group, signal)
            elif reader.kind != "applications":
                why, detail = known.get(name) or _why_group(sampler, reader, group, signal)
            absent.append(Absence(signal=f"{prefix}.{name}", why=why, detail=detail))
    absent += _absent_latencies(sampler, sample)
    if sample.processes is None:
        absent.append(Absence(signal="processes", why=Why.OFF, detail=ASK_FOR_PROCESSES))
    return tuple(absent)


def latency_signals(applications: Sequence[str]) -> tuple[str, ...]:
    """The names of the signals that are the latencies of applications."""
    if len(applications) == 1:
        return ("latency",)
    return tuple(f"latency of {name}" for name in applications)


def is_latency(signal: str) -> bool:
    """Whether an absent signal is the latencies of an application."""
    return signal.partition(" ")[0] == "latency"


def _absent_latencies(sampler: Sampler, sample: Sample) -> Iterator[Absence]:
    """List the latencies that are absent, of each application where there are several."""
    applications = sampler.applications
    signals = latency_signals([one.name for one in applications])
    several = [(one.group, one.latency) for one in sample.applications]
    each = several or [(sample.protected, sample.latency)]
    for one, signal, (group, latency) in zip(applications, signals, each, strict=True):
        if latency is None and (source := one.latency_source) is not None:
            # Of a pod that is not there nothing is heard, and nothing is wrong with the source.
            why = Why.UNREADABLE if group.bound else Why.NOT_YET
            yield Absence(signal=signal, why=why, detail=source.fault)
        elif latency is None:
            add = f"add a [{'protected.' if several else ''}latency] section"
            yield Absence(signal=signal, why=Why.OFF, detail=add)


def broken(absent: Iterable[Absence], faults: Sequence[str] = ()) -> tuple[str, ...]:
    """Describe the absent signals that could be present, with one line for each reason.

    Args:
        absent: The absent signals.
        faults: Errors of files that could not be parsed; each is listed once, too.
    """
    signals: dict[tuple[Why, str], list[str]] = {}
    for absence in absent:
        if absence.broken:
            signals.setdefault((absence.why, absence.detail), []).append(absence.signal)
    lines = (
        str(Absence(signal=", ".join(names), why=why, detail=detail))
        for (why, detail), names in signals.items()
    )
    listed = "".join(detail for _, detail in signals)
    return (*lines, *(fault for fault in faults if fault not in listed))


def _absent(part: NodeSample | GroupSample | PsiTotals, prefix: str = "") -> list[str]:
    names: list[str] = []
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, PsiTotals):
            names += _absent(value, "psi.")
        elif value is None and field.name not in _MAY_BE_UNLIMITED:
            names.append(prefix + field.name)
    return names


def _why_node(sampler: Sampler, signal: Signal) -> tuple[Why, str]:
    source = getattr(signal, sampler.kind)
    if not source:
        return Why.NOT_ON_THIS_NODE, signal.meaning
    if source == EBPF:
        return Why.OFF, EBPF
    for file in sampler.node.signals:
        if f"/proc/{file.path.relative_to(sampler.proc)}" == source:
            return _why_file(file, signal.name)
    return Why.NOT_THERE, source


def _why_group(
    sampler: Sampler, reader: GroupReader | PodsReader, group: GroupSample, signal: Signal
) -> tuple[Why, str]:
    source = getattr(signal, sampler.kind)
    if reader is sampler.zone and (sampler.zone.group.is_root or not signal.zone):
        return Why.NOT_ON_THIS_NODE, "not of the zone"
    if not source:
        return Why.NOT_ON_THIS_NODE, ""
    if source == EBPF:
        return Why.OFF, EBPF
    return _why_source(sampler, reader, group, signal, source)


def _why_tree(tree: GroupSample, signal: Signal) -> tuple[Why, str]:
    """Why a process tree lacks a signal; see also ``Sampler.absent``."""
    if not signal.none or signal.none == EBPF:
        return Why.NOT_ON_THIS_NODE, "a process tree has none of its own"
    if tree.memory_usage_bytes is None:
        return Why.GROUP_GONE, tree.name
    return Why.NOT_YET, signal.none


def _why_source(
    sampler: Sampler,
    reader: GroupReader | PodsReader,
    group: GroupSample,
    signal: Signal,
    source: str,
) -> tuple[Why, str]:
    """Why a signal that comes from ``source`` is absent."""
    if group.turn_read_s is None:
        return Why.GROUP_GONE, group.name or "/"
    if signal.name in _SUMS and source.startswith("/proc/PID"):
        if signal.name == "run_delay_us" and not is_counted(sampler.proc):
            return Why.SWITCHED_OFF, NOT_COUNTED
        return _why_sum(reader.processes, signal, asked=sampler.needs_processes)
    if signal.name == "working_set_bytes" and group.refault_file_pages is not None:
        return Why.NOT_YET, "nothing that it wants has been evicted"
    names = source.split(", ")
    files = (file for file in reader.signals if reader.label(file) in names)
    return next((_why_file(file, signal.name) for file in files), (Why.NOT_THERE, source))


def _why_sum(processes: GroupProcesses | None, signal: Signal, *, asked: bool) -> tuple[Why, str]:
    if processes is None:
        return Why.NOT_ON_THIS_NODE, ""
    if processes.fault is not None:
        return _why_fault(processes.fault.number), str(processes.fault)
    if signal.name == "pss_bytes" and not asked:
        return Why.OFF, ASK_FOR_PROCESSES
    for process in processes.tracked.values():
        if process.fault is not None:
            return _why_fault(process.fault.number), str(process.fault)
    if processes.unread or signal.name == "pss_bytes":
        total = len(processes.tracked)
        return Why.NOT_YET, f"{total - processes.unread} of {total} processes read so far"
    return Why.NOT_THERE, signal.hybrid


def _why_file(file: AnySignal, name: str) -> tuple[Why, str]:
    fault = file.fault
    if isinstance(fault, PartlyReadError) and not name.endswith(tuple(fault.lost)):
        return Why.NOT_IN_FILE, str(file.path)
    if fault is not None:
        return _why_fault(fault.number), str(fault)
    return (Why.NOT_IN_FILE, str(file.path)) if file.there else _why_not_there(file.path)


def _why_not_there(path: Path) -> tuple[Why, str]:
    no_psi = why_no_psi(path) if is_psi(path) else None
    if no_psi is not None and no_psi.off:
        return Why.SWITCHED_OFF, f"{no_psi.cause}. {no_psi.next_step}"
    return (Why.SWITCHED_OFF if reading_error(path) == OFF else Why.NOT_THERE), str(path)


def _why_fault(number: int) -> Why:
    if number in {errno.EACCES, errno.EPERM}:
        return Why.NOT_ALLOWED
    return Why.UNREADABLE if number else Why.MALFORMED
