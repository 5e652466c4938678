"""Proportional set sizes, read by a thread of their own.

The kernel walks all of a process's page tables for smaps_rollup (34 us for the smallest, 10 ms
for a gigabyte) and takes a lock of the process that a starved one may hold for long: nothing for
a tick to wait for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.process_identity import start_time_ticks
from stallward.actuator.sensors.files.process_files import parse_pss
from stallward.actuator.sensors.processes.tracked_process import TrackedProcess

_REST_RATIO: Final = 1000
"""Rests so many times as long as a read took: 0.1 % of a core."""
_MIN_REST_S: Final = 0.02
_MAX_REST_S: Final = 30.0

Identity = tuple[int, int]
"""A pid and its start time."""


class PssReader:
    """Reads one process after the other, seldom.

    Args:
        proc: Where /proc is.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._wanted: Sequence[TrackedProcess] = ()
        self._found: dict[Identity, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def want(self, processes: Sequence[TrackedProcess]) -> None:
        """Read these from now on; the thread starts with the first call."""
        self._wanted = processes
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stallward-pss", daemon=True)
            self._thread.start()

    def known_bytes(self, process: Identity) -> int | None:
        """The share of a process, as it was when it was read last."""
        return self._found.get(process)

    def close(self) -> None:
        """End the thread; it is not waited for, a process may hold it up."""
        self._stop.set()
        self._thread = None

    def read_next(self, position: int) -> None:
        """Read one of the wanted processes."""
        wanted = self._wanted
        if not wanted:
            return
        process = wanted[position % len(wanted)]
        pid, ticks = process.pid, process.start_time_ticks
        if position % len(wanted) == 0:
            known = {(process.pid, process.start_time_ticks) for process in wanted}
            self._found = {key: value for key, value in self._found.items() if key in known}
        if ticks < 0:
            return  # it had no turn yet: nobody knows which process it is
        path = self._proc / str(pid) / "smaps_rollup"
        try:
            content = read_bytes(path)
            pss_bytes = None if content is None else parse_pss(content, path)
            if pss_bytes is not None and start_time_ticks(self._proc, pid) == ticks:
                self._found[pid, ticks] = pss_bytes
        except KernelFileError:
            self._found.pop((pid, ticks), None)

    def _run(self) -> None:
        position = 0
        rest_s = 0.0
        stop = self._stop
        while not stop.wait(rest_s):
            before_s = time.monotonic()
            self.read_next(position)
            position += 1
            took_s = time.monotonic() - before_s
            rest_s = min(max(took_s * _REST_RATIO, _MIN_REST_S), _MAX_REST_S)
