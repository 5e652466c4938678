"""Chooses the processes that a tick reads: a bounded number, in turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.actuator.sensors.files.process_files import parse_pss
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.processes.tracked_process import TrackedProcess
from stallward.agent.sample import ProcessSample

# ---------- Proportional set sizes, read by a separate thread
# For smaps_rollup the kernel walks all page tables of a process (34 us for the smallest process,
# 10 ms for a gigabyte) and takes a lock that a starved process may hold for long. A tick must not
# wait for that.

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


KEPT_OPEN: Final = 128
"""How many processes have their files kept open (5 each); others are opened at each turn."""
ASKED: Final = 24
"""The work of a tick when a controller asks for processes; see :func:`_work`."""
UNASKED: Final = 2
"""The work of a tick otherwise; a few processes are each read about once in ``_REST_TICKS``."""
_REST_TICKS: Final = 10
_ROUND_TICKS: Final = 120
"""When a controller asks, reading all processes takes at most about this many ticks."""
_REOPENED_WORK: Final = 3
_THREADS_PER_WORK: Final = 2


def _work(process: TrackedProcess) -> int:
    """The cost of reading a process; 1 is about 20 us."""
    threads = process.threads if process.threads > 1 else 0
    return (1 if process.kept else _REOPENED_WORK) + threads // _THREADS_PER_WORK


class RoundRobin:
    """Reads the processes of groups in turn, the application's and the first slots' more often.

    Args:
        groups: The groups.
        near: How many groups, from the first, share half of the turns among themselves.
        pss: Reads proportional set sizes, where they are wanted.
    """

    def __init__(self, groups: Sequence[GroupProcesses], near: int, pss: PssReader) -> None:
        self.groups = list(groups)
        self._near = frozenset(id(group) for group in self.groups[:near])
        self._pss = pss
        self._queues: tuple[deque[TrackedProcess], deque[TrackedProcess]] = (deque(), deque())
        self._of_slot = {group.slot: group for group in self.groups}
        self._changed = True
        self._saved = 0
        """Work saved up for later ticks, in tenths (``_REST_TICKS``)."""
        self._favours_near = False
        self._list: list[ProcessSample] | None = None
        self._places: dict[int, int] = {}

    def rebind(self, before: GroupProcesses, after: GroupProcesses) -> None:
        """Read another group in place of one, which is closed."""
        self.groups[self.groups.index(before)] = after
        if id(before) in self._near:
            self._near = self._near - {id(before)} | {id(after)}
        self._of_slot[after.slot] = after
        self._list, self._changed = None, True
        before.close()

    def look(self, groups: Iterable[GroupProcesses]) -> None:
        """List the processes of some groups again."""
        kept = KEPT_OPEN - sum(len(group.tracked) for group in self.groups)
        arrivals: tuple[list[TrackedProcess], list[TrackedProcess]] = ([], [])
        for group in groups:
            before = len(group.tracked)
            if group.look(max(kept, 0) + before):
                self._list = None
            kept -= len(group.tracked) - before
            if group.arrivals:
                arrivals[0 if id(group) in self._near else 1].extend(group.arrivals)
                group.arrivals.clear()
        for queue, new in zip(self._queues, arrivals, strict=True):
            queue.extendleft(reversed(new))  # processes that left are dropped at their turn
            self._changed = self._changed or bool(new)

    def take(self, now_s: float, *, asked: bool) -> None:
        """Read the processes whose turn it is."""
        near, far = self._queues
        if not asked:
            budget = self._unasked()
        else:
            total = sum(len(group.tracked) for group in self.groups)
            unkept = max(total - KEPT_OPEN, 0)
            whole = total - unkept + _REOPENED_WORK * unkept
            budget = max(ASKED, whole // _ROUND_TICKS)
            if self._changed:
                self._changed = False
                self._pss.want(self._identities())
        self._favours_near = not self._favours_near
        half = (budget + self._favours_near) // 2
        left = budget - self._take_from(near, now_s, half if far else budget)
        self._take_from(far, now_s, left)

    def _unasked(self) -> int:
        """The work of this tick while no controller asks; new processes are read at once."""
        near, far = self._queues
        if any(queue and queue[0].sample is None for queue in (near, far)):
            return UNASKED
        self._saved = min(self._saved + len(near) + len(far), UNASKED * _REST_TICKS)
        budget, self._saved = divmod(self._saved, _REST_TICKS)
        return budget

    def _take_from(self, queue: deque[TrackedProcess], now_s: float, budget: int) -> int:
        spent = 0
        for _ in range(len(queue)):
            if spent >= budget:
                break
            process = queue.popleft()
            group = self._of_slot[process.slot]
            if group.tracked.get(process.pid) is not process:
                continue
            pss = self._pss.known_bytes((process.pid, process.start_time_ticks))
            if group.take_turn(process, now_s, pss):
                queue.append(process)
                self._replace(process)
            else:
                self._list = None
            spent += _work(process)
        return spent

    def _identities(self) -> list[TrackedProcess]:
        return [process for group in self.groups for process in group.tracked.values()]

    def samples(self) -> tuple[ProcessSample, ...]:
        """The last sample of every process that was read; the protected ones come first."""
        if self._list is None:
            read = [
                process.sample
                for group in self.groups
                for process in group.tracked.values()
                if process.sample is not None
            ]
            self._list = read
            self._places = {sample.pid: place for place, sample in enumerate(read)}
        return tuple(self._list)

    def _replace(self, process: TrackedProcess) -> None:
        """Put a process's new sample into the list without building it again."""
        place = self._places.get(process.pid)
        if self._list is None or place is None or process.sample is None:
            self._list = None
        else:
            self._list[place] = process.sample

    def pss_bytes(self, group: GroupProcesses) -> int | None:
        """The proportional set size of a group; ``None`` until all its processes were read."""
        total = 0
        for process in group.tracked.values():
            pss = self._pss.known_bytes((process.pid, process.start_time_ticks))
            if pss is None:
                return None
            total += pss
        return total

    def close(self) -> None:
        """Close every file and end the thread."""
        self._pss.close()
        for group in self.groups:
            group.close()
