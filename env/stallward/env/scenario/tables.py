"""The tables of a scenario file: its keys, in the units of the file, and their constraints.

``docs/reference/scenarios.md`` is the reference of the format.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from stallward.actuator.latency.config import FAILED_STATUS, FAILED_WORDS, OK_WORDS
from stallward.actuator.latency.line_format import parse_status
from stallward.agent.errors import SchemaError
from stallward.agent.schema.describe import Expect
from stallward.env.scenario.scenario import (
    CALIBRATION_S,
    MAX_APPLICATIONS,
    MAX_BACKGROUND_SLOTS,
    PLACEHOLDERS,
    placeholders_in,
)

MIB: Final = 1024 * 1024
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_FIELDS: Final = ("start", "end", "latency", "sent", "ok", "end_us", "unit")
_CPUS: Final = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*", re.ASCII)


def _check_word(text: str) -> None:
    if not NAME.fullmatch(text):
        raise SchemaError(f"is {text!r}, but takes small letters, digits and dashes.")


def _check_cpus(text: str) -> None:
    if not _CPUS.fullmatch(text):
        raise SchemaError(
            f"is {text!r}.", next_step='Write it as for taskset, e.g. "0" or "0-1,3".'
        )


def _check_placeholders(text: str) -> None:
    for name in placeholders_in(text):
        if name not in PLACEHOLDERS:
            close = difflib.get_close_matches(name, PLACEHOLDERS, n=1)
            known = f"There are {', '.join(f'{{{known}}}' for known in PLACEHOLDERS)}."
            raise SchemaError(
                f"has the placeholder {{{name}}}, which does not exist.",
                next_step=f"Did you mean {{{close[0]}}}?" if close else known,
            )


def _check_pattern(text: str) -> None:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise SchemaError(f"is not a regular expression: {error}.") from error


def _check_status(text: str) -> None:
    try:
        parse_status(text)
    except ValueError as error:
        raise SchemaError(f"{error}.") from error


_Word = Annotated[str, _check_word]
_Cpus = Annotated[str, _check_cpus]
_Template = Annotated[str, _check_placeholders]
"""A string that may contain placeholders."""
_Argv = Annotated[
    tuple[_Template, ...],
    Expect(
        low=1,
        unit="strings",
        meaning='Write each argument as a string of its own, e.g. ["sleep", "10"].',
    ),
]
_Unit = Literal["s", "ms", "us", "ns"]
_Mib = Annotated[float, Expect(low=1, high=1e9, unit="MiB")]
"""At most a petabyte: no machine has more memory, and the 64 bits of kernel files hold it."""
_ZoneMib = Annotated[float, Expect(low=32, high=1e9, unit="MiB")]
_SwapMib = Annotated[float, Expect(low=0, high=1e9, unit="MiB")]
_LEAST_SWAP_MIB: Final = 64
_DiskMib = Annotated[float, Expect(low=1, high=1e6, unit="MiB a second")]
_DiskOps = Annotated[float, Expect(low=10, high=1e9, unit="operations a second")]
_Seconds = Annotated[float, Expect(low=0, unit="seconds")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxTable:
    """Table ``sandbox``: its memory, and how slow its disk is."""

    limit_mib: _ZoneMib
    ample_mib: _ZoneMib
    swap_mib: _SwapMib = 2048.0
    compressed_swap: Literal["none", "zswap", "zram"] = "none"
    compressor: _Word | None = None
    disk_mib_per_s: _DiskMib | None = None
    disk_ops_per_s: _DiskOps | None = None

    def __post_init__(self) -> None:
        if 0 < self.swap_mib < _LEAST_SWAP_MIB:
            raise SchemaError(
                f"swap_mib is {self.swap_mib:g}, but must be 0 or at least {_LEAST_SWAP_MIB}.",
                next_step="Write 0 for a sandbox without swap.",
            )
        if self.compressed_swap != "none" and self.swap_mib == 0:
            raise SchemaError(
                f'compressed_swap is "{self.compressed_swap}", but swap_mib is 0.',
                next_step="Give swap_mib a size.",
            )
        if self.compressed_swap == "none" and self.compressor is not None:
            raise SchemaError(
                f'compressor is "{self.compressor}", but nothing is compressed.',
                next_step='Write compressed_swap = "zswap" or "zram", or leave it out.',
            )
        if int(self.ample_mib * MIB) <= int(self.limit_mib * MIB):
            raise SchemaError(
                f"ample_mib is {self.ample_mib:g}, not more than limit_mib ({self.limit_mib:g}).",
                next_step="Give a size with which all programs have memory enough.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTable:
    """A program to start, its niceness and its CPUs."""

    command: _Argv
    nice: Annotated[int, Expect(low=0, high=19)] = 0
    cpus: _Cpus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTable:
    """Table ``protected.latency``: where requests are logged, and how to read the lines."""

    path: _Template
    start: int | str | None = None
    end: int | str | None = None
    latency: int | str | None = None
    sent: int | str | None = None
    ok: int | str | None = None
    end_us: int | str | None = None
    pattern: Annotated[str, _check_pattern] | None = None
    separator: str | None = None
    time_unit: _Unit = "s"
    latency_unit: _Unit = "s"
    unit: int | str | None = None
    failed_words: tuple[str, ...] = FAILED_WORDS
    ok_words: tuple[str, ...] = OK_WORDS
    failed_status: tuple[Annotated[str, _check_status], ...] = FAILED_STATUS
    clock: Literal["monotonic", "realtime"] = "monotonic"

    @property
    def fields(self) -> dict[str, int | str]:
        """The column or group of each field that is given."""
        named = {name: getattr(self, name) for name in _FIELDS}
        return {name: given for name, given in named.items() if given is not None}

    def __post_init__(self) -> None:
        for name, given in self.fields.items():
            self._check_type(name, given)
        for name, given in self.fields.items():
            self._check_field(name, given)
        timed = [name for name in ("start", "end", "latency") if name in self.fields]
        if len(timed) < 2:
            raise SchemaError(
                f"start and the other times: {len(timed)} given; "
                "two of start, end, latency are needed.",
                next_step="Say which column (or group of the pattern) holds the time and which "
                "the latency.",
            )

    def _check_type(self, name: str, given: int | str) -> None:
        if self.pattern is None and isinstance(given, str):
            raise SchemaError(
                f"{name} is {given!r}, not a whole number but a string.",
                next_step="Without a pattern, fields are columns from 0.",
            )
        if self.pattern is not None and isinstance(given, int):
            raise SchemaError(
                f"{name} is {given}, not a string but a whole number.",
                next_step="With a pattern, fields are names of its groups.",
            )

    def _check_field(self, name: str, given: int | str) -> None:
        if isinstance(given, int) and given < 0:
            raise SchemaError(f"{name} is column {given}, but columns count from 0.")
        if self.pattern is not None and given not in re.compile(self.pattern).groupindex:
            raise SchemaError(
                f"{name} names the group {given!r}, which the pattern does not have.",
                next_step=f"Write (?P<{given}>...) in the pattern.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SloTable:
    """Table ``protected.slo``: the latency target."""

    quantile: Annotated[float, Expect(low=0.01, high=0.999)] = 0.95
    latency_ms: Annotated[float, Expect(low=0.001, unit="ms")] | Literal["auto"] = "auto"
    calibration_s: Annotated[float, Expect(low=5, high=3600, unit="seconds")] = CALIBRATION_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedTable:
    """Table ``protected``: the protected application. Entries of several have a ``name`` as well."""

    server: ProgramTable
    ready: _Template
    load: ProgramTable
    latency: LatencyTable
    slo: SloTable = field(default_factory=SloTable)
    prepare: tuple[_Argv, ...] = ()
    warm: tuple[_Argv, ...] = ()
    workers: Annotated[float, Expect(low=1, high=1024)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationTable(ProtectedTable):
    """An entry of several ``protected``, each with a target that its user set."""

    name: _Word
    slo: SloTable

    def __post_init__(self) -> None:
        if self.slo.latency_ms == "auto":
            raise SchemaError(
                "slo.latency_ms is left to be measured, which takes a single application.",
                next_step="State the target of each of several applications.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsTable:
    """Table ``units`` of a group: where it reports its work."""

    path: _Template
    kind: Literal["cumulative", "incremental"] = "cumulative"
    name: str = "units"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTable:
    """An entry of ``phases``: a time in which a group runs."""

    start_s: _Seconds
    stop_s: _Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundTable(ProgramTable):
    """An entry of ``background``: the program of a group, and when it runs."""

    name: _Word
    units: UnitsTable
    kind: _Word = ""
    start_s: _Seconds | None = None
    phases: tuple[PhaseTable, ...] | None = None
    repeat_s: Annotated[float, Expect(low=1, unit="seconds")] | None = None
    floor_mib: _Mib = 16.0

    def __post_init__(self) -> None:
        if self.start_s is not None and self.phases is not None:
            raise SchemaError(
                "start_s and phases are both given.", next_step="Give one of the two."
            )
        if self.phases == ():
            raise SchemaError(
                "phases is empty.", next_step="Leave it out for a group that always runs."
            )
        free_from_s, end_s = 0.0, float("inf") if self.repeat_s is None else self.repeat_s
        for index, phase in enumerate(self.phases or ()):
            if phase.start_s < free_from_s:
                raise SchemaError(
                    f"phases[{index}].start_s is {phase.start_s:g}, but must be at least "
                    f"{free_from_s:g}."
                )
            free_from_s = float("inf") if phase.stop_s is None else phase.stop_s
            if phase.stop_s is not None and not phase.start_s <= phase.stop_s <= end_s:
                raise SchemaError(
                    f"phases[{index}].stop_s is {phase.stop_s:g}, but must be from "
                    f"{phase.start_s:g} to {end_s:g}."
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTable:
    """The top level of a scenario file."""

    summary: str
    sandbox: SandboxTable
    protected: (
        ProtectedTable
        | Annotated[
            tuple[ApplicationTable, ...],
            Expect(
                low=2,
                high=MAX_APPLICATIONS,
                unit="applications",
                meaning="Write a single one as a table [protected].",
            ),
        ]
    )
    background: Annotated[
        tuple[BackgroundTable, ...],
        Expect(
            high=MAX_BACKGROUND_SLOTS,
            unit="groups",
            meaning="Write one [[background]] table for each.",
        ),
    ] = ()
    needs: Mapping[
        str, Annotated[str, Expect(meaning="Name the Debian package that has the program.")]
    ] = field(default_factory=dict)
    application: _Word = ""

    def __post_init__(self) -> None:
        if not self.background and isinstance(self.protected, ProtectedTable):
            raise SchemaError(
                f"background has 0 groups, but must have 1 to {MAX_BACKGROUND_SLOTS}.",
                next_step="Write one [[background]] table for each.",
            )
        _check_distinct("background", [group.name for group in self.background], "group")
        if isinstance(self.protected, tuple):
            names = [application.name for application in self.protected]
            _check_distinct("protected", names, "application")


def _check_distinct(place: str, names: Sequence[str], what: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise SchemaError(f"{place}[{index}].name is {name!r}, as of another {what}.")
