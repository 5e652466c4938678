"""``stallward restore``: undo what a dead daemon left, and start none.

It reads nothing but the journal, needs no disk to be writable, and may be run at any time and
any number of times: while a daemon lives, it is refused. As a process of its own it is started as
``python -m stallward.actuator.guardian.restore_command OPTIONS``.

Exit status: 0 everything is as it was (perhaps there was nothing to do); 1 something could not
be undone and stays in the journal; 2 it could not be tried: a daemon runs, or the configuration
or the journal cannot be used.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stallward.actuator.config.load import load_config
from stallward.actuator.errors import ActuatorError, ConfigError, JournalError
from stallward.actuator.guardian.held_journal import unreadable
from stallward.actuator.ipc.shared_memory import close_journal, in_force, read_touched
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import (
    FileValue,
    Frozen,
    JournalEntry,
    Noted,
    OomScore,
    OwnedFolder,
    OwnedGroup,
    Stopped,
    SwapFile,
)
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.runtime.locks import claim_journal_path, claim_node
from stallward.actuator.runtime.process_start import run_process

EXIT_LEFT: Final = 1
EXIT_NOT_TRIED: Final = 2
WAIT_S: Final = 10.0
"""How long to wait for a loop that lost its guardian and is putting everything back itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """Whose settings are to be put back."""

    config: Path
    """The daemon's TOML file."""
    journal: Path | None = None
    """Its journal, where there is no such file any more; ``config`` is not read then."""
    paths: Paths = DEFAULT_PATHS
    """The kernel's files, if no configuration says where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was found and what became of it."""

    undone: tuple[str, ...]
    """One line for each thing in the journal."""
    problems: tuple[str, ...] = ()
    """What could not be undone."""
    notes: tuple[str, ...] = ()
    """What else there is to say."""


def restore_left(journal_path: Path, paths: Paths, *, wait_s: float) -> Restored:
    """Undo what the journal of a dead daemon lists.

    Raises:
        DaemonError: If a daemon runs.
        JournalError: If the journal cannot be read.
    """
    with contextlib.ExitStack() as claims:
        _hold(claims, claim_journal_path(journal_path, wait_s=wait_s))
        _hold(claims, claim_node(paths))
        journal = Journal(journal_path, paths)
        entries = in_force(journal.load(), read_touched(journal_path))
        problems = restore(entries, paths)
        notes = [unreadable(journal)] if journal.unreadable else []
        if not problems:
            try:
                close_journal(journal)
            except JournalError as error:
                notes.append(str(error))
    undone = tuple(dict.fromkeys(described(entry) for entry in entries))
    return Restored(undone=undone, problems=problems, notes=tuple(notes))


def _hold(claims: contextlib.ExitStack, fd: int) -> None:
    if fd >= 0:
        claims.callback(os.close, fd)


def described(entry: JournalEntry) -> str:
    """What undoing ``entry`` does, in words."""
    match entry:
        case Noted(entry=known):
            text = described(known)
        case FileValue(path=path, value=value):
            text = f"{path} = {value}"
        case Frozen(path=path):
            text = f"thawed {path.parent}"
        case Stopped(pid=pid):
            text = f"continued process {pid}"
        case OomScore(pid=pid, value=value):
            text = f"OOM score of process {pid} = {value}"
        case OwnedGroup(name=name):
            text = f"removed the group {name}"
        case OwnedFolder(path=path) | SwapFile(path=path):
            text = f"removed {path}"
        case _:
            text = str(entry)
    return text


def journal_of(config: Path) -> tuple[Path, Paths]:
    """The journal that a configuration names, and the kernel's files.

    A mistake elsewhere in the file may be why the daemon is dead: only these are needed here.

    Raises:
        ConfigError: If there is no such file or it names no journal.
    """
    try:
        whole = load_config(config)
    except ConfigError:
        try:
            table = tomllib.loads(config.read_text(encoding="utf-8"))
            path, node = Path(table["journal"]["path"]), table.get("node", {})
            roots = {key: Path(node[key]) for key in ("proc", "cgroup", "sys") if key in node}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        else:
            if path.is_absolute():
                return path, replace(DEFAULT_PATHS, **roots)
        raise
    return whole.journal.path, whole.node.paths


def main(options: RestoreOptions) -> int:
    """Restore, print what was done; returns the exit status."""
    try:
        if options.journal is None:
            path, paths = journal_of(options.config)
        else:
            path, paths = options.journal.absolute(), options.paths
        found = restore_left(path, paths, wait_s=WAIT_S)
    except ActuatorError as error:
        sys.stderr.write(f"stallward restore: {error}\n")
        return EXIT_NOT_TRIED
    for line in found.undone or ("nothing to undo",):
        sys.stdout.write(f"{line}\n")
    for line in (*found.problems, *found.notes):
        sys.stderr.write(f"stallward restore: {line}\n")
    return EXIT_LEFT if found.problems else 0


if __name__ == "__main__":
    sys.exit(run_process("restore", RestoreOptions, main))
