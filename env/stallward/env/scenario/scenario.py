"""The types of a scenario: sandbox, protected application, load and background.

A scenario is a TOML file; docs/reference/scenarios.md describes every key.
``stallward.env.scenario.file`` parses it into the frozen values below. Commands keep their
placeholders until a block starts; then :func:`expand` fills them in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal

from stallward.actuator.latency.config import FAILED_STATUS, FAILED_WORDS, OK_WORDS
from stallward.env.errors import ScenarioError

MAX_BACKGROUND_SLOTS = 4
"""The most background groups: the action table has four slots."""
MAX_APPLICATIONS = 16
"""The most protected applications: as many as a daemon protects."""
Target = Literal["stated", "tight"]
"""Which latency target is taken: the one that the scenario's file states, as a user would set it, or
1.5 x the p99 measured with ample memory. Where the file states none, it is the second one."""
CALIBRATION_S = 30.0
"""How long the p99 with ample memory is measured for a target of ``"auto"``. Most applications
answer thousands of requests in that time."""

PLACEHOLDERS = {
    "data": "the folder its prepare commands filled, kept between blocks",
    "run": "an empty folder in memory for this block: sockets and lines files",
    "scratch": "an empty folder on disk for this block: temporary files",
    "python": "the interpreter that runs stallward",
    "workloads": "the folder with the compiled hogs and the load generator",
    "seed": "the seed of this block",
}
"""The placeholders of commands and paths, and what each stands for."""

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")

PYTHON_NEED: Final = "python:"
"""Comes before the name of a Python module in :attr:`Need.program`."""
PROGRAM_LOOP: Final = "stallward.env.workloads.program_loop"
"""The module that runs a program over and over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program to start, its niceness and its CPUs."""

    argv: tuple[str, ...]
    """The program and its arguments, with placeholders."""
    nice: int = 0
    """The niceness to add, 0 to 19."""
    cpus: str | None = None
    """The CPUs that it is bound to, as ``taskset -c`` takes them; ``None`` means all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLimit:
    """How slow the disks are for the programs of a sandbox; reads and writes count apart."""

    bytes_per_s: int | None = None
    """The bytes a second; ``None`` for no limit."""
    ops_per_s: int | None = None
    """The operations a second; ``None`` for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedSwap:
    """What keeps swapped pages compressed in memory."""

    kind: Literal["zswap", "zram"]
    """zswap stands before the swap file; a zram device takes its place."""
    compressor: str
    """The kernel's name of the algorithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """The memory of the sandbox, and its disk."""

    limit_bytes: int
    """The memory that the protected application and the background share."""
    ample_bytes: int
    """Memory enough for all of them, for the condition ``ample``."""
    swap_bytes: int
    """Size of the swap file that is made if the node has no swap; 0 for no swap at all."""
    compressed_swap: CompressedSwap | None = None
    """What compresses the swap; ``None`` for nothing."""
    disk: DiskLimit | None = None
    """How slow the disks are; ``None`` leaves them as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """The latency target."""

    quantile: float = 0.95
    """The quantile that the target is for, in (0, 1)."""
    latency_ms: float | None = None
    """The target; ``None`` means 1.5 x the p99 measured with ample memory ("tight")."""
    calibration_s: float = CALIBRATION_S
    """How long the p99 with ample memory is measured. It should cover 2,000 requests or more: then
    one slow request is at most a twentieth of those above the p99."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLines:
    """Where the protected application logs its requests, one per line, and how to read them.

    A field is named by its column (from 0, split at ``separator`` or white space) or, with
    ``pattern``, by a named group. Lines that do not match are skipped: they are not requests.
    """

    path: str
    """A file or FIFO; may contain placeholders."""
    start: str | None = None
    """Field of the scheduled arrival; ``None`` if it is ``end`` - ``latency``."""
    end: str | None = None
    """Field of the completion; ``None`` if it is ``start`` + ``latency``."""
    latency: str | None = None
    """Field of the latency; ``None`` if it is ``end`` - ``start``."""
    sent: str | None = None
    """Field of the time at which the request was sent; ``None`` if the lines have none."""
    ok: str | None = None
    """Field that says whether the request was answered; ``None`` if the lines have none."""
    end_us: str | None = None
    """Field with microseconds to add to ``end``, for logs that split the time; else ``None``."""
    pattern: str | None = None
    """Regular expression with named groups, searched in each line."""
    separator: str | None = None
    """The text between columns; ``None`` means white space."""
    time_unit_s: float = 1.0
    """Seconds per unit of ``start``, ``end`` and ``sent``."""
    latency_unit_s: float = 1.0
    """Seconds per unit of a ``latency`` that carries no unit of its own."""
    unit: str | None = None
    """Field of the latency's unit; ``None`` if the lines have none."""
    failed_words: tuple[str, ...] = FAILED_WORDS
    """Words for a request that failed, as ``ok`` or in the place of the latency."""
    ok_words: tuple[str, ...] = OK_WORDS
    """Words as ``ok`` for a request that was answered."""
    failed_status: tuple[str, ...] = FAILED_STATUS
    """Status codes as ``ok`` of requests that failed, and ranges of them."""
    realtime: bool = False
    """Whether the times are CLOCK_REALTIME (Unix time) instead of CLOCK_MONOTONIC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLines:
    """Where a background group reports its work."""

    path: str
    """A file of lines ``TIME UNITS``, with TIME as CLOCK_MONOTONIC in seconds."""
    cumulative: bool = True
    """Whether UNITS counts from the start of the program, so that a smaller value means a restart.
    Otherwise it counts from the line before."""
    name: str = "units"
    """The name of the units, for reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A time in which a background group runs, in seconds after the block's start."""

    start_s: float = 0.0
    """When the program is started."""
    stop_s: float | None = None
    """When the program is killed; ``None`` means at the end of the block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedSpec:
    """A protected application."""

    name: str = "protected"
    """Its name, where there are several."""
    server: Command
    """The program that answers the requests."""
    ready: str
    """A path that exists once the server is ready; may contain placeholders."""
    load: Command
    """The load generator; it runs in a group outside the sandbox."""
    latency: LatencyLines
    """Where the requests are logged."""
    slo: Slo
    """The latency target."""
    prepare: tuple[tuple[str, ...], ...] = ()
    """Commands that make the data in ``{data}``; it is made once and kept."""
    warm: tuple[tuple[str, ...], ...] = ()
    """Commands to run once the server is ready in every block, outside of the sandbox."""
    workers: int = 1
    """How many requests it serves at once. A request that waits for a page delays only those
    behind it at the same worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundSpec:
    """One background group. Its place in the scenario is its slot."""

    name: str
    """A name for reports, unique in the scenario."""
    command: Command
    """The program."""
    units: UnitLines
    """Where its work is reported."""
    kind: str = ""
    """The kind of work, by which recordings are split; empty if the scenario is outside of the
    split."""
    phases: tuple[Phase, ...] = (Phase(),)
    """When it runs: in order, without overlap."""
    repeat_s: float | None = None
    """The period with which the phases repeat; ``None`` means that they do not."""
    floor_bytes: int = 16 * 1024 * 1024
    """The floor: no limit is ever set below it."""

    @property
    def restarts(self) -> bool:
        """Whether a terminated program is started again, by the program loop."""
        return PROGRAM_LOOP in self.command.argv


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A program that must be installed."""

    program: str
    """A name on PATH, an absolute path, which may contain ``*``, or ``python:MODULE``."""
    package: str
    """The Debian package that contains it; for a module the package on PyPI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario, checked."""

    name: str
    """The name of its file without ``.toml``."""
    summary: str
    """One line for lists."""
    sandbox: SandboxSpec
    """The memory."""
    protected: ProtectedSpec
    """The protected application; the first of several."""
    others: tuple[ProtectedSpec, ...] = ()
    """The further protected applications, each with a stated target."""
    background: tuple[BackgroundSpec, ...]
    """The background groups in the order of their slots, at most four; there may be none beside
    several applications."""
    needs: tuple[Need, ...] = ()
    """Programs that must be installed."""
    application: str = ""
    """The kind of application, by which recordings are split; empty if the scenario is outside of
    the split."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """The content of the file."""

    @property
    def applications(self) -> tuple[ProtectedSpec, ...]:
        """All protected applications, at least one."""
        return (self.protected, *self.others)

    def check_one_application(self) -> None:
        """Refuse several protected applications, where only one can be dealt with.

        Raises:
            ScenarioError: If there are several.
        """
        if self.others:
            names = ", ".join(one.name for one in self.applications)
            raise ScenarioError(
                f"The scenario {self.name} protects several applications ({names}), and here "
                "there can be only one.",
                next_step="Use `stallward compare --live` or `--twin`, or a scenario that protects "
                "one.",
            )

    def with_target(self, target: Target) -> Scenario:
        """The same scenario with another setting of its latency target.

        Raises:
            ScenarioError: If a target is to be measured and there are several applications.
        """
        if target == "stated" or self.protected.slo.latency_ms is None:
            return self
        if self.others:
            raise ScenarioError(
                f"The scenario {self.name} protects several applications, whose targets are "
                "stated and not measured.",
                next_step="Leave out `--target tight`.",
            )
        slo = replace(self.protected.slo, latency_ms=None)
        return replace(
            self, protected=replace(self.protected, slo=slo), content=workload_of(self.content)
        )


def workload_of(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """What runs in a scenario: the content of its file without the latency target.

    Recordings of the same workload can be compared with each other, whatever the target was.
    """
    protected = content.get("protected", {})
    if isinstance(protected, Mapping):
        return {**content, "protected": _without_target(protected)}
    return {**content, "protected": [_without_target(one) for one in protected]}


def _without_target(protected: Mapping[str, Any]) -> Mapping[str, Any]:
    rest = {key: value for key, value in protected.items() if key != "slo"}
    slo = {key: value for key, value in protected.get("slo", {}).items() if key != "latency_ms"}
    return {**rest, "slo": slo} if slo else rest


def states_target(content: Mapping[str, Any]) -> bool:
    """Whether the content of a scenario's file states a latency target, as several always do."""
    protected = content.get("protected", {})
    slo = (protected if isinstance(protected, Mapping) else protected[0]).get("slo", {})
    return bool(slo.get("latency_ms", "auto") != "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The values of the placeholders in one block; ``PLACEHOLDERS`` explains each."""

    data: Path
    run: Path
    scratch: Path
    python: str
    workloads: Path
    seed: int

    def values(self) -> dict[str, str]:
        """Return the values as strings, by the names of the placeholders."""
        return {name: str(getattr(self, name)) for name in PLACEHOLDERS}


def placeholders_in(text: str) -> tuple[str, ...]:
    """Return the names in braces in ``text``, known or not."""
    return tuple(_PLACEHOLDER.findall(text))


def expand(text: str, places: Places) -> str:
    """Fill in the placeholders of ``text``; braces around other words stay as they are."""
    values = places.values()
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def expand_command(argv: Sequence[str], places: Places) -> list[str]:
    """Fill in the placeholders of a command.

    With ``-m`` and ``-c``, ``{python}`` imports nothing from the current folder, which may be
    anybody's.
    """
    words: list[str] = []
    for word, following in zip_longest(argv, argv[1:]):
        words.append(expand(word, places))
        if word == "{python}" and following in {"-m", "-c"}:
            words.append("-P")
    return words


def running_phases(spec: BackgroundSpec, duration_s: float) -> tuple[Phase, ...]:
    """Return the times in which ``spec`` runs in a block of ``duration_s`` seconds, in order.

    Each starts before the end of the block and stops at the end at the latest.
    """
    period_s = spec.repeat_s
    running: list[Phase] = []
    offset_s = 0.0
    while offset_s < duration_s:
        for phase in spec.phases:
            start_s = offset_s + phase.start_s
            end_s = offset_s + period_s if period_s is not None else duration_s
            stop_s = end_s if phase.stop_s is None else offset_s + phase.stop_s
            if start_s < duration_s:
                running.append(Phase(start_s=start_s, stop_s=min(stop_s, duration_s)))
        if period_s is None:
            break
        offset_s += period_s
    return tuple(running)


def is_scheduled(spec: BackgroundSpec, from_s: float, to_s: float) -> bool:
    """Return whether one phase of ``spec`` lasts from ``from_s`` to ``to_s`` seconds in a block."""
    phases = running_phases(spec, to_s)
    return any(one.start_s <= from_s and one.stop_s == to_s for one in phases)
