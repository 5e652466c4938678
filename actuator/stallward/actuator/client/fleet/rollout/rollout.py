"""Rolling a policy out to a fleet: does what the progress says is next, and writes it down."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar

from stallward.actuator.client.client import ActuatorClient
from stallward.actuator.client.fleet.fleet import Answers, Fleet
from stallward.actuator.client.fleet.rollout.event_file import EventFile, who
from stallward.actuator.client.fleet.rollout.looking import Looking
from stallward.actuator.client.fleet.rollout.node_calls import (
    PushedPolicy,
    find,
    put_back,
    runs,
    switch,
    why_not,
)
from stallward.actuator.errors import FleetError, RolloutError
from stallward.actuator.policies.rollout.events import (
    Began,
    Checked,
    Ended,
    Event,
    Judged,
    Measured,
    NotReturned,
    NotSwitched,
    Recalled,
    Resumed,
    Returned,
    Switching,
)
from stallward.actuator.policies.rollout.judge import CHECKS, Watched, judge, verdict_text
from stallward.actuator.policies.rollout.plan import RolloutPlan
from stallward.actuator.policies.rollout.progress import NodeState, Progress, Step, StepKind
from stallward.agent.errors import StallwardError

_T = TypeVar("_T")
_AT_ONCE: Final = 64
"""How many nodes are switched before it is written down what became of them."""
_TRIES: Final = 3
"""How often one client tries to return a node."""
_AGAIN_S: Final = 5.0

Told = Callable[[str], None]
"""Called with one line about what happens."""


class Rollout:
    """One rollout, whose events are in a file. Use it as a context manager, or close it.

    Args:
        path: The file.
        plan: What is to be done, if the file is new; and what must be in it, if it is not.
            ``None`` for whatever is in it.

    Raises:
        RolloutError: If the file cannot be used, holds another rollout, or none.
    """

    def __init__(self, path: Path, plan: RolloutPlan | None = None) -> None:
        self._file = EventFile(path)
        try:
            self.progress: Final = self._begin(path, plan)
            """Where it stands."""
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Another client may go on."""
        self._file.close()

    def recall(self) -> None:
        """Let what decided before decide on all nodes again, at the next :meth:`run`."""
        self._note(Recalled(by=who()))

    def run(self, fleet: Fleet, pushed: PushedPolicy | None, tell: Told) -> Step:
        """Go on until it ends; returns how. If this client ends before, the file is enough.

        Args:
            fleet: The nodes; those that the rollout does not know are left alone.
            pushed: The file that is sent to the nodes; ``None`` if nothing is sent.
            tell: Is told what happens.

        Raises:
            RolloutError: If what happens cannot be written down.
        """
        while (step := self.progress.next()).kind is not StepKind.END:
            match step.kind:
                case StepKind.MEASURE:
                    self._measure(fleet, step.nodes, tell)
                case StepKind.FIND:
                    self._find(fleet, step.nodes)
                case StepKind.SWITCH:
                    self._switch(fleet, step.nodes, pushed, tell)
                case StepKind.WATCH:
                    self._watch(fleet, step.nodes, tell)
                case StepKind.RETURN:
                    self._return(fleet, step.nodes, tell)
                case StepKind.CHECK:
                    self._check(fleet, step.nodes)
        self._note(Ended(outcome="" if step.outcome is None else step.outcome.value, why=step.why))
        return step

    def _begin(self, path: Path, plan: RolloutPlan | None) -> Progress:
        events = self._file.events
        if not events:  # a new file
            if plan is None:
                raise RolloutError(
                    f"There is no rollout in {path}.",
                    next_step="Name its file with --state.",
                )
            began = Began(plan=plan, by=who())
            self._file.append([began])
            return Progress(began)
        first = self._file.began
        if plan is not None and plan.sha256 != first.plan.sha256:
            raise RolloutError(
                f"{path} holds the rollout of another policy, {first.plan.sha256[:12]}.",
                next_step="Name another file with --state.",
            )
        progress = Progress(first)
        resumed = Resumed(by=who())
        for event in (*events[1:], resumed):
            progress.take(event)
        self._file.append([resumed])
        return progress

    def _note(self, *events: Event) -> None:
        """Write events, and only then let anything follow from them."""
        self._file.append(events)
        for event in events:
            self.progress.take(event)

    def _measure(self, fleet: Fleet, nodes: Sequence[str], tell: Told) -> None:
        rules = self.progress.plan.rules
        tell(f"looking at {len(nodes)} nodes for {rules.watch_s:g} s before they are switched")
        looking = Looking(fleet, (), nodes, self.progress.plan.sha256)
        looking.look_for(rules.watch_s, rules.look_s)
        self._note(Measured(tallies=looking.others))

    def _find(self, fleet: Fleet, nodes: Sequence[str]) -> None:
        for some in _chunks(nodes):
            answers = _ask(fleet, find, some)
            self._note(
                *answers.given.values(),
                *(
                    NotSwitched(node=name, why=error.cause, may_run=False)
                    for name, error in answers.failed.items()
                ),
            )

    def _switch(
        self, fleet: Fleet, nodes: Sequence[str], pushed: PushedPolicy | None, tell: Told
    ) -> None:
        plan, found = self.progress.plan, self.progress.found
        tell(f"wave {self.progress.wave + 1}: switching {len(nodes)} nodes")
        for some in _chunks(nodes):
            self._note(Switching(nodes=tuple(some)))
            answers = _ask(
                fleet, lambda name, client: switch(name, client, plan, pushed, found[name]), some
            )
            gone = (
                NotSwitched(node=name, why=error.cause, may_run=True)
                for name, error in answers.failed.items()
            )
            results = [*answers.given.values(), *gone]
            self._note(*results)
            for result in results:
                if isinstance(result, NotSwitched):
                    tell(f"{result.node} was not switched: {result.why}")

    def _watch(self, fleet: Fleet, nodes: Sequence[str], tell: Told) -> None:
        progress = self.progress
        rules, wave = progress.plan.rules, progress.wave
        others = progress.in_state(NodeState.WAITING)
        tell(
            f"wave {wave + 1}: watching its {len(nodes)} nodes beside {len(others)} others for "
            f"{rules.watch_s:g} s"
        )
        looking = Looking(fleet, nodes, others, progress.plan.sha256)
        for number in range(1, CHECKS + 1):
            looking.look_for(rules.watch_s / CHECKS, rules.look_s)
            seen = Watched(
                wave=looking.wave,
                others=looking.others,
                before=progress.before or {},
                failed=looking.failed,
            )
            verdict = judge(seen, rules, last=number == CHECKS)
            if verdict.bad:
                break
        self._note(Judged(wave=wave, verdict=verdict, tallies=looking.others))
        tell(f"wave {wave + 1} is {verdict_text(verdict)}")

    def _return(self, fleet: Fleet, nodes: Sequence[str], tell: Told) -> None:
        plan, found = self.progress.plan, self.progress.found
        tell(f"putting {len(nodes)} nodes back")
        left = list(nodes)
        for tries_left in reversed(range(_TRIES)):
            failed = []
            for some in _chunks(left):
                answers = _ask(
                    fleet, lambda name, client: put_back(name, client, plan, found[name]), some
                )
                results = [
                    *answers.given.values(),
                    *(
                        NotReturned(node=name, why=error.cause)
                        for name, error in answers.failed.items()
                    ),
                ]
                self._note(*(one for one in results if isinstance(one, Returned)))
                failed += [one for one in results if isinstance(one, NotReturned)]
            left = [one.node for one in failed]
            if not left or not tries_left:
                break
            time.sleep(_AGAIN_S)
        self._note(*failed)
        for one in failed:
            tell(f"{one.node} may still run it: {one.why}")

    def _check(self, fleet: Fleet, nodes: Sequence[str]) -> None:
        """Ask once more: a node's own canary may have turned the policy off in a later wave."""
        sha256 = self.progress.plan.sha256
        answers = _ask(fleet, lambda _name, client: client.status(), nodes)
        gone = {
            name: why_not(status)
            for name, status in answers.given.items()
            if not runs(status, sha256)
        }
        self._note(Checked(gone=gone))


def digest(content: bytes) -> str:
    """The digest by which a node names a policy."""
    return hashlib.sha256(content).hexdigest()


def _ask(
    fleet: Fleet, call: Callable[[str, ActuatorClient], _T], names: Sequence[str]
) -> Answers[_T]:
    """Call nodes; those that the fleet does not have any more count as failed."""
    answers = fleet.ask(call, [name for name in names if name in fleet.clients])
    gone: dict[str, StallwardError] = {
        name: FleetError("It is not among the nodes any more.")
        for name in names
        if name not in fleet.clients
    }
    return Answers(given=answers.given, failed={**answers.failed, **gone})


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    every = list(names)
    for start in range(0, len(every), _AT_ONCE):
        yield every[start : start + _AT_ONCE]
