"""The message that tells the loop which pod is where, one of a SOCK_SEQPACKET socket."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stallward.actuator.errors import FramesError
from stallward.agent.errors import SchemaError
from stallward.agent.schema.read import read
from stallward.agent.schema.write import to_table

MAX_MESSAGE_BYTES: Final = 1 << 17
_FAULT_CHARACTERS: Final = 500
_ODD_CHARACTERS: Final = 300
MOST_ODD: Final = 4
"""So many pods that are left out are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseBudget:
    """How a pod may be paused."""

    longest_s: float
    """The longest pause; 0 for none at all."""
    shortest_run_s: float
    """How long it runs at least after each pause."""

    @property
    def share(self) -> float:
        """The largest share of the time for which it is paused then."""
        if self.longest_s <= 0.0:
            return 0.0
        return self.longest_s / (self.longest_s + self.shortest_run_s)


def tightest(budgets: Iterable[PauseBudget | None]) -> PauseBudget | None:
    """Return the budget of several pods that are paused together; ``None`` for no bound.

    Args:
        budgets: That of each pod; ``None`` for one without a bound.
    """
    known = [budget for budget in budgets if budget is not None]
    if not known:
        return None
    return PauseBudget(
        longest_s=min(budget.longest_s for budget in known),
        shortest_run_s=max(budget.shortest_run_s for budget in known),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPod:
    """A pod that has a place."""

    group: str
    """Its cgroup."""
    pod: str
    """Its namespace and name."""
    pause: PauseBudget | None = None
    """How it may be paused; ``None`` if it sets no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsReport:
    """Which pods have which place now."""

    protected: tuple[BoundPod | None, ...] = ()
    """The pod of each protected application; ``None`` for one that has none, or is none."""
    slots: tuple[tuple[BoundPod, ...], ...] = ()
    """The pods of each slot, in order; none of one that is empty."""
    surplus: int = 0
    """How many pods match a slot and have none."""
    beside: int = 0
    """How many more pods match a protected application."""
    fault: str = ""
    """Why the pods are not looked up now, so that this may be out of date; empty if they are."""
    left_out: int = 0
    """How many pods are odd, or not believed."""
    odd: tuple[str, ...] = ()
    """The first of these: their names, and why."""


def pack(report: PodsReport) -> bytes:
    """Make the message of a report."""
    table = to_table(report)
    table["fault"] = report.fault[:_FAULT_CHARACTERS]
    table["odd"] = [why[:_ODD_CHARACTERS] for why in report.odd]
    return json.dumps(table).encode()


def unpack(message: bytes) -> PodsReport:
    """Read a message.

    Raises:
        FramesError: If it is not one of this version.
    """
    try:
        return read(PodsReport, json.loads(message), "pods")
    except (ValueError, RecursionError, SchemaError) as error:
        raise FramesError("A message about pods is damaged.") from error
