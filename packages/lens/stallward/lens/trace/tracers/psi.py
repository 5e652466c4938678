"""Pressure stall information of the node, and of a cgroup: appendix E of the thesis, and more."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import reading_error
from stallward.actuator.sensors.files.flat import AnySignal, SignalFile
from stallward.actuator.sensors.files.psi import PsiReader
from stallward.lens.errors import LensError
from stallward.lens.trace.columns import (
    Column,
    ColumnType,
    Row,
    Table,
    ThesisColumn,
    Value,
)
from stallward.lens.trace.psi_averages import NO_AVERAGES, parse_psi_averages

_RESOURCES: Final = ("memory", "cpu", "io")
_LINES: Final = ("some", "full")
_WINDOWS: Final = {"avg10": "10 s", "avg60": "60 s", "avg300": "300 s"}
NODE: Final = "node"
GROUP: Final = "group"
_WHAT: Final = {
    "some": "at least one task waited for",
    "full": "all tasks that could have run waited for",
}
_FOR: Final = {"memory": "memory", "cpu": "a processor", "io": "a disk"}


def _columns(place: str) -> tuple[Column, ...]:
    source = "pressure/{0}" if place == NODE else "{0}.pressure"
    columns = []
    for resource in _RESOURCES:
        where = source.format(resource)
        waited = {line: f"{_WHAT[line]} {_FOR[resource]}" for line in _LINES}
        columns += [
            Column(
                name=f"{place}_psi_{resource}_{line}_{window}_percent",
                source=f"{where}, {line} {window}",
                meaning=f"share of the last {last} in which {waited[line]}",
                type=ColumnType.NUMBER,
                heading=f"{place} {resource} {line}, last {last}" if window == "avg10" else "",
            )
            for window, last in _WINDOWS.items()
            for line in _LINES
        ]
        columns += [
            Column(
                name=f"{place}_psi_{resource}_{line}_us",
                source=f"{where}, {line} total",
                meaning=f"time in which {waited[line]}",
                counter=True,
                heading=f"{place} {resource} {line}",
            )
            for line in _LINES
        ]
    return tuple(columns)


def _thesis() -> tuple[ThesisColumn, ...]:
    """The 20 values in the order of the script; it has no ``full`` of the CPU."""
    names = []
    for resource in _RESOURCES:
        lines = ("some",) if resource == "cpu" else _LINES
        names += [f"psi_{resource}_{line}_{w}_percent" for w in _WINDOWS for line in lines]
        names += [f"psi_{resource}_{line}_us" for line in lines]
    return tuple(
        _printed(f"output{number}", f"{NODE}_{name}") for number, name in enumerate(names, start=1)
    )


def _printed(name: str, column: str) -> ThesisColumn:
    """A value as the kernel prints it: averages have two decimals."""
    total = column.endswith("_us")

    def value(row: Row) -> Value:
        number = row[column]
        return number if total or number is None else f"{number:.2f}"

    return ThesisColumn(name=name, of=f"`{column}`", unit="us" if total else "%", value=value)


TABLE: Final = Table(
    kind="psi",
    what="pressure stall information, of the node and of a cgroup",
    appendix="E",
    columns=(*_columns(NODE), *_columns(GROUP)),
    thesis=_thesis(),
)


class _Pressure:
    """The pressure files of the node or of a group.

    Args:
        folder: Their directory.
        suffix: ``""`` for the node, ``".pressure"`` for a group.
        place: The prefix of the columns.
    """

    def __init__(self, folder: Path, suffix: str, place: str) -> None:
        self._place = place
        self._totals = PsiReader(folder, suffix, machine=place == NODE)
        absent = (NO_AVERAGES, NO_AVERAGES)
        self._averages = tuple(
            SignalFile(folder / f"{resource}{suffix}", parse_psi_averages, absent)
            for resource in _RESOURCES
        )

    @property
    def _files(self) -> tuple[AnySignal, ...]:
        return (*self._averages, *self._totals.signals)

    def read(self) -> dict[str, Value]:
        totals = self._totals.read()
        row: dict[str, Value] = {}
        for resource, file in zip(_RESOURCES, self._averages, strict=True):
            for line, averages in zip(_LINES, file.read(), strict=True):
                name = f"{self._place}_psi_{resource}_{line}"
                for window in _WINDOWS:
                    row[f"{name}_{window}_percent"] = getattr(averages, f"{window}_percent")
                row[f"{name}_us"] = getattr(totals, f"{resource}_{line}_us")
        return row

    @property
    def faults(self) -> tuple[str, ...]:
        faults = (file.fault for file in self._files)
        return tuple(dict.fromkeys(str(fault) for fault in faults if fault is not None))

    def close(self) -> None:
        for file in self._files:
            file.close()


class PsiTracer:
    """Traces stalls.

    Args:
        proc: The /proc directory.
        group: A group whose stalls are traced beside the node's.

    Raises:
        LensError: If this kernel has no pressure stall information, or the group has none.
    """

    table = TABLE

    def __init__(self, proc: Path, group: Cgroup | None = None) -> None:
        require_psi(proc)
        self._parts = [_Pressure(proc / "pressure", "", NODE)]
        if group is not None:
            folder = group.unified_dir
            if folder is None or reading_error(folder / "memory.pressure"):
                raise LensError(
                    f"The cgroup {group.name or '/'} has no pressure stall information.",
                    next_step="It needs a cgroup in the v2 hierarchy (cgroup2 in mounts). Without "
                    "--cgroup the node's is traced.",
                )
            self._parts.append(_Pressure(folder, ".pressure", GROUP))

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be read at the last tick, and why."""
        return tuple(fault for part in self._parts for fault in part.faults)

    def read(self) -> list[dict[str, Value]]:
        """Read the one row of a tick."""
        row: dict[str, Value] = {}
        for part in self._parts:
            row |= part.read()
        return [row]

    def close(self) -> None:
        """Close every file."""
        for part in self._parts:
            part.close()


def require_psi(proc: Path) -> None:
    """Check that the kernel has pressure stall information, and that it is on.

    Raises:
        LensError: If not.
    """
    path = proc / "pressure/memory"
    if reading_error(path):
        raise LensError(
            f"This kernel gives no pressure stall information ({path} cannot be read).",
            next_step="It needs CONFIG_PSI. Where that is there and off, boot with psi=1.",
        )
