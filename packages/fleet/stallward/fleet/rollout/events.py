"""What happens in a rollout, as values that are written down before anything follows from them.

Each is one line of the rollout's file, which is its state and its audit trail in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stallward.fleet.rollout.contrast import Tally
from stallward.fleet.rollout.judge import Verdict
from stallward.fleet.rollout.plan import RolloutPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """The first line: what is to be done."""

    plan: RolloutPlan
    by: str
    """Who began it, and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A client continues it. Nodes that were not reached are tried again."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """Somebody wants all nodes back on what decided before."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The nodes were looked at before a wave."""

    tallies: Mapping[str, Tally]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What decided on a node before it was switched."""

    node: str
    policy: str
    """The path, on the node, of the policy that was loaded; empty for none."""
    mode: str
    """``active``, ``shadow``, ``advice`` or ``off``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """From now on these nodes may run the policy."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """The policy decides on a node."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSwitched:
    """A node could not be reached, or refused."""

    node: str
    why: str
    may_run: bool
    """Whether the policy may decide there all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A wave was watched for the whole time, or was bad before that."""

    wave: int
    verdict: Verdict
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    """Of the nodes that are not switched yet: what is before the next wave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What decided before decides on a node again, or something that somebody else chose."""

    node: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReturned:
    """A node could not be reached: the policy may still decide there."""

    node: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """At the end all nodes were asked what decides on them."""

    gone: Mapping[str, str]
    """Nodes on which the policy does not decide any more, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The client ended."""

    outcome: str
    why: str = ""


Event = (
    Began
    | Resumed
    | Recalled
    | Measured
    | Found
    | Switching
    | Switched
    | NotSwitched
    | Judged
    | Returned
    | NotReturned
    | Checked
    | Ended
)
