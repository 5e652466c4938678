"""The ``work`` table of a background slot; ``source`` selects its keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from stallward.actuator.latency.config import REMOTE_HINT, split_url
from stallward.actuator.parts import Part, load_part
from stallward.actuator.runtime.addresses import is_loopback
from stallward.agent.errors import SchemaError, StallwardError

CPU_UNIT: Final = "cpu-s"
"""The unit of processor time."""
_UNIT: Final = re.compile(r"[A-Za-z0-9_%/.-]{1,40}")
_SILENT_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuWork:
    """Processor time counts as work, although waiting for memory takes some as well."""

    source: Literal["cpu"] = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWork:
    """A file whose first number is a counter."""

    source: Literal["file"] = "file"
    path: Path
    name: str | None = None
    """The first word of the line to read; its colon or ``=`` is left out. ``None`` for the first
    number of the file."""
    unit: str = "units"
    period_s: float = 1.0
    """The time between two readings."""

    def __post_init__(self) -> None:
        if not self.path.is_absolute():
            raise SchemaError(
                f"path is {str(self.path)!r}, a relative path.",
                next_step="Write the whole path, from /.",
            )
        if self.name is not None and not (self.name and self.name == "".join(self.name.split())):
            raise SchemaError(f"name is {self.name!r}, not one word.")
        _check_unit(self.unit)
        _check_range("period_s", self.period_s, 0.1, 600.0)

    @property
    def silent_s(self) -> float:
        """A source of which nothing is heard for this long counts as silent."""
        return 2.0 * self.period_s + _SILENT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusWork:
    """A counter that the background exposes by HTTP; series that match are summed."""

    source: Literal["prometheus"] = "prometheus"
    url: str
    """E.g. ``http://127.0.0.1:9100/metrics``."""
    metric: str
    """Name and matchers, as in PromQL; the name as it stands on the page."""
    unit: str = "units"
    period_s: float = 1.0
    timeout_s: float = 1.0
    allow_remote: bool = False
    """Whether the host may be another machine (or container)."""

    def __post_init__(self) -> None:
        try:
            host, _, _ = split_url(self.url, "url")
            load_part(Part.ANY_SERIES)(self.metric, "metric")
        except StallwardError as error:
            raise SchemaError(error.cause, next_step=error.next_step) from error
        if not (self.allow_remote or is_loopback(host)):
            raise SchemaError(f"url is on {host!r}, not on this machine.", next_step=REMOTE_HINT)
        _check_unit(self.unit)
        _check_range("period_s", self.period_s, 0.1, 600.0)
        _check_range("timeout_s", self.timeout_s, 0.05, 10.0)

    @property
    def silent_s(self) -> float:
        """A source of which nothing is heard for this long counts as silent."""
        return 2.0 * self.period_s + self.timeout_s + _SILENT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWork:
    """A program whose last line of output begins with, or is, the counter."""

    source: Literal["command"] = "command"
    command: tuple[str, ...]
    """The program and its arguments. It runs with the daemon's rights, and without a shell."""
    unit: str = "units"
    period_s: float = 10.0
    timeout_s: float = 5.0
    """A command that takes longer is killed."""

    def __post_init__(self) -> None:
        if not self.command or not Path(self.command[0]).is_absolute():
            raise SchemaError(
                f"command is {list(self.command)!r}, without the whole path of a program.",
                next_step="Write the program with its path, from /, and then its arguments.",
            )
        if any("\0" in part for part in self.command):
            raise SchemaError("command has a NUL character.")
        _check_unit(self.unit)
        _check_range("period_s", self.period_s, 1.0, 600.0)
        _check_range("timeout_s", self.timeout_s, 0.1, 60.0)

    @property
    def silent_s(self) -> float:
        """A source of which nothing is heard for this long counts as silent."""
        return 2.0 * self.period_s + self.timeout_s + _SILENT_S


ReadWork = FileWork | PrometheusWork | CommandWork
"""A source that the collector reads."""
WorkConfig = CpuWork | ReadWork


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotWork:
    """The source of one slot's work."""

    slot: int
    work: ReadWork


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """What the process that reads the counters is told at its start."""

    fd: int
    """A socket to the loop, for what it reads."""
    life_fd: int
    """It ends when the other end of this descriptor is closed."""
    sources: tuple[SlotWork, ...]


def unit_of(work: WorkConfig) -> str:
    """The unit of a slot's work."""
    return CPU_UNIT if isinstance(work, CpuWork) else work.unit


def describe(work: WorkConfig) -> str:
    """The name of a source in messages."""
    match work:
        case CpuWork():
            return "processor time"
        case FileWork():
            return f"{work.path}" if work.name is None else f"{work.name} in {work.path}"
        case PrometheusWork():
            return f"{work.metric} of {work.url}"
        case CommandWork():
            return work.command[0]


def _check_unit(unit: str) -> None:
    if not _UNIT.fullmatch(unit) or unit == CPU_UNIT:
        raise SchemaError(
            f"unit is {unit!r}.",
            next_step="Name what is counted, e.g. images: letters, digits, '_', '-', '.', '%', "
            f"'/', at most 40; {CPU_UNIT} means processor time.",
        )


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise SchemaError(f"{name} is {value:g}, outside {low:g}..{high:g}.")
