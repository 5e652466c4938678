"""How the configuration names a process tree, where a service has no cgroup of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from stallward.actuator.errors import ConfigError

# ---------- Regular expressions that are searched for in what others write
# Python's engine goes back over the text for every choice in a pattern: a command line of 4 kB that
# was made for a pattern with two wildcards takes it seconds, in which no thread runs. RE2 takes a
# time that grows with the length alone, lets other threads run, and bounds its memory
# (https://github.com/google/re2/wiki/WhyRE2). It has neither look-around nor back-references.

_PATTERN_BYTES: Final = 1 << 20
"""The memory that one pattern may take, together with what its searches remember."""


class CommandPattern:
    """A pattern that is searched for in command lines; a dot also matches a line break.

    Args:
        pattern: The regular expression.

    Raises:
        ValueError: If it is none.
        ConfigError: If RE2 is not installed.
    """

    def __init__(self, pattern: str) -> None:
        re2 = _import()
        options = re2.Options()
        options.dot_nl = True
        options.log_errors = False
        options.max_mem = _PATTERN_BYTES
        try:
            self._search = re2.compile(pattern, options).search
        except (re2.error, UnicodeEncodeError) as error:
            raise ValueError(_said(error)) from error

    def found_in(self, line: str) -> bool:
        """Whether the pattern matches anywhere in a line."""
        return self._search(line) is not None


def _said(error: Exception) -> str:
    """What RE2 says, which is bytes."""
    said = error.args[0] if error.args else error
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def _import() -> Any:
    try:
        import re2  # noqa: PLC0415 - it takes 5 MiB, and only `command` needs it
    except ImportError as error:
        raise ConfigError(
            "Processes are named by `command`, and google-re2 is not installed.",
            next_step="Install stallward[node].",
        ) from error
    return re2


_MOST_PID: Final = 1 << 22
"""The largest pid_max the kernel takes (PID_MAX_LIMIT)."""
_WAYS: Final = ("pidfile", "pids", "command")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesConfig:
    """The root processes of one tree, given in exactly one of several ways."""

    pidfile: Path | None = None
    """A file with the pid of the root; it is read again when it changes."""
    pids: tuple[int, ...] = ()
    """The pids of the roots when the daemon starts; for short-lived uses."""
    command: str | None = None
    """A regular expression of RE2 that is searched for in the whole command line, its arguments joined
    by spaces; every process that matches is a root, also one that starts later."""
    user: str | None = None
    """With ``command``: the name or number of the user that the processes must run as."""


class NamesTarget(Protocol):
    """A table that names a target."""

    @property
    def group(self) -> str | None:
        """A group."""

    @property
    def processes(self) -> ProcessesConfig | None:
        """A process tree."""

    @property
    def pod(self) -> object | None:
        """A pod."""


def check_target(place: str, table: NamesTarget) -> None:
    """Check that a table names one target, and processes in one way only.

    Args:
        place: The table's place in the file, e.g. ``background[0]``.
        table: The table.

    Raises:
        ConfigError: If it names several targets or none, or processes in several ways.
    """
    named = [key for key in ("group", "processes", "pod") if getattr(table, key) is not None]
    if len(named) != 1:
        many = " and ".join(named) if named else "neither group nor processes nor pod"
        raise ConfigError(
            f"config.{place} names {many}.",
            next_step=f'Give {place} one of group = "NAME", '
            'processes = { pidfile = "/run/NAME.pid" } and pod = { selector = "app=NAME" }.',
        )
    if table.processes is not None:
        _check(f"{place}.processes", table.processes)


def _check(place: str, processes: ProcessesConfig) -> None:
    given = [way for way in _WAYS if getattr(processes, way) not in {None, ()}]
    if len(given) != 1:
        said = " and ".join(given) or "nothing"
        raise ConfigError(
            f"config.{place} says {said}.", next_step=f"Give exactly one of {', '.join(_WAYS)}."
        )
    if processes.pidfile is not None and not processes.pidfile.is_absolute():
        raise ConfigError(
            f"config.{place}.pidfile is {str(processes.pidfile)!r}, a relative path.",
            next_step="Write the whole path, from /.",
        )
    for i, pid in enumerate(processes.pids):
        if not 2 <= pid <= _MOST_PID:
            raise ConfigError(f"config.{place}.pids[{i}] is {pid}, outside 2..{_MOST_PID}.")
    if processes.command is not None:
        _check_pattern(f"{place}.command", processes.command)
    elif processes.user is not None:
        raise ConfigError(
            f"config.{place}.user goes with command only.",
            next_step="Remove it: a pid needs no user.",
        )
    if processes.user is not None and not processes.user.strip():
        raise ConfigError(f"config.{place}.user is empty.")


def _check_pattern(place: str, pattern: str) -> None:
    try:
        matches_all = CommandPattern(pattern).found_in("")
    except ValueError as error:
        raise ConfigError(
            f"config.{place} is {pattern!r}, not a regular expression of RE2: {error}.",
            next_step="RE2 has neither look-around, (?=...), nor back-references.",
        ) from error
    if matches_all:
        raise ConfigError(
            f"config.{place} is {pattern!r}, which every process matches.",
            next_step="Write what only this program's command line has, e.g. ^/usr/bin/batch .",
        )
