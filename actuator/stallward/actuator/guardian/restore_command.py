"""``stallward restore``: undo the changes of a dead daemon without starting a new one.

It only needs the journal, and no disk that can be written. It may be run at any time and any
number of times: while a daemon runs, it refuses. It is started as a process by
``python -m stallward.actuator.guardian.restore_command OPTIONS``.

Exit status: 0 if everything is as it was, also if there was nothing to undo; 1 if something could
not be undone and stays in the journal; 2 if it could not be tried, because a daemon runs or the
configuration or the journal cannot be used.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    GroupThreads,
    JournalEntry,
    KeyedValue,
    Noted,
    OomScore,
    OwnedFolder,
    OwnedGroup,
    Stopped,
    SwapFile,
    ThreadValue,
    ZramDevice,
)
from stallward.actuator.journal.restore import Unrestored, by_entry, left_alone, restore_patiently
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.runtime.locks import claim_journal_path, claim_node
from stallward.actuator.runtime.process_start import run_process
from stallward.agent.printable import printable
from stallward.agent.schema.toml_file import read_toml_file

EXIT_LEFT: Final = 1
EXIT_NOT_TRIED: Final = 2
WAIT_S: Final = 10.0
"""How long to wait for a loop that lost its guardian and is restoring everything itself."""


PATIENCE_S: Final = 5.0
"""How long what cannot be undone is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """The daemon whose changes are undone."""

    config: Path
    """The daemon's TOML file."""
    journal: Path | None = None
    """The daemon's journal, if its TOML file is gone; then ``config`` is not read."""
    paths: Paths = DEFAULT_PATHS
    """The kernel's files; used only with ``journal``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of a restore, as lines to print."""

    undone: tuple[str, ...]
    """One line for each entry that was undone."""
    problems: tuple[str, ...] = ()
    """One line for each entry that could not be undone."""
    notes: tuple[str, ...] = ()
    """Remarks about the journal itself."""
    left: Mapping[JournalEntry, Unrestored] = field(default_factory=dict)
    """The entries that were not undone."""


NOTHING: Final = Restored(undone=())
"""Before the first try."""


def restore_left(
    journal_path: Path,
    paths: Paths,
    *,
    wait_s: float,
    patience_s: float = 0.0,
    before: Restored = NOTHING,
) -> Restored:
    """Undo the entries in the journal of a dead daemon.

    Args:
        journal_path: The daemon's journal.
        paths: The kernel's files.
        wait_s: How long to wait for the end of a daemon that still runs.
        patience_s: How long what fails is tried again.
        before: The result of an earlier try. An entry on which that is still blocked waits for its
            end: a further try would take a further thread.

    Raises:
        DaemonError: If a daemon runs.
        JournalError: If the journal cannot be read.
    """
    with contextlib.ExitStack() as claims:
        for fd in (claim_journal_path(journal_path, wait_s=wait_s), *claim_node(paths)):
            if fd >= 0:
                claims.callback(os.close, fd)
        journal = Journal(journal_path, paths)
        entries = in_force(journal.load(), read_touched(journal_path))
        alone = left_alone(entries)
        left = {e: why for e, why in before.left.items() if e in entries and why.goes_on()}
        due = [entry for entry in entries if entry not in left]
        left |= by_entry(restore_patiently(lambda: due, paths, patience_s=patience_s))
        problems = tuple(dict.fromkeys(map(str, left.values())))
        notes = [unreadable(journal)] if journal.unreadable else []
        if not problems:
            try:
                close_journal(journal)
            except JournalError as error:
                notes.append(str(error))
    undone = tuple(
        dict.fromkeys(described(e) for e in entries if e not in left and _path_of(e) not in alone)
    )
    notes += [
        f"{path} is {now} now, set by another program; left as it is."
        for path, now in alone.items()
    ]
    return Restored(undone=undone, problems=problems, notes=tuple(notes), left=left)


def _path_of(entry: JournalEntry) -> Path | None:
    inner = entry.entry if isinstance(entry, Noted) else entry
    return inner.path if isinstance(inner, FileValue) else None


def described(entry: JournalEntry) -> str:
    """Describe in words what undoing ``entry`` does."""
    match entry:
        case Noted(entry=inner):
            text = described(inner)
        case FileValue(path=path, value=value):
            text = f"{path} = {value}"
        case KeyedValue(path=path, key=key, value=value):
            text = f"{path} = {key} {value}"
        case ThreadValue(what=what, tid=tid, value=value):
            text = f"{what} of thread {tid} = {value}"
        case GroupThreads(what=what, folder=folder, value=value):
            text = f"{what} of the threads in {folder} = {value}"
        case Frozen(path=path):
            text = f"thawed {path.parent}"
        case Stopped(pid=pid):
            text = f"continued process {pid}"
        case OomScore(pid=pid, value=value):
            text = f"OOM score of process {pid} = {value}"
        case OwnedGroup(name=name):
            text = f"removed the group {name}"
        case OwnedFolder(path=path) | SwapFile(path=path) | ZramDevice(path=path):
            text = f"removed {path}"
    return text


def journal_of(config: Path) -> tuple[Path, Paths]:
    """The path of the journal and the kernel's files, as a configuration file gives them.

    Mistakes elsewhere in the file do not matter: one may be the cause of the daemon's death.

    Raises:
        ConfigError: If the file cannot be read or names no journal.
    """
    try:
        parsed = load_config(config)
    except ConfigError:
        try:
            table = read_toml_file(config)
            path, node = Path(table["journal"]["path"]), table.get("node", {})
            roots = {key: Path(node[key]) for key in ("proc", "cgroup", "sys") if key in node}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        else:
            if path.is_absolute():
                return path, replace(DEFAULT_PATHS, **roots)
        raise
    return parsed.journal.path, parsed.node.paths


def main(options: RestoreOptions) -> int:
    """Restore and print what was done; returns the exit status."""
    try:
        if options.journal is None:
            path, paths = journal_of(options.config)
        else:
            path, paths = options.journal.absolute(), options.paths
        restored = restore_left(path, paths, wait_s=WAIT_S, patience_s=PATIENCE_S)
    except ActuatorError as error:
        sys.stderr.write(f"stallward restore: {error}\n")
        return EXIT_NOT_TRIED
    nothing = () if restored.problems else ("nothing to undo",)
    for line in restored.undone or nothing:
        sys.stdout.write(f"{printable(line)}\n")
    for line in (*restored.problems, *restored.notes):
        sys.stderr.write(f"stallward restore: {printable(line)}\n")
    return EXIT_LEFT if restored.problems else 0


if __name__ == "__main__":
    sys.exit(run_process("restore", RestoreOptions, main))
