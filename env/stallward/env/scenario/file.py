"""Reads scenarios from TOML files and refuses what is not exactly right.

``docs/reference/scenarios.md`` is the reference of the format.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from stallward.agent.schema.toml_file import read_toml
from stallward.env.errors import ScenarioError
from stallward.env.scenario.scenario import (
    CALIBRATION_S,
    MAX_BACKGROUND_SLOTS,
    PLACEHOLDERS,
    BackgroundSpec,
    Command,
    LatencyLines,
    Need,
    Phase,
    ProtectedSpec,
    SandboxSpec,
    Scenario,
    Slo,
    UnitLines,
    placeholders_in,
)
from stallward.env.toml_table import Table

MIB = 1024 * 1024
_MAX_MIB = 1e9
"""A petabyte: what files of the kernel can hold, in 64 bits, and no machine has."""
_UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_FIELDS = ("start", "end", "latency", "sent", "ok", "end_us")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def scenarios_dir() -> Path:
    """The folder of the scenarios shipped with stallward."""
    return Path(str(resources.files("stallward.env.scenario"))) / "shipped"


def find_scenarios() -> tuple[Scenario, ...]:
    """Every shipped scenario, by name."""
    return tuple(parse_scenario(path) for path in sorted(scenarios_dir().glob("*.toml")))


def load_scenario(name_or_path: str | Path) -> Scenario:
    """Load a shipped scenario by name, or any scenario by the path of its file.

    Raises:
        ScenarioError: If there is no such scenario, or its file has a mistake.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text:
        return parse_scenario(Path(name_or_path))
    shipped = {path.stem: path for path in sorted(scenarios_dir().glob("*.toml"))}
    if text in shipped:
        return parse_scenario(shipped[text])
    close = difflib.get_close_matches(text, shipped, n=1)
    raise ScenarioError(
        f"There is no scenario called {text!r}.",
        next_step=(f"Did you mean {close[0]}? " if close else "")
        + f"Shipped: {', '.join(shipped)}; or give the path of a .toml file.",
    )


def parse_scenario(path: Path) -> Scenario:
    """Read and check one scenario file.

    Raises:
        ScenarioError: If it cannot be read or is not exactly right; it names file and key.
    """
    try:
        values = read_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(
            f"{path} cannot be read: {error.strerror or error}.",
            next_step="Check the path; `stallward scenarios` lists the shipped ones.",
        ) from error
    except ValueError as error:
        raise ScenarioError(f"{path} is not valid TOML: {error}.") from error
    return scenario_from(values, path)


def scenario_from(values: Mapping[str, Any], path: Path) -> Scenario:
    """The scenario of a file's content, as a recording keeps it.

    Args:
        values: The content.
        path: The file, which need not exist; its name is the scenario's.

    Raises:
        ScenarioError: If the content is not exactly right; it names file and key.
    """
    root = Table(path, "", values)
    if not _NAME.fullmatch(path.stem):
        raise ScenarioError(
            f"{path.name} cannot name a scenario.",
            next_step="Use small letters, digits and dashes, then `.toml`.",
        )
    scenario = Scenario(
        name=path.stem,
        summary=root.get("summary", str),
        sandbox=_sandbox(root.table("sandbox")),
        protected=_protected(root.table("protected")),
        background=_backgrounds(root),
        needs=_needs(root.table("needs")) if root.has("needs") else (),
        application=_word(root, "application") if root.has("application") else "",
        content=values,
    )
    root.done()
    return scenario


def _sandbox(table: Table) -> SandboxSpec:
    spec = SandboxSpec(
        limit_bytes=int(table.number("limit_mib", low=32, high=_MAX_MIB) * MIB),
        ample_bytes=int(table.number("ample_mib", low=32, high=_MAX_MIB) * MIB),
        swap_bytes=int(table.number("swap_mib", default=2048.0, low=64, high=_MAX_MIB) * MIB),
    )
    if spec.ample_bytes <= spec.limit_bytes:
        raise table.fail(
            "ample_mib",
            f"is {spec.ample_bytes // MIB}, not more than limit_mib ({spec.limit_bytes // MIB}).",
            "Give the memory with which nobody is short of any.",
        )
    table.done()
    return spec


