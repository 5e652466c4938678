"""Controllers that plan on a fitted twin: what a package registers, and how it is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stallward.agent.controller import Controller
from stallward.agent.errors import ControllerError
from stallward.agent.plugin import ControllerEntry
from stallward.agent.registry import find_entry

if TYPE_CHECKING:
    from stallward.env.twin.inputs.fitted import FittedTwin  # listing controllers must stay cheap


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerEntry(ControllerEntry):
    """A controller that plans for longer than a tick, so no daemon makes it."""

    on_twin: Callable[[FittedTwin], Controller]
    """Makes one whose decisions wait for their plans, for a node that is a twin itself."""
    beside: Callable[[FittedTwin], Controller]
    """Makes one that plans in a thread, beside a daemon."""


def find_planner(name: str) -> PlannerEntry:
    """The planner of a name.

    Raises:
        ControllerError: If there is none, or its package is not installed.
    """
    entry = find_entry(name)
    if not isinstance(entry, PlannerEntry):
        raise ControllerError(f"The controller {name!r} does not plan on a twin.")
    return entry
