"""One protected application in a live block: its server, its load generator and its requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.env.errors import WorkloadError
from stallward.env.recording.program_lines import parse_requests
from stallward.env.recording.recording import Requests
from stallward.env.sandbox.launch import Program, wait_for
from stallward.env.scenario.scenario import Command, LatencyLines, Places, ProtectedSpec, expand

_READY_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 3.0
_POLL_S: Final = 0.1
_LOAD_WAIT_S: Final = 1.0
"""The longest wait for the load generator to connect, before the first arrival."""
_TAIL_WAIT_S: Final = 5.0
"""The longest wait for the answers to the last requests, where only answers are logged."""

Start = Callable[[str, Command, Cgroup, Places], Program]
"""Starts a program of a name in a group, with the values of its placeholders."""


class ApplicationPrograms:
    """The programs of one protected application.

    Args:
        spec: The application.
        group: The group of its server.
        load_group: The group of load generators.
        latency: Where its requests are logged, with the placeholders filled in.
        places: The values of its placeholders.
        start: Starts its programs.
        prefix: Comes before the names of its programs, to tell several applications apart.
    """

    def __init__(
        self,
        *,
        spec: ProtectedSpec,
        group: Cgroup,
        load_group: Cgroup,
        latency: LatencyLines,
        places: Places,
        start: Start,
        prefix: str = "",
    ) -> None:
        self.spec = spec
        self._group, self._load_group = group, load_group
        self._latency, self._places = latency, places
        self._start_program, self._prefix = start, prefix
        self._server: Program | None = None
        self._load: Program | None = None

    def _start(self, name: str, command: Command, group: Cgroup) -> Program:
        return self._start_program(f"{self._prefix}{name}", command, group, self._places)

    def start_server(self) -> None:
        """Start the server, and wait until it is ready."""
        self._server = self._start("server", self.spec.server, self._group)
        ready = Path(expand(self.spec.ready, self._places))
        wait_for(ready, self._server, timeout_s=_READY_TIMEOUT_S)

    def warm(self) -> None:
        """Run the commands that warm the server, to their ends."""
        for index, argv in enumerate(self.spec.warm):
            command = replace(self.spec.load, argv=argv)
            warm = self._start(f"warm{index}", command, self._load_group)
            if warm.process.wait() != 0:
                warm.check(may_end=False)

    def start_load(self) -> None:
        """Start the load generator, and wait for a moment until it has connected."""
        self._load = self._start("load", self.spec.load, self._load_group)
        # Its first line comes with the first answer. Without this wait, the start of a slow load
        # generator would count as latency of the application.
        deadline_s = time.monotonic() + _LOAD_WAIT_S
        while not Path(self._latency.path).exists() and time.monotonic() < deadline_s:
            self._load.check(may_end=False)
            time.sleep(0.01)

    def check(self) -> None:
        """Check that the programs run.

        Raises:
            WorkloadError: If one has ended.
        """
        for program in (self._server, self._load):
            if program is not None:
                program.check(may_end=False)

    def end_load(self, end_s: float) -> None:
        """End the load generator once the requests due at ``end_s`` are logged."""
        if self._load is not None:
            self.await_tail(end_s)
            self._load.end(timeout_s=5.0)

    def end_server(self) -> None:
        """End the server, so that it can remove what it made outside of its group."""
        if self._server is not None:
            self._server.end(timeout_s=_STOP_TIMEOUT_S)

    def await_tail(self, end_s: float) -> None:
        """Wait until the log has reached the requests due at ``end_s``, for a few seconds at most.

        Requests that wait when the block ends are the slowest ones. A load generator that logs
        only answers would end without logging them. One that logs for each request whether it was
        answered (``ok``) logs these, too.
        """
        if self._latency.ok is not None:
            return
        deadline_s = time.monotonic() + _TAIL_WAIT_S
        while time.monotonic() < deadline_s:
            scheduled_s = self._logged().scheduled_s
            if scheduled_s.size and scheduled_s[-1] >= end_s:
                return
            time.sleep(_POLL_S)

    def requests(self, end_s: float) -> Requests:
        """The requests scheduled before ``end_s``; none if the application did not run.

        Raises:
            WorkloadError: If it ran and there are none.
        """
        if self._load is None:
            return Requests.empty()
        requests = self._logged()
        if not len(requests.scheduled_s):
            raise WorkloadError(
                f"No request was found in {self._latency.path}.",
                next_step="Check protected.latency of the scenario against what it writes.",
            )
        inside = requests.where(requests.scheduled_s < end_s)
        if self._latency.ok is not None:
            return inside
        return inside.with_unanswered(end_s, time.monotonic())

    def _logged(self) -> Requests:
        """The requests logged so far, by scheduled time."""
        text = read_lines(Path(self._latency.path))
        offset_s = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
        return parse_requests(text, self._latency, realtime_offset_s=offset_s)


def read_lines(path: Path) -> str:
    """The text that a program wrote; empty if there is no file."""
    if not path.is_file():
        return ""
    return path.read_text(encoding="utf-8", errors="replace")
