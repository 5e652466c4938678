"""``stallward doctor``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Final

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, check_config
from stallward.actuator.config.load import load_config
from stallward.actuator.config.profiles import with_profiles
from stallward.actuator.doctor.doctor import examine
from stallward.actuator.doctor.finding import Finding
from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.agent.registry import make_controller

COLUMNS: Final = 100
_INDENT: Final = 10
_FEW: Final = 2
"""So many levers that are not here are listed one by one; of more their number is given."""


def finding_lines(findings: Iterable[Finding], *, everything: bool = False) -> list[str]:
    """Say what does not work, each with what to do about it, in lines of at most 100 columns.

    A lever that the node lacks is not here, which is no failure: they are only counted.

    Args:
        findings: The findings.
        everything: Whether to list what works as well, and each lever that is not here.
    """
    shown, not_here = [], []
    for one in findings:
        if one.area == "lever" and one.state == "missing":
            not_here.append(one)
        elif everything or one.state != "works":
            shown.append(one)
    lines = [line for one in shown for line in _lines(one)]
    if everything or len(not_here) <= _FEW:
        return [*lines, *(line for one in not_here for line in _lines(one))]
    kinds = dict.fromkeys(one.name.partition(":")[0] for one in not_here)
    text = f"{len(not_here)} levers ({', '.join(kinds)}); --all says why"
    return [*lines, *_folded("not here", text)]


def _lines(one: Finding) -> list[str]:
    """The state, whose it is, why, and on a line of its own what to do."""
    state = "not here" if one.area == "lever" and one.state == "missing" else one.state
    why = one.why.removeprefix(f"{one.name}: ")
    lines = _folded(state, f"{one.name}: {why}" if why else one.name)
    if one.next_step and one.state != "works":
        lines += _folded("", f"-> {one.next_step}")
    return lines


def _folded(head: str, text: str) -> list[str]:
    first, *others = wrap(text, COLUMNS - _INDENT, break_on_hyphens=False) or [""]
    return [f"{head:<{_INDENT}}{first}".rstrip(), *(" " * _INDENT + other for other in others)]


def doctor(
    config: Annotated[
        Path | None, typer.Option(help="A daemon's TOML file: look at what it names as well.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also list what works.")] = False,
    as_json: Json = False,
) -> None:
    """Say what works on this machine and what does not.

    Nothing is changed. Exit code 0: an application can be protected here; 1: it cannot, and the
    last lines say why.
    """
    if config is not None:
        check_config(config)
    loaded = None if config is None else with_profiles(load_config(config))
    paths = DEFAULT_PATHS if loaded is None else loaded.node.paths
    diagnosis = examine(paths, loaded, make_controller)
    if as_json:
        output.print_json({**asdict(diagnosis), "protectable": diagnosis.protectable})
        raise typer.Exit(0 if diagnosis.protectable else 1)
    output.line(f"node: {diagnosis.kind} ({diagnosis.why.rstrip('.')})")
    works = sum(f.state == "works" for f in diagnosis.findings)
    output.line(f"{works} of {len(diagnosis.findings)} things looked at work")
    output.line()
    for text in finding_lines(diagnosis.findings, everything=everything):
        output.line(text)
    output.line()
    for obstacle in diagnosis.obstacles:
        output.line(f"cannot protect: {obstacle}")
    if diagnosis.protectable:
        output.line("an application can be protected here")
    raise typer.Exit(0 if diagnosis.protectable else 1)
