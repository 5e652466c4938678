"""What a rollout does with one node: switch it, put it back, and look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stallward.actuator.client.client import ActuatorClient
from stallward.actuator.client.status import DaemonStatus
from stallward.actuator.errors import RequestError
from stallward.actuator.record.tick_record import Mode, TickRecord
from stallward.agent.errors import PolicyError, StallwardError
from stallward.fleet.rollout.contrast import Tally
from stallward.fleet.rollout.events import (
    Found,
    NotReturned,
    NotSwitched,
    Returned,
    Switched,
)
from stallward.fleet.rollout.plan import RolloutPlan

_ACTIVE: Final = Mode.ACTIVE.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedPolicy:
    """A policy file that is sent to each node."""

    content: bytes
    name: str


def find(name: str, client: ActuatorClient) -> Found:
    """What decides on a node.

    Raises:
        DaemonError: If it cannot be reached.
    """
    status = client.status()
    path = "" if status.policy is None else status.policy.path
    return Found(node=name, policy=path, mode=status.mode.name.lower())


def check(client: ActuatorClient, *, push: bool) -> DaemonStatus:
    """Ask a node whether it could be switched now; returns its status.

    Raises:
        DaemonError: If it could not.
    """
    status = client.status()
    if status.experiment is not None:
        raise RequestError("An experiment runs.", next_step="Stop it: stallward ab stop.")
    if push:
        client.policies()  # refused where there is no store
    return status


def switch(
    name: str,
    client: ActuatorClient,
    plan: RolloutPlan,
    pushed: PushedPolicy | None,
    found: Found,
    *,
    told: bool,
) -> Switched | NotSwitched:
    """Let the policy decide on a node. To repeat it changes nothing.

    If that fails, what decided before is put back; where that fails, too, the policy may decide.
    So it may on a node that was ``told`` to switch earlier, and that does not answer now.
    """
    try:
        if runs(client.status(), plan.sha256):
            return Switched(node=name)
        if pushed is not None:
            client.push(pushed.content, name=pushed.name)
    except StallwardError as error:
        return NotSwitched(node=name, why=error.cause, may_run=told)
    try:
        client.load(plan.policy)
        client.set_mode(Mode.ACTIVE)
    except StallwardError as error:
        back = put_back(name, client, plan, found)
        may_run = isinstance(back, NotReturned)
        return NotSwitched(node=name, why=error.cause, may_run=may_run)
    return Switched(node=name)


def put_back(
    name: str, client: ActuatorClient, plan: RolloutPlan, found: Found
) -> Returned | NotReturned:
    """Let what decided before decide again. To repeat it changes nothing."""
    try:
        status = client.status()
        loaded = status.policy
        if loaded is not None and loaded.sha256 == plan.sha256:
            return Returned(node=name, note=_restore(client, found))
        if loaded is not None and loaded.path == found.policy:
            if status.mode is Mode.OFF and found.mode != Mode.OFF.name.lower():
                # An earlier client was ended between the two calls.
                client.set_mode(Mode[found.mode.upper()])
            return Returned(node=name)
        note = "" if loaded is None else f"{loaded.name} was loaded there meanwhile"
        return Returned(node=name, note=note)
    except StallwardError as error:
        return NotReturned(node=name, why=error.cause)


def _restore(client: ActuatorClient, found: Found) -> str:
    """Load what was loaded before; returns what is to be noted.

    Raises:
        StallwardError: If the node does not answer, or refuses.
    """
    if not found.policy:
        client.set_mode(Mode.OFF)
        return ""
    try:
        client.load(found.policy)
    except (PolicyError, RequestError) as error:
        client.set_mode(Mode.OFF)
        return f"the default controller decides: {found.policy} was not loaded ({error.cause})"
    client.set_mode(Mode[found.mode.upper()])
    return ""


def runs(status: DaemonStatus, sha256: str) -> bool:
    """Whether a policy decides on a node."""
    policy = status.policy
    return status.mode is Mode.ACTIVE and policy is not None and policy.sha256 == sha256


def why_not(status: DaemonStatus) -> str:
    """Why a policy does not decide on a node any more."""
    if status.canary is not None and status.canary.returned:
        return status.canary.returned
    return f"it was turned off there; {status.controller} decides"


class NodeLooks:
    """Counts what is seen at looks at one node."""

    def __init__(self) -> None:
        self._looks = self._met = self._met_changes = 0
        self._ticks = self._intervened = self._intervened_changes = self._fallen = 0
        self._sequence: int | None = None
        self._last_met: bool | None = None
        self._last_intervened: bool | None = None

    @property
    def tally(self) -> Tally:
        """What was counted so far."""
        return Tally(
            looks=self._looks,
            met=self._met,
            met_changes=self._met_changes,
            ticks=self._ticks,
            intervened=self._intervened,
            intervened_changes=self._intervened_changes,
            fallen=self._fallen,
        )

    def take(self, status: DaemonStatus) -> None:
        """Count the last tick, if it is a new one and no client's lease decided at it."""
        record = status.last_tick
        if record is None or record.sequence == self._sequence:
            return
        self._sequence = record.sequence
        if record.decision.leased:
            return
        self._ticks += 1
        self._fallen += record.fallback
        intervened = bool(record.reasons.changes)
        self._intervened += intervened
        self._intervened_changes += self._last_intervened not in {None, intervened}
        self._last_intervened = intervened
        met = self._kept(status, record)
        if met is not None:
            self._looks += 1
            self._met += met
            self._met_changes += self._last_met not in {None, met}
            self._last_met = met

    @staticmethod
    def _kept(status: DaemonStatus, record: TickRecord) -> bool | None:
        """Whether the target was kept; ``None`` if nobody knows."""
        latency = record.sample.latency
        if latency is None or latency.p95_ms is None or status.slo_ms is None:
            return None
        return latency.p95_ms <= status.slo_ms
