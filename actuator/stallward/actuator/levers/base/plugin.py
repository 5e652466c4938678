"""Levers of other packages: found by entry points, and loaded only where they are named.

The daemon runs as root. It imports the levers that its configuration names, in ``control.levers``
or by a controller that needs them, and no others. They come from its own environment, from files
that nobody but root can write. What they note in the journal the core undoes, so that restoring
needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stallward.actuator.errors import LeverError
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.levers.base.lever import Lever, Members
from stallward.agent.believed_file import installed_points, load_entry
from stallward.agent.controller import Need
from stallward.agent.registry import find_entry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

LEVER_GROUP: Final = "stallward.levers"
"""Entry points of this group are :class:`LeverEntry` objects of installed packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLever:
    """A lever of one of the project's other packages."""

    extra: str
    """The extra that installs it."""
    field: str
    """The field of the desired state that it puts into force."""
    needs: tuple[Need, ...]
    """The needs of controllers that nothing else meets."""


KNOWN: Final[Mapping[str, KnownLever]] = {
    "file_pages": KnownLever(
        extra="papers",
        field="file_pages",
        needs=(Need.FILE_CACHE, Need.REFERENCED_BITS, Need.FILE_ADVICE),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSource:
    """The processes of one slot or of the protected application."""

    members: Members
    """Returns the processes."""
    holds: Callable[[int], bool]
    """Asks the kernel whether a process is one of them now."""
    check: Callable[[], None] = field(default=lambda: None)
    """Called before acting; raises to refuse it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverSite:
    """The parts of a node on which a lever of another package acts."""

    slots: Sequence[ProcessSource]
    """The processes of each background slot."""
    protected: ProcessSource
    """Those of the protected application."""
    proc: Path
    """The /proc directory."""
    hierarchy: Hierarchy
    """The node's cgroup hierarchies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverEntry:
    """One lever of another package."""

    name: str
    make: Callable[[LeverSite], Lever]
    """Makes the lever of one node."""
    lacks: Callable[[Path], Mapping[Need, str]]
    """Says which needs of controllers it cannot meet with this /proc directory, and why."""


def load_levers(names: Iterable[str]) -> tuple[LeverEntry, ...]:
    """Import the levers of these names, each once.

    Raises:
        LeverError: If there is none of a name, or it cannot be loaded.
        UnbelievedFileError: For root, if others can write the file of one.
    """
    wanted = tuple(dict.fromkeys(names))
    points = installed_points(LEVER_GROUP) if wanted else {}
    return tuple(_load(name, points) for name in wanted)


def levers_of(controller: str, named: Iterable[str] = ()) -> tuple[LeverEntry, ...]:
    """Import the levers that a controller needs, by its specification, and those that are named.

    Raises:
        ControllerError: If there is no such controller.
        LeverError: If there is no such lever, or it cannot be loaded.
    """
    return load_levers((*named, *find_entry(controller.partition(":")[0]).levers))


def installed_levers() -> tuple[LeverEntry, ...]:
    """Import the levers of the project's other packages that are installed."""
    points = installed_points(LEVER_GROUP)
    return tuple(_load(name, points) for name in KNOWN if name in points)


def lacks_of_levers(loaded: Iterable[LeverEntry], proc: Path) -> dict[Need, str]:
    """What no lever of another package can do for controllers here, each with the reason.

    Args:
        loaded: The levers that are loaded.
        proc: The /proc directory.
    """
    entries = {entry.name: entry for entry in loaded}
    lacks: dict[Need, str] = {}
    for name, known in KNOWN.items():
        if name not in entries:
            lacks |= dict.fromkeys(known.needs, f"{name}: {why_not_loaded(name)}")
    for name, entry in entries.items():
        lacks |= {need: f"{name}: {why}" for need, why in entry.lacks(proc).items()}
    return lacks


def why_not_loaded(name: str) -> str:
    """Say what to do where a lever is not loaded."""
    return f"it is not loaded; name it in control.levers, with stallward[{KNOWN[name].extra}]"


def _load(name: str, points: Mapping[str, EntryPoint]) -> LeverEntry:
    if name not in points:
        known = KNOWN.get(name)
        raise LeverError(
            f"The lever {name!r} is not installed.",
            next_step=f"Run `pip install 'stallward[{known.extra}]'`."
            if known
            else f"Choose one of: {', '.join(sorted({*KNOWN, *points}))}.",
        )
    return load_entry(points[name], LeverEntry, "lever", LeverError)
