"""Where a rollout stands, from the events so far, and what is to be done next. Pure.

Everything follows from the events, so a client that reads them goes on where the last one ended,
whatever ended it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from stallward.fleet.rollout.contrast import Tally
from stallward.fleet.rollout.events import (
    Began,
    Checked,
    Ended,
    Event,
    Found,
    Judged,
    Measured,
    NotReturned,
    NotSwitched,
    Recalled,
    Resumed,
    Returned,
    Switched,
    Switching,
)
from stallward.fleet.rollout.judge import Verdict


class NodeState(Enum):
    """What became of a node; each is in exactly one state."""

    WAITING = "waiting"
    """It was not switched; what decided before decides."""
    SWITCHING = "switching"
    """It was told to switch, and did not answer yet."""
    ACTIVE = "active"
    """The policy decides."""
    BACK = "back"
    """The policy decided for a while, and does no more."""
    NOT_REACHED = "not reached"
    """It did not answer or refused, and what decided before decides."""
    UNSURE = "may run it"
    """It does not answer, and the policy may decide there."""


class Outcome(Enum):
    """How a rollout stands when its client ends."""

    COMPLETE = "complete"
    PAUSED = "paused"
    """Too many nodes could not be reached: nothing is undone, and it may go on."""
    RETURNED = "returned"
    """What decided before decides again, but for the nodes that may run the policy."""


class StepKind(Enum):
    """What is to be done."""

    MEASURE = "measure"
    """Look at the nodes before the wave."""
    FIND = "find"
    """Ask the nodes what decides."""
    SWITCH = "switch"
    WATCH = "watch"
    """Look at the nodes of the wave, and judge it."""
    RETURN = "return"
    CHECK = "check"
    """Ask the nodes whether the policy decides."""
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be done next."""

    kind: StepKind
    nodes: tuple[str, ...] = ()
    outcome: Outcome | None = None
    """At the end."""
    why: str = ""


