"""Reads scenarios from TOML files, and refuses files with any mistake."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file
from stallward.env.errors import ScenarioError
from stallward.env.scenario.scenario import (
    BackgroundSpec,
    Command,
    CompressedSwap,
    DiskLimit,
    LatencyLines,
    Need,
    Phase,
    ProtectedSpec,
    SandboxSpec,
    Scenario,
    Slo,
    UnitLines,
)
from stallward.env.scenario.tables import (
    MIB,
    NAME,
    ApplicationTable,
    BackgroundTable,
    LatencyTable,
    PhaseTable,
    ProgramTable,
    ProtectedTable,
    SandboxTable,
    ScenarioTable,
)

_UNITS_S: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""The units of time, in seconds."""
_BASED_ON: Final = "based_on"
"""The key of a file that takes what it does not say from a shipped scenario."""
_OF: Final = "of"
"""The key of one of several applications that is the one of a shipped scenario."""
_COMPRESSOR: Final = "lzo"
"""The usual algorithm: kernels with zswap or zram have it."""


def scenarios_dir() -> Path:
    """The folder of the scenarios shipped with stallward."""
    return Path(str(resources.files("stallward.env.scenario"))) / "shipped"


def shipped_files() -> dict[str, Path]:
    """The files of the shipped scenarios by name, sorted; there are folders by application."""
    return {path.stem: path for path in sorted(scenarios_dir().rglob("*.toml"), key=_stem)}


def find_scenarios() -> tuple[Scenario, ...]:
    """Load every shipped scenario, sorted by name."""
    return tuple(map(parse_scenario, shipped_files().values()))


def load_scenario(name_or_path: str | Path, *, several: bool = False) -> Scenario:
    """Load a shipped scenario by name, or any scenario by the path of its file.

    Args:
        name_or_path: The scenario.
        several: Whether it may protect several applications.

    Raises:
        ScenarioError: If there is no such scenario, its file has a mistake, or it protects
            several applications where there can be only one.
    """
    scenario = _load(name_or_path)
    if not several:
        scenario.check_one_application()
    return scenario


def _load(name_or_path: str | Path) -> Scenario:
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text:
        return parse_scenario(Path(name_or_path))
    shipped = shipped_files()
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
        ScenarioError: If it cannot be read or has a mistake; the error names file and key.
    """
    try:
        values = read_toml_file(path)
    except OSError as error:
        raise ScenarioError(
            f"{path} cannot be read: {error.strerror or error}.",
            next_step="Check the path; `stallward scenarios` lists the shipped ones.",
        ) from error
    except ValueError as error:
        raise ScenarioError(
            f"{path} is not valid TOML: {error}.", next_step=next_step_of(error, "")
        ) from error
    return scenario_from(_with_taken(_based(values, path), path), path)


def _based(values: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The content of a file that may only say what differs from a shipped scenario.

    Raises:
        ScenarioError: If it names none.
    """
    if _BASED_ON not in values:
        return values
    base = _shipped(values[_BASED_ON], f"{path}: {_BASED_ON}").content
    sandbox = values.get("sandbox", {})
    own = {key: value for key, value in values.items() if key != _BASED_ON}
    if isinstance(sandbox, Mapping):
        own["sandbox"] = {**base["sandbox"], **sandbox}
    if "protected" in own:  # it is another application than the one of the base
        base = {key: value for key, value in base.items() if key != "application"}
    return {**base, **own}


