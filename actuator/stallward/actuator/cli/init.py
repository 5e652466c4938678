"""``stallward init``: what runs here, and a configuration to begin with."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import DEFAULT_CONFIG
from stallward.actuator.config.first_config import ChosenWorkload, first_config
from stallward.actuator.config.load import parse_config
from stallward.actuator.doctor.doctor import examine
from stallward.actuator.doctor.survey import Survey, Workload, survey
from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.actuator.runtime.private_files import replace_file
from stallward.agent.errors import UsageError
from stallward.agent.registry import make_controller

_MOST_LISTED: Final = 12
_MIB: Final = 1 << 20
_SYSTEM: Final = re.compile(r"(.*/)?(init\.scope|(systemd-|dbus)[^/]*)")
"""Groups for which other programs wait: whoever logs waits for systemd-journald."""


def init(
    protect: Annotated[
        list[str] | None,
        typer.Option(help="An application: a group, or a program in none; may be repeated."),
    ] = None,
    background: Annotated[
        list[str] | None, typer.Option(help="What is held back for it; may be repeated.")
    ] = None,
    target_ms: Annotated[
        list[float] | None,
        typer.Option(
            min=0.01,
            max=600_000.0,
            help="The p95 that it must keep [100]; once for all, or for each --protect.",
        ),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Its access log [one that it has open].")
    ] = None,
    act: Annotated[
        bool, typer.Option("--act", help="Let the daemon act, not only say what it would do.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The configuration to write.")] = DEFAULT_CONFIG,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Look at this node, and write a configuration to begin with.

    Without --protect it lists what runs here, with memory, ports and logs, and changes nothing.
    """
    found = survey(DEFAULT_PATHS)
    if not protect:
        _list(found)
        return
    applications = _applications(found, protect, target_ms or [100.0], log)
    others = [_chosen(found, name) for name in background or ()]
    if not others:
        raise UsageError(
            "No --background is named, so nothing could be held back.",
            next_step="`stallward init` lists what runs here.",
        )
    if out.exists() and not force:
        raise UsageError(f"{out} is there.", next_step="Give --out, or --force to replace it.")
    slots = [_as_chosen(one) for one in others]
    text = first_config(applications, slots, acts=act)
    config = parse_config(text)
    _write(out, text)
    output.line(f"wrote {out}")
    for one in (*applications, *slots):
        _say_what_else(found, one)
    diagnosis = examine(config.node.paths, config, make_controller)
    for obstacle in diagnosis.obstacles:
        output.line(f"cannot protect: {obstacle}")
    if diagnosis.protectable:
        output.line(f"next: stallward serve --config {out}")
        output.line(f"or, for systemd to keep it: stallward unit --config {out} --install")
    else:
        output.line(f"next: stallward doctor --config {out}")
        raise typer.Exit(1)


def _applications(
    found: Survey, names: Sequence[str], targets_ms: Sequence[float], log: Path | None
) -> list[ChosenWorkload]:
    """What is to be protected, each with its target and its log."""
    if len(targets_ms) not in {1, len(names)}:
        raise UsageError(
            f"{len(names)} applications have {len(targets_ms)} targets.",
            next_step="Give --target-ms once, or once for each --protect, in the same order.",
        )
    if log is not None and len(names) > 1:
        raise UsageError(
            "--log is of one application, and several are protected.",
            next_step="Leave it out, and name the logs in the file that is written.",
        )
    each_ms = [*targets_ms] * len(names) if len(targets_ms) == 1 else targets_ms
    chosen = []
    for name, one_ms in zip(names, each_ms, strict=True):
        workload = _chosen(found, name)
        own_log = log or next(iter(sorted(workload.logs)), None)
        chosen.append(replace(_as_chosen(workload), target_ms=one_ms, log=own_log))
    return chosen


def _say_what_else(found: Survey, one: ChosenWorkload) -> None:
    """Say what else the pattern of a program finds: it would be protected or held back as well."""
    finds = () if one.is_group else found.found_by(one.pattern)
    others = {other.name for other in finds if other.is_group or other.name != one.name}
    if others:
        output.line(f"careful: the pattern of {one.name} also finds {_first(others, 3)};")
        output.line("  write more of its command line there, or its user")


def _write(path: Path, text: str) -> None:
    """Write the configuration as a whole, or leave what was there.

    Raises:
        UsageError: If it cannot be written.
    """
    whole = path.resolve()  # a link stays one
    made = not whole.exists()
    try:
        whole.parent.mkdir(parents=True, exist_ok=True)
        if made:
            whole.touch()
        if not whole.is_file():  # such as /dev/stdout
            whole.write_text(text, encoding="utf-8")
            return
        before = whole.stat()
        replace_file(whole, text.encode())
        _give_like(whole, before)
    except OSError as error:
        if made:
            with contextlib.suppress(OSError):
                whole.unlink(missing_ok=True)
        raise UsageError(
            f"{path} cannot be written ({error.strerror}).", next_step="Give another --out."
        ) from error


def _give_like(path: Path, status: os.stat_result) -> None:
    """Give a file the owner, if this user may, and the mode of another one."""
    with contextlib.suppress(PermissionError):
        os.chown(path, status.st_uid, status.st_gid)
    path.chmod(status.st_mode & 0o777)


def _list(found: Survey) -> None:
    """Print what runs, and the command that would protect the largest service."""
    output.line(f"node: {found.kind} ({found.why.rstrip('.')})")
    shown = found.workloads[:_MOST_LISTED]
    if not shown:
        output.line("nothing here listens on a port or holds 8 MiB")
        return
    output.line()
    output.table(
        ("name", "MiB", "processes", "programs", "listens on", "access log"), [*map(_row, shown)]
    )
    if len(found.workloads) > len(shown):
        output.line(f"and {len(found.workloads) - len(shown)} more")
    services = [one for one in found.workloads if one.serves]
    others = [one for one in found.workloads if not (one.serves or _SYSTEM.fullmatch(one.name))]
    protect = services[0].name if services else "NAME"
    held = others[0].name if others else "NAME"
    output.line()
    output.line("next, for example:")
    # Anyone may name a program, and the line is there to be pasted into a shell.
    names = f"--protect {shlex.quote(protect)} --background {shlex.quote(held)}"
    output.line(f"  stallward init {names} --target-ms 50")


def _row(one: Workload) -> tuple[str, ...]:
    return (
        one.name,
        str(one.memory_bytes // _MIB),
        str(one.processes),
        _first(one.programs, 2),
        _first(one.ports, 4),
        _first(one.logs, 1),
    )


def _first(values: Set[str] | Set[int] | Set[Path], most: int) -> str:
    """Name the first ``most`` of them, and say how many more there are."""
    names = [str(one) for one in sorted(values)]
    more = "" if len(names) <= most else f" and {len(names) - most} more"
    return ", ".join(names[:most]) + more


def _chosen(found: Survey, name: str) -> Workload:
    meant = found.find(name)
    if len(meant) != 1:
        which = " or ".join(one.name for one in meant)
        what = f"may be {which}" if which else "is nothing that runs here and holds memory"
        raise UsageError(f"{name!r} {what}.", next_step="`stallward init` lists the names.")
    return meant[0]


def _as_chosen(one: Workload) -> ChosenWorkload:
    return ChosenWorkload(name=one.name, is_group=one.is_group, memory_bytes=one.memory_bytes)
