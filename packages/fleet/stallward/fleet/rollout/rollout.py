"""Rolling a policy out to a fleet: does what the progress says is next, and writes it down."""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar, get_args

from stallward.actuator.client.client import ActuatorClient
from stallward.agent.errors import SchemaError, StallwardError
from stallward.agent.schema.read import read
from stallward.agent.schema.write import to_table
from stallward.fleet.connections import Answers, Fleet
from stallward.fleet.errors import FleetError, RolloutError
from stallward.fleet.rollout.contrast import Tally
from stallward.fleet.rollout.events import (
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
from stallward.fleet.rollout.judge import CHECKS, Watched, judge, verdict_text
from stallward.fleet.rollout.node_calls import (
    NodeLooks,
    PushedPolicy,
    find,
    put_back,
    runs,
    switch,
    why_not,
)
from stallward.fleet.rollout.plan import RolloutPlan
from stallward.fleet.rollout.progress import NodeState, Progress, Step, StepKind

# ---------- The file of a rollout: one line of JSON for each event, on the disk before anything follows
# It is the state from which another client goes on, and the audit trail in one.

_KINDS: Final = {kind.__name__: kind for kind in get_args(Event)}
_AT: Final = "at"
_EVENT: Final = "event"
_BEGIN: Final = f'{{"{_AT}":'.encode()
"""How each line begins."""


class EventFile:
    """The events of one rollout, which one client at a time may append to.

    Args:
        path: The file; it is made if it is not there.

    Raises:
        RolloutError: If it cannot be used, or another client goes on with the rollout.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise RolloutError(
                f"Another client goes on with the rollout of {path}.",
                next_step="Wait until it ends, or end it.",
            ) from error
        try:
            self.events: Final = self._read()
            """The events that were in it."""
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; another client may continue."""
        os.close(self._fd)

    def append(self, events: Iterable[Event]) -> None:
        """Write events, and wait until the disk has them.

        Raises:
            RolloutError: If they cannot be written.
        """
        lines = "".join(map(event_line, events)).encode()
        try:
            while lines:
                lines = lines[os.write(self._fd, lines) :]
            os.fsync(self._fd)
        except OSError as error:
            raise self._unusable(error) from error

    def _read(self) -> list[Event]:
        """Read all whole lines, and cut off what a client that died wrote of another one."""
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise self._unusable(error) from error
        whole = content.rfind(b"\n") + 1
        events = [
            self._event(number, line)
            for number, line in enumerate(content[:whole].splitlines(), start=1)
        ]
        is_other = content[: len(_BEGIN)] != _BEGIN[: len(content)]
        if is_other or (events and not isinstance(events[0], Began)):
            raise self._damaged(1, "it is not the beginning of a rollout")
        try:  # not before: it may be any file
            os.ftruncate(self._fd, whole)
            os.lseek(self._fd, whole, os.SEEK_SET)
        except OSError as error:
            raise self._unusable(error) from error
        return events

    @property
    def began(self) -> Began:
        """The first event of a file that has events."""
        first = self.events[0]
        assert isinstance(first, Began)
        return first

    def _event(self, number: int, line: bytes) -> Event:
        try:
            table = json.loads(line)
            kind = _KINDS[table.pop(_EVENT)]
            del table[_AT]
            event: Event = read(kind, table)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(number, f"it is no event ({error!r})") from error
        except (SchemaError, RolloutError) as error:
            raise self._damaged(number, error.cause) from error
        return event

    def _damaged(self, number: int, why: str) -> RolloutError:
        return RolloutError(
            f"{self._path}, line {number} cannot be read: {why}.",
            next_step="Name the file of a rollout of this version with --state.",
        )

    def _unusable(self, error: OSError) -> RolloutError:
        return RolloutError(
            f"The rollout cannot be kept in {self._path}: {error.strerror or error}.",
            next_step="Name another file with --state.",
        )


def event_line(event: Event) -> str:
    """The line of an event."""
    table = {_AT: round(time.time(), 3), _EVENT: type(event).__name__, **to_table(event)}
    return json.dumps(table, separators=(",", ":"), allow_nan=False) + "\n"


def who() -> str:
    """The user and the machine, for the audit trail."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a number without a name, as in containers
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


# ---------- Looking at the nodes of a wave and at the others, again and again for some time

_SILENT_LOOKS: Final = 3
"""A node of the wave that does not answer at so many looks in a row has failed."""


class Looking:
    """Counts what is seen.

    A node that is not among the fleet's clients any more is a node that does not answer.

    Args:
        fleet: The nodes.
        wave: The nodes on which the policy is to decide.
        others: Nodes on which it does not.
        sha256: The digest of the policy.
    """

    def __init__(
        self, fleet: Fleet, wave: Sequence[str], others: Sequence[str], sha256: str
    ) -> None:
        self._fleet = fleet
        self._sha256 = sha256
        self._wave = {name: NodeLooks() for name in wave}
        self._others = {name: NodeLooks() for name in others}
        self._silent = dict.fromkeys(wave, 0)
        self.failed: dict[str, str] = {}
        """Why the policy does not decide on nodes of the wave now."""

    @property
    def wave(self) -> Mapping[str, Tally]:
        """What was seen of the wave's nodes so far."""
        return {name: looks.tally for name, looks in self._wave.items()}

    @property
    def others(self) -> Mapping[str, Tally]:
        """The same of the other nodes."""
        return {name: looks.tally for name, looks in self._others.items()}

    def look(self, times: int, every_s: float) -> None:
        """Look at all nodes every ``every_s``, so many times."""
        begin_s = time.monotonic()
        for number in range(1, times + 1):
            time.sleep(max(begin_s + number * every_s - time.monotonic(), 0.0))
            self._look()

    def _look(self) -> None:
        wanted = [name for name in (*self._wave, *self._others) if name in self._fleet.clients]
        answers = self._fleet.ask(lambda _name, client: client.status(), wanted)
        for name, looks in self._others.items():
            if name in answers.given:
                looks.take(answers.given[name])
        for name, looks in self._wave.items():
            status = answers.given.get(name)
            if status is None:
                self._silent[name] += 1
                if self._silent[name] >= _SILENT_LOOKS:
                    self.failed[name] = "it does not answer"
                continue
            self._silent[name] = 0
            if not runs(status, self._sha256):
                self.failed[name] = why_not(status)
                continue
            self.failed.pop(name, None)
            looks.take(status)


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
        """Close the file. Another client may continue."""
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
        looking.look(round(rules.watch_s / rules.look_s), rules.look_s)
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
        told = self.progress.in_state(NodeState.SWITCHING)
        tell(f"wave {self.progress.wave + 1}: switching {len(nodes)} nodes")
        for some in _chunks(nodes):
            self._note(Switching(nodes=tuple(some)))
            answers = _ask(
                fleet,
                lambda name, client: switch(
                    name, client, plan, pushed, found[name], told=name in told
                ),
                some,
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
        looks = round(rules.watch_s / rules.look_s)
        for number in range(1, CHECKS + 1):
            looking.look(looks * number // CHECKS - looks * (number - 1) // CHECKS, rules.look_s)
            seen = Watched(
                wave=looking.wave,
                others=looking.others,
                before=progress.before,
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
