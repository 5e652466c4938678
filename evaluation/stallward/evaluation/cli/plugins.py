"""Commands of other packages: found by entry points, loaded only when they are called or listed.

A package names its commands in the group ``stallward.commands``: ``plot`` is ``stallward plot``,
``describe.trace`` is ``stallward describe trace``. The value of the entry point is a
``typer.Typer`` with ``add_completion=False`` and ``rich_markup_mode=None``. If it has one command,
that is the command; if it has several, they become its subcommands. If it has the class
:class:`PluggedGroup` and the name of its command, other packages can add subcommands. A package
cannot replace a command of the core.

The core's commands are found without reading the entry points, which takes most of 0.1 s where
many packages are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, TypeVar

import typer
from typer.core import TyperGroup

from stallward.agent.errors import UsageError

COMMAND_GROUP: Final = "stallward.commands"
EXTRA_OF: Final = {
    "workingset": "lens",
    "trace": "lens",
    "plot": "lens",
    "resident": "lens",
    "profile": "lens",
    "describe.trace": "lens",
    "search": "research",
    "oracle": "research",
    "border": "research",
    "capacity": "research",
    "fidelity": "research",
    "verdict": "research",
    "ope": "research",
    "explain": "research",
    "minari": "research",
    "experiment": "papers",
    "ctl.fleet": "fleet",
    "ctl.rollout": "fleet",
    "ctl.recall": "fleet",
    "bench": "benchmarks",
}
"""The commands of the project's other packages, and the extra that installs each."""

_TOP: Final = "stallward"
_ANYTHING: Final = {"allow_extra_args": True, "ignore_unknown_options": True}

_C = TypeVar("_C")


class _Commands(MutableMapping[str, _C], Generic[_C]):
    """The commands of a group by their names; those of packages are loaded when asked for.

    Args:
        own: The core's commands, with a stand-in for each of the project's other packages.
        points: Finds the entry points of this group, by the names of their commands.
        load: Makes the command of an entry point.
        is_stand_in: Whether one of ``own``, by its name, is a stand-in.
    """

    def __init__(
        self,
        own: MutableMapping[str, _C],
        points: Callable[[], dict[str, EntryPoint]],
        load: Callable[[EntryPoint], _C],
        is_stand_in: Callable[[str], bool],
    ) -> None:
        self._own = own
        self._points = points
        self._load = load
        self._is_stand_in = is_stand_in
        self._loaded: dict[str, _C] = {}

    def __getitem__(self, name: str) -> _C:
        if name in self._own and not self._is_stand_in(name):
            return self._own[name]
        if name not in self._loaded:
            point = self._points().get(name)
            self._loaded[name] = self._own[name] if point is None else self._load(point)
        return self._loaded[name]

    def __setitem__(self, name: str, command: _C) -> None:
        self._own[name] = command

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from sorted(self._points().keys() - self._own.keys())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class PluggedGroup(TyperGroup):
    """A group of commands to which installed packages add theirs."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        prefix = "" if self.name in {None, _TOP} else f"{self.name}."
        self.commands = _Commands(
            self.commands,
            points=lambda: _points_of(prefix),
            load=lambda point: typer.main.get_command(_loaded(point)),
            is_stand_in=lambda name: f"{prefix}{name}" in EXTRA_OF,
        )

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, of which none is loaded for it."""
        return list(self.commands)


def stand_in(group: typer.Typer, *paths: str) -> None:
    """Keep the places of other packages' commands, and say what to install if they are called.

    Args:
        group: The group that has them.
        paths: The commands, as :data:`EXTRA_OF` names them.
    """
    for path in paths:
        words = f"{_TOP} {path.replace('.', ' ')}"
        missing = UsageError(
            f"`{words}` is not installed.",
            next_step=f"Run `pip install 'stallward[{EXTRA_OF[path]}]'`.",
        )
        _refusing(group, path.rpartition(".")[2], missing, hidden=True)


def _refusing(
    group: typer.Typer, name: str, error: UsageError, *, hidden: bool = False, text: str = ""
) -> None:
    """Add a command that raises an error, whatever it is called with."""

    def refuse(_context: typer.Context) -> None:
        raise error

    group.command(
        name, help=text, hidden=hidden, add_help_option=False, context_settings=_ANYTHING
    )(refuse)


@cache
def all_points() -> tuple[EntryPoint, ...]:
    """The entry points of installed packages; read once."""
    return tuple(entry_points(group=COMMAND_GROUP))


def _points_of(prefix: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by the names of their commands."""
    found = {
        point.name.removeprefix(prefix): point
        for point in all_points()
        if point.name.startswith(prefix)
    }
    return {name: point for name, point in found.items() if "." not in name}


def _loaded(point: EntryPoint) -> typer.Typer:
    """What a package offers; if that cannot be loaded, a command that says so."""
    try:
        app = point.load()
    except Exception as error:
        return _broken(point, f"cannot be loaded: {error}")
    if not isinstance(app, typer.Typer):
        return _broken(point, "is no typer.Typer")
    return app


def _broken(point: EntryPoint, what: str) -> typer.Typer:
    package = "its package" if point.dist is None else point.dist.name
    error = UsageError(
        f"`{_TOP} {point.name.replace('.', ' ')}` ({point.value}) {what.rstrip('.')}.",
        next_step=f"Install another version of {package}, or remove it.",
    )
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    _refusing(app, point.name.rpartition(".")[2], error, text="It cannot be loaded.")
    return app
