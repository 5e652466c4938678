"""Controllers by name: the shipped ones, and the ones that installed packages add."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from stallward.agent.believed_file import installed_points, load_entry
from stallward.agent.by_name import load_named
from stallward.agent.controller import Controller
from stallward.agent.controllers import SHIPPED
from stallward.agent.errors import ControllerError
from stallward.agent.plugin import PLUGIN_GROUP, ControllerEntry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

EXTRA_OF: Final = {
    "border": "research",
    "lend": "research",
    "mpc": "research",
    "storm": "benchmarks",
    "bvt": "papers",
    "dasec": "papers",
    "earlyoom": "papers",
    "heracles": "papers",
    "mat": "papers",
    "nohang": "papers",
    "oomd": "papers",
    "parties": "papers",
    "senpai": "papers",
    "sideloader": "papers",
    "swap-assign": "papers",
    "swap-average": "papers",
    "systemd-oomd": "papers",
    "tmo": "papers",
    "ws-deactivate": "papers",
    "ws-flush": "papers",
    "ws-pressure": "papers",
    "ws-promote": "papers",
}
"""The controllers of the project's other packages, and the extra that installs each."""


def controllers() -> tuple[ControllerEntry, ...]:
    """All controllers in the order of their names, with the ones of installed packages.

    Raises:
        ControllerError: If an entry point cannot be loaded.
    """
    entries = {name: _shipped(name) for name in SHIPPED}
    for name, point in _plugins().items():
        if name not in entries:
            entries[name] = _load(point)
    return tuple(entries[name] for name in sorted(entries))


def make_controller(spec: str) -> Controller:
    """Make a controller from ``NAME`` or ``NAME:key=value,key=value``.

    Raises:
        ControllerError: If the name or a parameter is unknown, a parameter is given twice, or a
            value does not parse.
    """
    name, _, rest = spec.partition(":")
    entry = find_entry(name)
    arguments: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, separator, value = part.partition("=")
        if not separator or key not in entry.parameters:
            parameters = ", ".join(entry.parameters) or "none"
            raise ControllerError(
                f"{name!r} does not take {part!r}.",
                next_step=f"Parameters, as key=value: {parameters}.",
            )
        if key in arguments:
            raise ControllerError(
                f"{name!r} is given {key!r} twice, as {arguments[key]!r} and {value!r}.",
                next_step=f"Leave one out, as in {name}:{key}={value}.",
            )
        arguments[key] = value
    return entry.make(arguments)


def find_entry(name: str) -> ControllerEntry:
    """The controller of a name.

    Raises:
        ControllerError: If there is none, or its entry point cannot be loaded.
        UnbelievedFileError: For root, if others can write the module of its entry point.
    """
    if name in SHIPPED:  # without reading the entry points, which would cost the loop 2 MiB
        return _shipped(name)
    points = _plugins()
    if name not in points and name in EXTRA_OF:
        raise ControllerError(
            f"The controller {name!r} is not installed.",
            next_step=f"Run `pip install 'stallward[{EXTRA_OF[name]}]'`.",
        )
    if name not in points:
        raise ControllerError(
            f"There is no controller {name!r}.",
            next_step=f"Choose one of: {', '.join(sorted({*SHIPPED, *points}))}.",
        )
    return _load(points[name])  # only this one: an error in another must not stop this caller


@functools.cache
def _shipped(name: str) -> ControllerEntry:
    """One of the shipped controllers; its module is imported when it is first asked for."""
    entry: ControllerEntry = load_named(SHIPPED[name])
    return entry


@functools.cache
def _plugins() -> dict[str, EntryPoint]:
    return installed_points(PLUGIN_GROUP)


def _load(point: EntryPoint) -> ControllerEntry:
    return load_entry(point, ControllerEntry, "controller", ControllerError)