def _protected(table: Table) -> ProtectedSpec:
    spec = ProtectedSpec(
        server=_command(table.table("server")),
        ready=_template(table, "ready", table.get("ready", str)),
        load=_command(table.table("load")),
        latency=_latency(table.table("latency")),
        slo=_slo(table.table("slo")) if table.has("slo") else Slo(),
        prepare=_commands(table, "prepare"),
        warm=_commands(table, "warm"),
        workers=int(table.number("workers", default=1.0, low=1.0, high=1024.0)),
    )
    table.done()
    return spec


def _slo(table: Table) -> Slo:
    quantile = table.number("quantile", default=0.95, low=0.01, high=0.999)
    latency_ms = None
    if table.is_text("latency_ms") or not table.has("latency_ms"):
        if table.get("latency_ms", str, "auto") != "auto":
            raise table.fail("latency_ms", 'must be a number of milliseconds or "auto".')
    else:
        latency_ms = table.number("latency_ms", low=0.001)
    calibration_s = table.number("calibration_s", default=CALIBRATION_S, low=5.0, high=3600.0)
    table.done()
    return Slo(quantile=quantile, latency_ms=latency_ms, calibration_s=calibration_s)


def _latency(table: Table) -> LatencyLines:
    pattern = table.maybe("pattern", str)
    fields = {name: _field(table, name, named=pattern is not None) for name in _FIELDS}
    if pattern is not None:
        _check_pattern(table, pattern, fields)
    given = [name for name in ("start", "end", "latency") if fields[name] is not None]
    if len(given) < 2:
        raise table.fail(
            "start",
            f"and its like name {len(given)} field(s); two of start, end, latency are needed.",
            "Say which column (or group of the pattern) holds the time and which the latency.",
        )
    clock = table.get("clock", str, "monotonic")
    if clock not in {"monotonic", "realtime"}:
        raise table.fail("clock", f'is {clock!r}, but must be "monotonic" or "realtime".')
    lines = LatencyLines(
        path=_template(table, "path", table.get("path", str)),
        start=fields["start"],
        end=fields["end"],
        latency=fields["latency"],
        sent=fields["sent"],
        ok=fields["ok"],
        end_us=fields["end_us"],
        pattern=pattern,
        separator=table.maybe("separator", str),
        time_unit_s=_unit(table, "time_unit"),
        latency_unit_s=_unit(table, "latency_unit"),
        realtime=clock == "realtime",
    )
    table.done()
    return lines


def _field(table: Table, name: str, *, named: bool) -> str | None:
    if not table.has(name):
        return None
    if named:
        return table.get(name, str)
    column = table.get(name, int)
    if column < 0:
        raise table.fail(name, f"is column {column}, but columns count from 0.")
    return str(column)


def _check_pattern(table: Table, pattern: str, fields: dict[str, str | None]) -> None:
    try:
        groups = re.compile(pattern).groupindex
    except (re.error, RecursionError, OverflowError) as error:
        raise table.fail("pattern", f"is not a regular expression: {error}.") from error
    for name, group in fields.items():
        if group is not None and group not in groups:
            raise table.fail(
                name,
                f"names the group {group!r}, which the pattern does not have.",
                f"Write (?P<{group}>...) in the pattern.",
            )


def _unit(table: Table, key: str) -> float:
    unit = table.get(key, str, "s")
    if unit not in _UNITS_S:
        raise table.fail(key, f"is {unit!r}, but must be one of {', '.join(_UNITS_S)}.")
    return _UNITS_S[unit]


def _backgrounds(root: Table) -> tuple[BackgroundSpec, ...]:
    tables = root.tables("background")
    if not 1 <= len(tables) <= MAX_BACKGROUND_SLOTS:
        raise root.fail(
            "background",
            f"has {len(tables)} groups, but must have 1 to {MAX_BACKGROUND_SLOTS}.",
            "Write one [[background]] table for each.",
        )
    specs = tuple(_background(table) for table in tables)
    for index, spec in enumerate(specs):
        if spec.name in {other.name for other in specs[:index]}:
            raise tables[index].fail("name", f"is {spec.name!r}, as of another group.")
    return specs


