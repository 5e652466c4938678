"""The configuration that a node begins with: few lines, each with its reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.agent.schema.write import toml_literal

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenWorkload:
    """A group, or the processes of a program, that was chosen."""

    name: str
    is_group: bool
    memory_bytes: int

    @property
    def slot_name(self) -> str:
        """A short name, for messages."""
        last = self.name.rpartition("/")[2].removesuffix(".service").removesuffix(".scope")
        return _UNSAFE.sub("-", last).strip("-.") or "slot"

    @property
    def target(self) -> str:
        """The line that names it."""
        if self.is_group:
            return f"group = {toml_text(self.name)}"
        pattern = rf"(^|/){re.escape(self.name)}\b"
        return f"processes = {{ command = {toml_text(pattern)} }}"


def toml_text(value: str) -> str:
    """A text as TOML has it: literal where that is possible, since units have backslashes."""
    if "'" not in value and value.isprintable():
        return f"'{value}'"
    return toml_literal(value)


def first_config(
    protected: ChosenWorkload,
    background: Sequence[ChosenWorkload],
    *,
    target_ms: float,
    log: Path | None,
    acts: bool,
) -> str:
    """The text of a configuration.

    Args:
        protected: The application.
        background: What is held back for it.
        target_ms: The latency target of the application.
        log: An access log of the application, if one was found.
        acts: Whether the daemon acts; otherwise it only says what it would do.
    """
    lines = [
        "# Made by `stallward init`. Every key is in docs/reference/config.md.",
        "[protected]  # never paused, limited, stopped or killed",
        f"{protected.target}  # {protected.memory_bytes // _MIB} MiB now",
    ]
    names: set[str] = set()
    for one in background:
        name = one.slot_name
        while name in names:
            name += "-2"
        names.add(name)
        lines += [
            "",
            "[[background]]  # held back while the application needs its memory",
            f"name = {toml_text(name)}",
            f"{one.target}  # {one.memory_bytes // _MIB} MiB now",
        ]
    lines += ["", "[control]", f"slo_ms = {target_ms:g}  # the p95 that the application must keep"]
    if not acts:
        lines += [
            "dry_run = true  # it only says what it would do; delete this to let it act",
            "",
            "[record]  # at most 1 GiB, from which `stallward assess` says whether it would help",
            "dir = '/var/lib/stallward/recording'",
        ]
    lines += ["", "# Without latencies only stalls on memory show how the application is doing."]
    if log is not None:
        lines += [
            "# [latency]  # docs/reference/latency.md says how to name the field of the time",
            "# source = 'lines'",
            f"# path = {toml_text(str(log))}",
        ]
    else:
        lines.append("# docs/reference/latency.md has the sources of common servers.")
    return "\n".join([*lines, ""])
