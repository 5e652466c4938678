"""A thread that looks at something again and again while programs run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import Event, Thread
from types import TracebackType
from typing import Self


class PeriodicWatch(ABC):
    """Looks until its context ends; a context manager.

    Args:
        name: The name of its thread.
        period_s: The time between two looks.
    """

    def __init__(self, name: str, period_s: float) -> None:
        self._period_s = period_s
        self._stop = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            self._look()

    @abstractmethod
    def _look(self) -> None:
        """Look once, in the thread."""
