"""Page-cache lookups for a trace, where the kernel allows them to be counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from stallward.actuator.errors import ActuatorError

if TYPE_CHECKING:
    from stallward.actuator.sensors.page_cache.counters import PageCacheCount, PageCacheReading


class Counters(Protocol):
    """Counts page-cache lookups."""

    def read(self) -> PageCacheReading:
        """Take the counts since the last read."""

    def process(self, pid: int) -> PageCacheCount:
        """The lookups of one process up to the last read."""

    def pids(self) -> frozenset[int]:
        """The processes that have looked pages up."""

    def close(self) -> None:
        """Detach from the kernel."""


_OFF: Final = "switched off"

OpenCounters = Callable[[Path], "Counters | str"]
"""Opens the counters, with sysfs given; returns why it cannot."""


def open_counters(sys: Path) -> Counters | str:
    """Open the counters of this machine; return why it cannot."""
    from stallward.actuator.sensors.page_cache.counters import (  # noqa: PLC0415 - it needs numpy
        PageCacheAbsent,
        open_page_cache,
    )

    opened = open_page_cache(sys=sys)
    return opened.reason if isinstance(opened, PageCacheAbsent) else opened


def no_counters(_sys: Path) -> Counters | str:
    """Count nothing, because it is not wanted."""
    return _OFF


class PageCacheLens:
    """The lookups of the node and of its processes since the trace began.

    Args:
        sys: Where sysfs is.
        open_: Opens the counters.
    """

    def __init__(self, sys: Path, *, open_: OpenCounters = open_counters) -> None:
        opened = open_(sys)
        self._counters = None if isinstance(opened, str) else opened
        self.absent = opened if isinstance(opened, str) else ""
        """Why nothing is counted; empty if it is."""
        self.node: PageCacheCount | None = None
        """The lookups of the node up to the last read."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Why nothing is counted, although it is wanted."""
        wanted = self.absent not in {"", _OFF}
        return (f"page cache by eBPF: {self.absent}",) if wanted else ()

    def read(self) -> None:
        """Take the counts since the last read; if the kernel refuses, nothing more is counted."""
        if self._counters is None:
            return
        try:
            self.node = self._counters.read().node
        except ActuatorError as error:
            self.close()
            self.absent = str(error)

    def count(self, pid: int) -> PageCacheCount | None:
        """The lookups of one process; ``None`` if nothing is counted."""
        return None if self._counters is None else self._counters.process(pid)

    def pids(self) -> frozenset[int]:
        """The processes that have looked pages up."""
        return frozenset() if self._counters is None else self._counters.pids()

    def close(self) -> None:
        """Detach from the kernel."""
        if self._counters is not None:
            self._counters.close()
            self._counters = None
        self.node = None