def _background(table: Table) -> BackgroundSpec:
    name = _word(table, "name")
    repeat_s = table.number("repeat_s", low=1) if table.has("repeat_s") else None
    spec = BackgroundSpec(
        name=name,
        command=_command_keys(table),
        units=_units(table.table("units")),
        kind=_word(table, "kind") if table.has("kind") else "",
        phases=_phases(table, repeat_s),
        repeat_s=repeat_s,
        floor_bytes=int(table.number("floor_mib", default=16.0, low=1, high=_MAX_MIB) * MIB),
    )
    table.done()
    return spec


def _word(table: Table, key: str) -> str:
    word = table.get(key, str)
    if not _NAME.fullmatch(word):
        raise table.fail(key, f"is {word!r}, but takes small letters, digits and dashes.")
    return word


def _phases(table: Table, repeat_s: float | None) -> tuple[Phase, ...]:
    if table.has("start_s") and table.has("phases"):
        raise table.fail("start_s", "and phases are both given.", "Give one of the two.")
    if not table.has("phases"):
        return (Phase(start_s=table.number("start_s", default=0.0)),)
    phases: list[Phase] = []
    free_from_s = 0.0
    for item in table.tables("phases"):
        start_s = item.number("start_s", low=free_from_s)
        stop_s = item.number("stop_s", low=start_s, high=repeat_s) if item.has("stop_s") else None
        item.done()
        phases.append(Phase(start_s=start_s, stop_s=stop_s))
        free_from_s = float("inf") if stop_s is None else stop_s
    if not phases:
        raise table.fail("phases", "is empty.", "Leave it out for a group that always runs.")
    return tuple(phases)


def _units(table: Table) -> UnitLines:
    kind = table.get("kind", str, "cumulative")
    if kind not in {"cumulative", "incremental"}:
        raise table.fail("kind", f'is {kind!r}, but must be "cumulative" or "incremental".')
    units = UnitLines(
        path=_template(table, "path", table.get("path", str)),
        cumulative=kind == "cumulative",
        name=table.get("name", str, "units"),
    )
    table.done()
    return units


def _command(table: Table) -> Command:
    command = _command_keys(table)
    table.done()
    return command


def _command_keys(table: Table) -> Command:
    argv = tuple(_template(table, "command", word) for word in table.strings("command"))
    nice = table.get("nice", int, 0)
    if not 0 <= nice <= 19:
        raise table.fail("nice", f"is {nice}, but must be from 0 to 19.")
    cpus = table.maybe("cpus", str)
    if cpus is not None and not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", cpus, re.ASCII):
        raise table.fail("cpus", f"is {cpus!r}.", 'Write it as for taskset, e.g. "0" or "0-1,3".')
    return Command(argv=argv, nice=nice, cpus=cpus)


def _commands(table: Table, key: str) -> tuple[tuple[str, ...], ...]:
    commands: list[tuple[str, ...]] = []
    for index, item in enumerate(table.get(key, list, [])):
        place = f"{key}[{index}]"
        if not isinstance(item, list) or not item or not all(isinstance(w, str) for w in item):
            raise table.fail(place, "must be a list of strings, a program and its arguments.")
        commands.append(tuple(_template(table, place, word) for word in item))
    return tuple(commands)


def _template(table: Table, key: str, text: str) -> str:
    for name in placeholders_in(text):
        if name not in PLACEHOLDERS:
            close = difflib.get_close_matches(name, PLACEHOLDERS, n=1)
            raise table.fail(
                key,
                f"has the placeholder {{{name}}}, which does not exist.",
                f"Did you mean {{{close[0]}}}?"
                if close
                else f"There are {', '.join(f'{{{known}}}' for known in PLACEHOLDERS)}.",
            )
    return text


def _needs(table: Table) -> tuple[Need, ...]:
    needs: list[Need] = []
    for program, package in table.remaining().items():
        if not isinstance(package, str):
            raise table.fail(program, "must be the name of a Debian package, a string.")
        needs.append(Need(program=program, package=package))
    return tuple(needs)
