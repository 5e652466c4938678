"""The loop's end: the work of every slot, as the collector last reported it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from stallward.actuator.runtime.waiting_messages import waiting_reports
from stallward.actuator.work.config import CpuWork, WorkConfig, describe, unit_of
from stallward.actuator.work.counter import MAX_MESSAGE_BYTES, WorkReport, fault_of
from stallward.agent.sample import WorkFault, WorkSample, WorkSource

_TICK_MESSAGES: Final = 256
"""The most messages that one tick reads; each source sends ten a second at most."""
_WORDS: Final = {
    WorkFault.NOT_READ: "was not read yet",
    WorkFault.NOT_FINITE: "is not finite",
    WorkFault.NEGATIVE: "is negative",
    WorkFault.TOO_LARGE: "is larger than 2^53",
    WorkFault.FELL: "fell: it was started again or set back, so that span does not count",
    WorkFault.CHANGED: "selects other series than before, so that span does not count",
    WorkFault.SILENT: "is not reported",
}


class WorkChannel:
    """Reads the reports of the collector, without ever waiting.

    Args:
        sources: The source of each slot, in slot order.
        connection: The socket on which reports come; ``None`` if nothing reads the sources.
    """

    def __init__(
        self, sources: Sequence[WorkConfig], connection: socket.socket | None = None
    ) -> None:
        self._sources = tuple(sources)
        self._connection = connection
        self._reports: dict[int, WorkReport] = {}
        self._now_s = 0.0

    def read(self, now_s: float) -> tuple[WorkSample, ...]:
        """Return the work of the slots that have a source of their own.

        Args:
            now_s: CLOCK_MONOTONIC.
        """
        self._now_s = now_s
        self._receive()
        return tuple(
            self._sample(slot, work.source, unit_of(work))
            for slot, work in enumerate(self._sources)
            if not isinstance(work, CpuWork) and self._connection is not None
        )

    def _receive(self) -> None:
        if self._connection is None:
            return
        for report in waiting_reports(
            self._connection, WorkReport, most=_TICK_MESSAGES, message_bytes=MAX_MESSAGE_BYTES
        ):
            if _usable(report):
                self._reports[report.slot] = report

    def _sample(self, slot: int, source: str, unit: str) -> WorkSample:
        report = self._reports.get(slot)
        return WorkSample(
            slot=slot,
            source=WorkSource(source),
            unit=unit,
            units=0.0 if report is None else report.units,
            known_s=0.0 if report is None else report.known_s,
            read_s=None if report is None else report.read_s,
            fault=self._fault(slot, report),
        )

    def _fault(self, slot: int, report: WorkReport | None) -> WorkFault:
        work = self._sources[slot]
        if report is None or isinstance(work, CpuWork):
            return WorkFault.NOT_READ
        if self._now_s - report.sent_s > work.silent_s:
            return WorkFault.SILENT
        return report.fault

    def faults(self) -> tuple[str, ...]:
        """Say for each slot why its work is not known now; empty where it is.

        Processor time is known where the group's file can be read, and is not judged here.
        """
        return tuple(self._fault_text(slot, work) for slot, work in enumerate(self._sources))

    def _fault_text(self, slot: int, work: WorkConfig) -> str:
        if isinstance(work, CpuWork):
            return ""
        report = self._reports.get(slot)
        fault = self._fault(slot, report)
        if fault is WorkFault.NONE:
            return ""
        silent = report is None or fault is WorkFault.SILENT
        detail = "" if silent or report is None else report.detail
        return f"{describe(work)} {detail or _WORDS.get(fault, fault.value)}"

    def close(self) -> None:
        """Close the socket."""
        if self._connection is not None:
            self._connection.close()


def _usable(report: WorkReport) -> bool:
    return all(fault_of(x) is WorkFault.NONE for x in (report.units, report.known_s))
