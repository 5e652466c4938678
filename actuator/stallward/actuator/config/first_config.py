"""The configuration that a node begins with: few lines, each with its reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.agent.schema.write import toml_literal

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_MIB: Final = 1 << 20
_NEVER: Final = "# never paused, limited, stopped or killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenWorkload:
    """A group, or the processes of a program, that was chosen."""

    name: str
    is_group: bool
    memory_bytes: int
    target_ms: float = 100.0
    """The latency target, of an application."""
    log: Path | None = None
    """An access log, of an application; ``None`` if none was found."""

    @property
    def slot_name(self) -> str:
        """A short name, for messages."""
        last = self.name.rpartition("/")[2].removesuffix(".service").removesuffix(".scope")
        return _UNSAFE.sub("-", last).strip("-.") or "slot"

    @property
    def pattern(self) -> str:
        """What finds the command lines of a program."""
        # Behind the name come arguments, or in a title that the program gave itself a colon.
        return rf"(^|/){re.escape(self.name)}([\s:]|$)"

    @property
    def target(self) -> str:
        """The line that names it."""
        if self.is_group:
            return f"group = {toml_text(self.name)}"
        return f"processes = {{ command = {toml_text(self.pattern)} }}"


def toml_text(value: str) -> str:
    """A text as TOML has it: literal where that is possible, since units have backslashes."""
    if "'" not in value and value.isprintable():
        return f"'{value}'"
    return toml_literal(value)


def first_config(
    applications: Sequence[ChosenWorkload],
    background: Sequence[ChosenWorkload],
    *,
    acts: bool,
) -> str:
    """The text of a configuration.

    Args:
        applications: What is protected, at least one.
        background: What is held back for it.
        acts: Whether the daemon acts; otherwise it only says what it would do.
    """
    several = len(applications) > 1
    lines = ["# Made by `stallward init`. Every key is in docs/reference/config.md."]
    taken: set[str] = set()  # no two of them may be called the same
    for name, one in _named(applications, taken):
        here = f"{one.target}  # {one.memory_bytes // _MIB} MiB now"
        if several:
            lines += [
                f"[[protected]]  {_NEVER}",
                f"name = {toml_text(name)}",
                here,
                f"slo_ms = {one.target_ms:g}  # the p95 that it must keep",
                *_latency(one, "protected.latency"),
                "",
            ]
        else:
            lines += [f"[protected]  {_NEVER}", here, ""]
    for name, one in _named(background, taken if several else set()):
        lines += [
            "[[background]]  # held back while the application needs its memory",
            f"name = {toml_text(name)}",
            f"{one.target}  # {one.memory_bytes // _MIB} MiB now",
            "",
        ]
    if not several:
        target_ms = applications[0].target_ms
        lines += ["[control]", f"slo_ms = {target_ms:g}  # the p95 that the application must keep"]
    if not acts:
        lines += [
            *(["[control]"] if several else []),
            "dry_run = true  # it only says what it would do; delete this to let it act",
            "",
            "[record]  # at most 1 GiB, from which `stallward assess` says whether it would help",
            "dir = '/var/lib/stallward/recording'",
        ]
    if not several:
        lines += [
            "",
            "# Without latencies only stalls on memory show how the application is doing.",
            *_latency(applications[0], "latency"),
        ]
    return "\n".join([*lines, ""])


def _named(
    chosen: Sequence[ChosenWorkload], taken: set[str]
) -> Iterator[tuple[str, ChosenWorkload]]:
    """Each with a name that is not taken yet, and is then."""
    for one in chosen:
        name = one.slot_name
        while name in taken:
            name += "-2"
        taken.add(name)
        yield name, one


def _latency(one: ChosenWorkload, table: str) -> list[str]:
    """The lines that say how an application's latencies could be read."""
    if one.log is None:
        return ["# docs/reference/latency.md has the sources of common servers."]
    return [
        f"# [{table}]  # docs/reference/latency.md says how to name the field of the time",
        "# source = 'lines'",
        f"# path = {toml_text(str(one.log))}",
    ]
