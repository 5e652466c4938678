"""The pages of a process over time, as a series of looks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.errors import ProcessEndedError
from stallward.agent.errors import StallwardError
from stallward.lens.page_tables import (
    MappingPages,
    Method,
    ProcessReading,
)

Clock = Literal["seconds", "instructions"]
EndedBy = Literal["process", "time", "interrupt", "error"]

ANONYMOUS = "[anonymous]"
"""The name of memory that maps no file and has no name of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All pages of the process at one time."""

    time: float
    """Since the first look, by the clock."""
    present: int
    file: int
    """Those of the present pages that belong to a file or to shared memory."""
    swapped: int
    reserved: int
    """Pages of address space without an entry in the page tables."""
    referenced: int | None
    """Pages touched since the referenced bits were cleared."""
    window: float | None
    """How long before that was, by the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingChange:
    """One mapping when its pages changed; it stays so until its next change."""

    time: float
    pages: MappingPages
    gone: bool = False
    """Whether the mapping no longer exists; its pages are as they were before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentSeries:
    """What was seen of a process."""

    pid: int
    clock: Clock
    method: Method
    every: float
    """The time between two looks that was asked for, by the clock."""
    looks: tuple[Look, ...]
    changes: tuple[MappingChange, ...]
    """By time, and then by address."""
    look_s: float
    """The mean time that a look took."""
    clear_s: float | None
    """The mean time that it took to clear the referenced bits; ``None`` if they never were."""
    ended_by: EndedBy
    error: StallwardError | None = None
    """Why it ended early; all else is of what came before."""

    def column(self, name: str) -> NDArray[np.float64]:
        """A figure of all looks; NaN where it is not known."""
        values = [getattr(look, name) for look in self.looks]
        return np.array([np.nan if one is None else one for one in values], dtype=np.float64)


def name_of(pages: MappingPages) -> str:
    """The name under which a mapping is summed up."""
    return pages.mapping.name.decode("utf-8", "replace") or ANONYMOUS


class SeriesBuilder:
    """Takes reading after reading; memory grows with the changes of mappings, and with looks."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.changes: list[MappingChange] = []
        self._last: dict[tuple[int, bytes], MappingPages] = {}
        self._took_s = 0.0

    def add(self, reading: ProcessReading, time: float, window: float | None) -> Look:
        """Take a reading.

        Args:
            reading: The reading.
            time: When it was, by the clock.
            window: How long before that the referenced bits were cleared; ``None`` if never.
        """
        mappings = reading.mappings
        look = Look(
            time=time,
            present=sum(one.present for one in mappings),
            file=sum(one.file for one in mappings),
            swapped=sum(one.swapped for one in mappings),
            reserved=sum(one.reserved for one in mappings),
            referenced=None if window is None else sum(one.referenced or 0 for one in mappings),
            window=window,
        )
        self.looks.append(look)
        self._took_s += reading.took_s
        now = {(one.mapping.start, one.mapping.name): one for one in mappings}
        if now != self._last:
            for key, one in now.items():
                if self._last.get(key) != one:
                    self.changes.append(MappingChange(time=time, pages=one))
            for key in self._last.keys() - now.keys():
                self.changes.append(MappingChange(time=time, pages=self._last[key], gone=True))
            self._last = now
        return look

    def series(
        self,
        *,
        pid: int,
        clock: Clock,
        method: Method,
        every: float,
        ended_by: EndedBy,
        clear_s: float | None = None,
        error: StallwardError | None = None,
    ) -> ResidentSeries:
        """All that was seen.

        Raises:
            StallwardError: ``error``, or that it ended too early, if there was no reading.
        """
        if not self.looks:
            raise error or ProcessEndedError(
                f"The watching of process {pid} ended before anything was read."
            )
        return ResidentSeries(
            pid=pid,
            clock=clock,
            method=method,
            every=every,
            looks=tuple(self.looks),
            changes=tuple(self.changes),
            look_s=self._took_s / max(len(self.looks), 1),
            clear_s=clear_s,
            ended_by=ended_by,
            error=error,
        )
