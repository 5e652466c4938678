"""The loop's end: which pods have which place, as the process that follows them last said."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from stallward.actuator.errors import FramesError
from stallward.actuator.runtime.waiting_messages import waiting_messages
from stallward.actuator.targets.messages import MAX_MESSAGE_BYTES, PodsReport, unpack

SILENT_S: Final = 5.0
"""The process sends at least once a second; after so long without a word it is reported."""
_TICK_MESSAGES: Final = 64


class PodsChannel:
    """Reads the reports about pods, without ever waiting.

    What was reported last stays in force, however long nothing is heard: a pod whose cgroup is
    gone has no files, which the sensors and levers see by themselves.

    Args:
        connection: The socket on which reports come; ``None`` if no target is a pod.
    """

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._connection = connection
        self._heard_s: float | None = None
        self._now_s = 0.0
        self.report: PodsReport | None = None
        """The last report; ``None`` before the first."""

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
        waiting = waiting_messages(
            self._connection, most=_TICK_MESSAGES, message_bytes=MAX_MESSAGE_BYTES
        )
        for message in waiting:
            with contextlib.suppress(FramesError):  # a damaged one counts as none
                self.report = unpack(message)
                self._heard_s = now_s
        return self.report

    @property
    def faults(self) -> tuple[str, ...]:
        """Why what is known may be out of date, and which pods have no place."""
        if self._connection is None or self._heard_s is None:
            return ()
        report = self.report
        silent_s = self._now_s - self._heard_s
        if report is None:
            return ("pods: none is known yet",)
        said = [f"pods: {report.fault}"] if report.fault else []
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