class Progress:
    """Where a rollout stands.

    Args:
        began: Its first event.
    """

    def __init__(self, began: Began) -> None:
        self.plan = began.plan
        self.states = dict.fromkeys(self.plan.nodes, NodeState.WAITING)
        self.why: dict[str, str] = {}
        """Why nodes are where they are, where that was not planned."""
        self.found: dict[str, Found] = {}
        self.before: dict[str, Tally] = {}
        """What was seen of each node last, before it was switched."""
        self._is_measured = False
        self.wave = 0
        """The wave that is to be switched or watched, counted from 0."""
        self.wave_nodes: list[str] = []
        self.verdicts: list[Verdict] = []
        self.returning = ""
        """Why all nodes go back; empty while they do not."""
        self._tried: set[str] = set()
        """Nodes that could not be returned by this client."""
        self._checked = False
        self._turned_off: dict[str, str] = {}
        """Nodes on which the policy was found turned off: what decided before is not loaded."""

    def in_state(self, *states: NodeState) -> tuple[str, ...]:
        """The nodes in some states, in drawn order."""
        return tuple(name for name, state in self.states.items() if state in states)

    @property
    def verdicts_bad(self) -> bool:
        """Whether a wave was bad."""
        return any(one.bad for one in self.verdicts)

    @property
    def counts(self) -> Counter[NodeState]:
        """How many nodes are in each state."""
        return Counter(self.states.values())

    def next(self) -> Step:
        """What is to be done next."""
        if self.returning:
            return self._next_return()
        left_out = self.in_state(NodeState.NOT_REACHED, NodeState.UNSURE)
        if len(left_out) > self.plan.most_skipped:
            why = (
                f"{len(left_out)} of {len(self.states)} nodes could not be switched, more than "
                f"the {self.plan.most_skipped} that may be left out "
                f"({left_out[0]}: {self.why[left_out[0]]})"
            )
            return Step(kind=StepKind.END, outcome=Outcome.PAUSED, why=why)
        step = self._next_switch()
        if step is not None:
            return step
        if self.wave_nodes:
            return Step(kind=StepKind.WATCH, nodes=tuple(self.wave_nodes))
        if not self._checked:
            return Step(kind=StepKind.CHECK, nodes=self.in_state(NodeState.ACTIVE))
        return Step(kind=StepKind.END, outcome=Outcome.COMPLETE)

    def _next_switch(self) -> Step | None:
        """What is to be done until the wave has its nodes; ``None`` if it has them."""
        told = self.in_state(NodeState.SWITCHING)
        if told:
            return Step(kind=StepKind.SWITCH, nodes=told)
        waiting = self.in_state(NodeState.WAITING)
        due = waiting[: max(self.plan.target(self.wave) - self.counts[NodeState.ACTIVE], 0)]
        if not due:
            return None
        if not self._is_measured:
            return Step(kind=StepKind.MEASURE, nodes=waiting)
        unknown = tuple(name for name in due if name not in self.found)
        if unknown:
            return Step(kind=StepKind.FIND, nodes=unknown)
        return Step(kind=StepKind.SWITCH, nodes=due)

    def _next_return(self) -> Step:
        may_run = self.in_state(NodeState.SWITCHING, NodeState.ACTIVE, NodeState.UNSURE)
        due = dict.fromkeys((*may_run, *self._turned_off))
        to_return = tuple(name for name in due if name not in self._tried)
        if to_return:
            return Step(kind=StepKind.RETURN, nodes=to_return)
        return Step(kind=StepKind.END, outcome=Outcome.RETURNED, why=self.returning)

    def take(self, event: Event) -> None:
        """Take what happened."""
        match event:
            case Measured():
                self.before |= event.tallies
                self._is_measured = True
            case Judged():
                self._take_verdict(event)
            case Recalled():
                self.returning = f"{event.by} recalled it"
            case Resumed():
                self._resume()
            case Checked():
                for name, why in event.gone.items():
                    self._set(name, NodeState.BACK, why)
                self._turned_off |= event.gone
                self._checked = True
            case Began() | Ended():
                pass
            case _:
                self._take_nodes(event)

    def _take_nodes(
        self, event: Found | Switching | Switched | NotSwitched | Returned | NotReturned
    ) -> None:
        """Take what happened to some nodes."""
        match event:
            case Found():
                self.found[event.node] = event
            case Switching():
                for name in event.nodes:
                    self._set(name, NodeState.SWITCHING)
                    if name not in self.wave_nodes:
                        self.wave_nodes.append(name)
            case Switched():
                self._set(event.node, NodeState.ACTIVE)
            case NotSwitched():
                state = NodeState.UNSURE if event.may_run else NodeState.NOT_REACHED
                self._set(event.node, state, event.why)
                self.wave_nodes = [name for name in self.wave_nodes if name != event.node]
            case Returned():
                self._set(event.node, NodeState.BACK, event.note)
                self._turned_off.pop(event.node, None)
            case NotReturned():
                self._set(event.node, NodeState.UNSURE, event.why)
                self._tried.add(event.node)

    def _set(self, name: str, state: NodeState, why: str = "") -> None:
        self.states[name] = state
        self.why[name] = why

    def _take_verdict(self, event: Judged) -> None:
        self.verdicts.append(event.verdict)
        if event.verdict.bad:
            self.returning = f"wave {event.wave + 1} is bad: {'; '.join(event.verdict.bad)}"
            return
        self.before |= event.tallies  # nodes that were left out may yet be judged
        self.wave_nodes = []
        self.wave, self._checked = self.wave + 1, False

    def _resume(self) -> None:
        """Try again what could not be done; look again if that is long ago and still possible."""
        self._tried.clear()
        self._checked = False
        if self.returning:
            return
        for name in self.in_state(NodeState.NOT_REACHED):
            self._set(name, NodeState.WAITING)
        for name in self.in_state(NodeState.WAITING):
            self.found.pop(name, None)
        self._is_measured = self._is_measured and bool(self.wave_nodes)
        unsure = self.in_state(NodeState.UNSURE)
        for name in unsure:
            self._set(name, NodeState.SWITCHING)
        self.wave_nodes += [name for name in unsure if name not in self.wave_nodes]