def _with_taken(values: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The content with the applications that are those of shipped scenarios, and their needs.

    Raises:
        ScenarioError: If one is that of no shipped scenario, or of one that protects several.
    """
    entries = values.get("protected")
    if not isinstance(entries, list):
        return values
    completed: list[object] = []
    needs: dict[str, str] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or _OF not in entry:
            completed.append(entry)
            continue
        source = _shipped(entry[_OF], f"{path}: protected[{index}].{_OF}")
        source.check_one_application()
        taken = {key: value for key, value in source.content["protected"].items() if key != "slo"}
        own = {key: value for key, value in entry.items() if key != _OF}
        completed.append({**taken, **own})
        needs |= source.content.get("needs", {})
    own_needs = values.get("needs", {})
    if isinstance(own_needs, Mapping):
        own_needs = {**needs, **own_needs}
    return {**values, "protected": completed, "needs": own_needs}


def _shipped(name: object, place: str) -> Scenario:
    """The shipped scenario of a name that a file gives at ``place``.

    Raises:
        ScenarioError: If there is none.
    """
    if not isinstance(name, str) or name not in (shipped := shipped_files()):
        raise ScenarioError(
            f"{place} is {name!r:.100}, which is no shipped scenario.",
            next_step="`stallward scenarios` lists them.",
        )
    return parse_scenario(shipped[name])


def scenario_from(values: Mapping[str, Any], path: Path) -> Scenario:
    """Make a scenario from the content of its file, which recordings contain.

    Args:
        values: The content.
        path: The file, which need not exist. The scenario is named after it, and errors name it.

    Raises:
        ScenarioError: If the content has a mistake; the error names file and key.
    """
    if not NAME.fullmatch(path.stem):
        raise ScenarioError(
            f"{path.name} cannot name a scenario.",
            next_step="Use small letters, digits and dashes, then `.toml`.",
        )
    try:
        file = read(ScenarioTable, values)
    except SchemaError as error:
        raise ScenarioError(f"{path}: {error.cause}", next_step=error.next_step) from error
    tables = file.protected if isinstance(file.protected, tuple) else (file.protected,)
    protected, *others = map(_protected, tables)
    return Scenario(
        name=path.stem,
        summary=file.summary,
        sandbox=_sandbox(file.sandbox),
        protected=protected,
        others=tuple(others),
        background=tuple(map(_background, file.background)),
        needs=tuple(Need(program=key, package=value) for key, value in file.needs.items()),
        application=file.application,
        content=values,
    )


def _stem(path: Path) -> str:
    return path.stem


def _sandbox(table: SandboxTable) -> SandboxSpec:
    rate_mib, ops = table.disk_mib_per_s, table.disk_ops_per_s
    disk = DiskLimit(
        bytes_per_s=None if rate_mib is None else int(rate_mib * MIB),
        ops_per_s=None if ops is None else int(ops),
    )
    return SandboxSpec(
        limit_bytes=int(table.limit_mib * MIB),
        ample_bytes=int(table.ample_mib * MIB),
        swap_bytes=int(table.swap_mib * MIB),
        compressed_swap=None
        if table.compressed_swap == "none"
        else CompressedSwap(
            kind=table.compressed_swap, compressor=table.compressor or _COMPRESSOR
        ),
        disk=None if disk == DiskLimit() else disk,
    )


def _protected(table: ProtectedTable) -> ProtectedSpec:
    latency_ms = table.slo.latency_ms
    return ProtectedSpec(
        **({"name": table.name} if isinstance(table, ApplicationTable) else {}),
        server=_command(table.server),
        ready=table.ready,
        load=_command(table.load),
        latency=_latency(table.latency),
        slo=Slo(
            quantile=table.slo.quantile,
            latency_ms=None if isinstance(latency_ms, str) else latency_ms,
            calibration_s=table.slo.calibration_s,
        ),
        prepare=table.prepare,
        warm=table.warm,
        workers=int(table.workers),
    )


def _latency(table: LatencyTable) -> LatencyLines:
    return LatencyLines(
        path=table.path,
        pattern=table.pattern,
        separator=table.separator,
        time_unit_s=_UNITS_S[table.time_unit],
        latency_unit_s=_UNITS_S[table.latency_unit],
        failed_words=table.failed_words,
        ok_words=table.ok_words,
        failed_status=table.failed_status,
        realtime=table.clock == "realtime",
        **{name: str(given) for name, given in table.fields.items()},
    )


def _background(table: BackgroundTable) -> BackgroundSpec:
    phases = table.phases or (PhaseTable(start_s=table.start_s or 0.0),)
    units = table.units
    return BackgroundSpec(
        name=table.name,
        command=_command(table),
        units=UnitLines(path=units.path, cumulative=units.kind == "cumulative", name=units.name),
        kind=table.kind,
        phases=tuple(Phase(start_s=phase.start_s, stop_s=phase.stop_s) for phase in phases),
        repeat_s=table.repeat_s,
        floor_bytes=int(table.floor_mib * MIB),
    )


def _command(table: ProgramTable) -> Command:
    return Command(argv=table.command, nice=table.nice, cpus=table.cpus)
