"""What a scenario is: the sandbox, the protected application, its load and the background.

A scenario is a TOML file (docs/reference/scenarios.md describes every key); it is parsed once,
by ``stallward.env.scenario.file``, into the frozen values below. Commands keep their
placeholders until a block starts; ``expand`` fills them in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

MAX_BACKGROUND_SLOTS = 4
"""The action table has four slots."""
CALIBRATION_S = 30.0
"""Thousands of requests, of most applications."""

PLACEHOLDERS = {
    "data": "the folder its prepare commands filled, kept between blocks",
    "run": "an empty folder in memory for this block: sockets and lines files",
    "scratch": "an empty folder on disk for this block: temporary files",
    "python": "the interpreter that runs stallward",
    "workloads": "the folder with the compiled hogs and the load generator",
    "seed": "the seed of this block",
}

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


PROGRAM_LOOP: Final = "stallward.env.workloads.program_loop"
"""The module that runs a program over and over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program to start, with where it may run.

    Args:
        argv: The program and its arguments, placeholders not filled in.
        nice: Added to the niceness, 0 to 19.
        cpus: CPUs it is bound to, as ``taskset -c`` takes them; ``None`` means all.
    """

    argv: tuple[str, ...]
    nice: int = 0
    cpus: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """Memory of the sandbox.

    Args:
        limit_bytes: What the protected application and the background share.
        ample_bytes: Enough for all of them, for the condition of that name.
        swap_bytes: Size of the swap file that is made where the node has no swap.
    """

    limit_bytes: int
    ample_bytes: int
    swap_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """The latency target.

    Args:
        quantile: The quantile it is about, in (0, 1).
        latency_ms: The target; ``None`` means 1.5 x the p99 measured with ample memory.
        calibration_s: How long that is measured: 2,000 requests or more make a p99 of which one
            request's bad luck is a twentieth.
    """

    quantile: float = 0.95
    latency_ms: float | None = None
    calibration_s: float = CALIBRATION_S


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLines:
    """Where the protected application's requests are written, one per line.

    A field is named by its column (from 0, split at ``separator`` or white space) or, with
    ``pattern``, by a named group. Lines that do not match are skipped: they are not requests.

    Args:
        path: A file or FIFO; may hold placeholders.
        start: Field of the scheduled arrival; ``None`` if it is ``end`` - ``latency``.
        end: Field of the completion; ``None`` if it is ``start`` + ``latency``.
        latency: Field of the latency; ``None`` if it is ``end`` - ``start``.
        sent: Field of the moment the request was sent, if there is one.
        ok: Field that is ``1`` for a request that was answered, if there is one.
        end_us: Field of microseconds to be added to ``end``, for logs that split the time.
        pattern: Regular expression with named groups, searched in each line.
        separator: What separates columns; ``None`` means white space.
        time_unit_s: Seconds per unit of ``start``, ``end`` and ``sent``.
        latency_unit_s: Seconds per unit of ``latency``.
        realtime: Whether the times are CLOCK_REALTIME (Unix time) instead of CLOCK_MONOTONIC.
    """

    path: str
    start: str | None = None
    end: str | None = None
    latency: str | None = None
    sent: str | None = None
    ok: str | None = None
    end_us: str | None = None
    pattern: str | None = None
    separator: str | None = None
    time_unit_s: float = 1.0
    latency_unit_s: float = 1.0
    realtime: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLines:
    """Where a background group writes the work it has done.

    Args:
        path: A file of lines ``TIME UNITS``; TIME is CLOCK_MONOTONIC in seconds.
        cumulative: Whether UNITS counts from the start (a smaller value than before means that
            the program was started again); otherwise it is what was done since the last line.
        name: What a unit is, for reports.
    """

    path: str
    cumulative: bool = True
    name: str = "units"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A time in which a background group runs, in seconds after the block's start.

    Args:
        start_s: When its program is started.
        stop_s: When it is killed; ``None`` means at the block's end.
    """

    start_s: float = 0.0
    stop_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedSpec:
    """The latency-critical application.

    Args:
        server: Its program.
        ready: A path that exists once it serves; may hold placeholders.
        load: The load generator; it runs in a group outside the sandbox.
        latency: Where the requests are written.
        slo: Its target.
        prepare: Programs that fill ``{data}``, run once and kept.
        warm: Programs run outside the sandbox in every block after the server is ready.
        workers: Requests that it serves at once: one that waits for a page then holds up only
            those behind it.
    """

    server: Command
    ready: str
    load: Command
    latency: LatencyLines
    slo: Slo
    prepare: tuple[tuple[str, ...], ...] = ()
    warm: tuple[tuple[str, ...], ...] = ()
    workers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundSpec:
    """One background group; its place in the scenario is its slot.

    Args:
        name: For reports, unique in the scenario.
        command: Its program.
        kind: What sort of work it is, for the split of the recordings; "" if it has no part in
            that.
        units: Where its work is written.
        phases: When it runs, in order, not overlapping.
        repeat_s: The phases start over after so many seconds; ``None`` means they do not.
        floor_bytes: No limit below this is ever set.
    """

    name: str
    command: Command
    units: UnitLines
    kind: str = ""
    phases: tuple[Phase, ...] = (Phase(),)
    repeat_s: float | None = None
    floor_bytes: int = 16 * 1024 * 1024

    @property
    def restarts(self) -> bool:
        """Whether what is terminated in it begins anew."""
        return PROGRAM_LOOP in self.command.argv


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A program that has to be on this machine.

    Args:
        program: Its name on PATH, or an absolute path with ``*`` in it.
        package: The Debian package that has it.
    """

    program: str
    package: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario, checked.

    Args:
        name: Its file's name without ``.toml``.
        summary: One line for lists.
        sandbox: Memory.
        protected: The latency-critical application.
        background: At most four groups, the first to act on first.
        needs: Programs that must be installed.
        application: What the protected application is, for the split of the recordings; "" if
            the scenario has no part in that.
        content: What its file says.
    """

    name: str
    summary: str
    sandbox: SandboxSpec
    protected: ProtectedSpec
    background: tuple[BackgroundSpec, ...]
    needs: tuple[Need, ...] = ()
    application: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What the placeholders stand for in one block."""

    data: Path
    run: Path
    scratch: Path
    python: str
    workloads: Path
    seed: int

    def values(self) -> dict[str, str]:
        """Every placeholder with its value."""
        return {name: str(getattr(self, name)) for name in PLACEHOLDERS}


def placeholders_in(text: str) -> tuple[str, ...]:
    """The names in braces in ``text``, known or not."""
    return tuple(_PLACEHOLDER.findall(text))


def expand(text: str, places: Places) -> str:
    """Fill in the placeholders of ``text``; braces around other words stay as they are."""
    values = places.values()
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def running_phases(spec: BackgroundSpec, duration_s: float) -> tuple[Phase, ...]:
    """The times in which ``spec`` runs in a block of ``duration_s`` seconds, in order.

    Every phase returned starts before the block's end and has a stop at or before it.
    """
    period_s = spec.repeat_s
    found: list[Phase] = []
    offset_s = 0.0
    while offset_s < duration_s:
        for phase in spec.phases:
            start_s = offset_s + phase.start_s
            end_s = offset_s + period_s if period_s is not None else duration_s
            stop_s = end_s if phase.stop_s is None else offset_s + phase.stop_s
            if start_s < duration_s:
                found.append(Phase(start_s=start_s, stop_s=min(stop_s, duration_s)))
        if period_s is None:
            break
        offset_s += period_s
    return tuple(found)
