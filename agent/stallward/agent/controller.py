"""The interface of everything that decides, and how a decider is found by name.

To write a controller, copy ``controllers/none.py``, register it with one line, and run
:func:`stallward.agent.testing.check_controller` on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import DEFAULT_FLOOR_BYTES, DesiredState
from stallward.agent.errors import ControllerError
from stallward.agent.sample import Sample

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """What a controller may know about the node before the first tick."""

    zone_limit_bytes: int
    """Memory that the protected application and the background share."""
    slot_names: tuple[str, ...]
    floors_bytes: tuple[int, ...] = ()
    slo_ms: float = 100.0
    tick_period_s: float = 0.1
    seed: int = 0

    def floor(self, slot: int) -> int:
        """The lowest limit allowed for ``slot``."""
        return self.floors_bytes[slot] if slot < len(self.floors_bytes) else DEFAULT_FLOOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A desired state and how it came about."""

    desired: DesiredState
    reason: str = ""
    """One short clause; it ends up in the tick record."""
    action: tuple[int, ...] | None = None
    """The entry of the action table, for controllers that use it."""
    propensity: float | None = None
    """Probability with which a randomised controller chose this; ``None`` if deterministic."""
    score: float | None = None
    """Distance of the observation from the training data, where the policy knows it."""


class Controller(Protocol):
    """Maps a sample (and the observation computed from it) to a desired state.

    Deciding must be pure apart from the controller's own memory: no I/O, no sleeping, no clock
    other than ``sample.time_s``, no randomness other than the context's seed, so that a
    recorded episode replays to the same decisions.
    """

    name: str
    needs_processes: bool
    """Whether samples must carry the background's processes (costs a /proc walk a tick)."""

    def reset(self, context: NodeContext) -> None:
        """Forget everything and prepare for a node."""

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Decide for this tick.

        Args:
            sample: The raw signals.
            observation: Shape ``(OBSERVATION_SIZE,)``, see
            ``stallward.agent.observation.encoder``.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEntry:
    """One row of the registry."""

    name: str
    summary: str
    make: Callable[[Mapping[str, str]], Controller]
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameter name -> what it means, with its unit and default."""


PLUGIN_GROUP: Final = "stallward.controllers"
"""Entry points of this group are :class:`ControllerEntry` objects of installed packages."""

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


MAX_SEED: Final = (1 << 32) - 1


def number(
    arguments: Mapping[str, str],
    key: str,
    default: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
) -> float:
    """Read one numeric argument of a controller spec.

    Raises:
        ControllerError: If it is not a finite number from ``low`` to ``high``.
    """
    text = arguments.get(key)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise ControllerError(
            f"{key}={text!r} is not a number.", next_step=f"Try {key}={default}."
        )
    if not low <= value <= high:
        raise ControllerError(f"{key}={value:g} is outside {low:g} to {high:g}.")
    return value
