"""Sees which memory the processes of a group touch, in windows of several lengths."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ProcessError
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.env.sandbox.watch import PeriodicWatch
from stallward.lens.page_tables import PAGE_BYTES, ProcessPages

PERIOD_S: Final = 1.0
_WINDOW_LOOKS: Final = 5
"""After so many looks the referenced bits are cleared again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """What was touched in one window."""

    looks: int
    """The length of the window in times of ``PERIOD_S``."""
    touched_bytes: int


class TouchedPages(PeriodicWatch):
    """Looks once a second, and clears the referenced bits every five; a context manager.

    What several processes share counts for each of them. All of a process that started in the
    window counts as touched.

    Args:
        group: The group.
        proc: The /proc directory.
    """

    def __init__(self, group: Cgroup, proc: Path) -> None:
        super().__init__("touched-pages", PERIOD_S)
        self._group = group
        self._proc = proc
        self._processes: dict[int, ProcessPages] = {}
        self._looks = 0
        self._windows: list[tuple[float, Touched]] = []

    def since(self, begin_s: float) -> tuple[Touched, ...]:
        """What was seen from a time on, by CLOCK_MONOTONIC."""
        return tuple(found for seen_s, found in self._windows if seen_s >= begin_s)

    def _look(self) -> None:
        if self._looks > 0:
            total = sum(self._touched(pid) for pid in self._group.pids(recursive=True))
            found = Touched(looks=self._looks, touched_bytes=total * PAGE_BYTES)
            self._windows.append((time.monotonic(), found))
        if self._looks % _WINDOW_LOOKS == 0:
            self._clear()
            self._looks = 0
        self._looks += 1

    def _touched(self, pid: int) -> int:
        """The pages that a process touched; one that ends meanwhile touched none."""
        try:
            known = self._processes.get(pid)
            reading = (known or ProcessPages(self._proc, pid)).read()
        except ProcessError:
            return 0
        if known is None:
            return sum(one.present for one in reading.mappings)
        return sum(one.referenced or 0 for one in reading.mappings)

    def _clear(self) -> None:
        self._processes.clear()
        for pid in self._group.pids(recursive=True):
            try:
                pages = ProcessPages(self._proc, pid)
                pages.clear_referenced()
            except ProcessError:
                continue
            self._processes[pid] = pages
