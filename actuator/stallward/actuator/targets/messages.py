"""The message that tells the loop which pod is where, one of a SOCK_SEQPACKET socket."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.runtime import waiting_messages

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
    known: bool = True
    """Whether the pods are known at all. A process that follows them and was just started has only
    a fault to tell, and nothing about any place."""


def pack(report: PodsReport) -> bytes:
    """Make the message of a report.

    One that is too long is lost as a whole. So the pods that it has no room for, beyond some 250
    with the longest names, have no place: those that come last.
    """
    odd = tuple(why[:_ODD_CHARACTERS] for why in report.odd)
    report = replace(report, fault=report.fault[:_FAULT_CHARACTERS], odd=odd)
    message = waiting_messages.pack(report)
    most = pods = sum(map(len, report.slots))
    while len(message) > MAX_MESSAGE_BYTES and most:
        most = most * 7 // 8
        slots = _first(report.slots, most)
        surplus = report.surplus + pods - most
        message = waiting_messages.pack(replace(report, slots=slots, surplus=surplus))
    return message


def _first(slots: tuple[tuple[BoundPod, ...], ...], most: int) -> tuple[tuple[BoundPod, ...], ...]:
    """The first pods, in the order of their slots."""
    kept: list[tuple[BoundPod, ...]] = []
    for slot in slots:
        kept.append(slot[:most])
        most -= len(kept[-1])
    return tuple(kept)


SILENT_S: Final = 5.0
"""The process sends at least once a second; after so long without a word it is reported."""
_TICK_MESSAGES: Final = 64


class PodsChannel:
    """Reads the reports about pods, without ever waiting.

    What was reported last stays in force, however long nothing is heard, and while a process that
    was started again does not know the pods: a pod whose cgroup is gone has no files, which the
    sensors and levers see by themselves.

    Args:
        connection: The socket on which reports come; ``None`` if no target is a pod.
    """

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._connection = connection
        self._heard_s: float | None = None
        self._now_s = 0.0
        self.report: PodsReport | None = None
        """The last report of what is known; ``None`` before the first."""
        self._fault = "none is known yet"

    def read(self, now_s: float) -> PodsReport | None:
        """Return the last report.

        Args:
            now_s: CLOCK_MONOTONIC.
        """
        self._now_s = now_s
        if self._connection is None:
            return None
        if self._heard_s is None:
            self._heard_s = now_s
        for report in waiting_messages.waiting_reports(
            self._connection, PodsReport, most=_TICK_MESSAGES, message_bytes=MAX_MESSAGE_BYTES
        ):
            self.report = report if report.known else self.report
            self._fault, self._heard_s = report.fault, now_s
        return self.report

    @property
    def faults(self) -> tuple[str, ...]:
        """Why what is known may be out of date, and which pods have no place."""
        if self._connection is None or self._heard_s is None:
            return ()
        report = self.report
        silent_s = self._now_s - self._heard_s
        if report is None:
            return (f"pods: {self._fault}",)
        said = [f"pods: {self._fault}"] if self._fault else []
        if silent_s > SILENT_S:
            said.append("pods: the process that follows them is silent")
        if report.left_out:
            more = "; ..." if report.left_out > len(report.odd) else ""
            said.append(f"pods: {report.left_out} left out: {'; '.join(report.odd)}{more}")
        if report.surplus:
            said.append(f"pods: {report.surplus} match a slot and have none, as all are taken")
        if report.beside:
            said.append(
                f"pods: {report.beside} more match a protected application; they are left "
                "alone, and not looked at"
            )
        return tuple(said)

    def close(self) -> None:
        """Close the socket."""
        if self._connection is not None:
            self._connection.close()
