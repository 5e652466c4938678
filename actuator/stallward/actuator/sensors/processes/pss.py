"""Proportional set sizes, read by a separate thread.

For smaps_rollup the kernel walks all page tables of a process (34 us for the smallest process,
10 ms for a gigabyte) and takes a lock that a starved process may hold for long. A tick must not
wait for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.actuator.sensors.files.process_files import parse_pss
from stallward.actuator.sensors.processes.tracked_process import TrackedProcess

_REST_RATIO: Final = 1000
"""The thread rests this many times as long as a read took, so it takes 0.1 % of a core."""
_MIN_REST_S: Final = 0.02
_MAX_REST_S: Final = 30.0

Identity = tuple[int, int]
"""A pid and its start time."""


class PssReader:
    """Reads one process after the other, with long rests between.

    Args:
        proc: The /proc directory.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._wanted: Sequence[TrackedProcess] = ()
        self._sizes: dict[Identity, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def want(self, processes: Sequence[TrackedProcess]) -> None:
        """Read these processes from now on; the first call starts the thread."""
        self._wanted = processes
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stallward-pss", daemon=True)
            self._thread.start()

    def known_bytes(self, process: Identity) -> int | None:
        """The proportional set size of a process at the last read; ``None`` if not read yet."""
        return self._sizes.get(process)

    def close(self) -> None:
        """End the thread without waiting for it, since a process may hold it up."""
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
            self._sizes = {key: value for key, value in self._sizes.items() if key in known}
        if ticks < 0:
            return  # it has not been read yet, so its start time is unknown
        path = self._proc / str(pid) / "smaps_rollup"
        try:
            content = read_bytes(path)
            pss_bytes = None if content is None else parse_pss(content, path)
            if pss_bytes is not None and start_time_ticks(self._proc, pid) == ticks:
                self._sizes[pid, ticks] = pss_bytes
        except KernelFileError:
            self._sizes.pop((pid, ticks), None)

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
