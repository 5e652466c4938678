"""Controllers by name: the shipped ones, and those of entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stallward.agent.controller import Controller
from stallward.agent.errors import ControllerError
from stallward.agent.plugin import PLUGIN_GROUP, ControllerEntry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


_REGISTRY: Final[dict[str, ControllerEntry]] = {}


def register(entry: ControllerEntry) -> None:
    """Add a controller to the registry.

    Raises:
        ControllerError: If the name is taken.
    """
    if entry.name in _REGISTRY:
        raise ControllerError(f"A controller named {entry.name!r} is registered already.")
    _REGISTRY[entry.name] = entry


def controllers() -> tuple[ControllerEntry, ...]:
    """All registered controllers, by name: the shipped ones and installed plugins."""
    _load()
    return tuple(_REGISTRY[name] for name in sorted(_REGISTRY))


def _load(name: str | None = None) -> None:
    """Register the shipped controllers and the plugin ``name`` (all plugins by default)."""
    import stallward.agent.controllers  # noqa: F401, PLC0415 - registers the shipped ones

    if name in _REGISTRY:
        return
    for point in _plugins():
        if point.name not in _REGISTRY and name in (None, point.name):
            try:
                register(point.load())
            except ImportError as error:
                raise ControllerError(
                    f"The controller {point.name!r} ({point.value}) cannot be imported: {error}.",
                    next_step="Install what it needs, or remove the package that names it.",
                ) from error


def _plugins() -> EntryPoints:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 2 MiB that the loop can spare

    return entry_points(group=PLUGIN_GROUP)


def make_controller(spec: str) -> Controller:
    """Make a controller from ``NAME`` or ``NAME:key=value,key=value``.

    Raises:
        ControllerError: If the name or a parameter is unknown, or a value does not parse.
    """
    name, _, rest = spec.partition(":")
    _load(name)  # only what is asked for: another plugin's fault is not this caller's
    if name not in _REGISTRY:
        known = {*_REGISTRY, *(point.name for point in _plugins())}
        raise ControllerError(
            f"There is no controller {name!r}.",
            next_step=f"Choose one of: {', '.join(sorted(known))}.",
        )
    entry = _REGISTRY[name]
    arguments: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, separator, value = part.partition("=")
        if not separator or key not in entry.parameters:
            parameters = ", ".join(entry.parameters) or "none"
            raise ControllerError(
                f"{name!r} does not take {part!r}.",
                next_step=f"Parameters, as key=value: {parameters}.",
            )
        arguments[key] = value
    return entry.make(arguments)
