"""What is measured from outside while programs run: groups, and steal time."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

import psutil

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import read_text
from stallward.env.sandbox.zone_memory import memory_file

# ---------- A thread that looks at something again and again while programs run


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


_PERIOD_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPeak:
    """The most that one group had at a time."""

    memory_bytes: int = 0
    """In memory and in swap together."""
    threads: int = 0


class GroupWatch(PeriodicWatch):
    """Looks at groups twenty times a second; a context manager.

    Args:
        groups: The groups.
        proc: The /proc directory.
    """

    def __init__(self, groups: Sequence[Cgroup], proc: Path) -> None:
        super().__init__("group-watch", _PERIOD_S)
        self._groups = groups
        self._proc = proc
        self._peaks = [GroupPeak() for _ in groups]

    @property
    def peaks(self) -> tuple[GroupPeak, ...]:
        """The most of each group so far."""
        return tuple(self._peaks)

    def _look(self) -> None:
        for i, group in enumerate(self._groups):
            before = self._peaks[i]
            self._peaks[i] = GroupPeak(
                memory_bytes=max(before.memory_bytes, held_bytes(group)),
                threads=max(before.threads, count_threads(group, self._proc)),
            )


def held_bytes(group: Cgroup) -> int:
    """What a group has in memory and in swap, without the file pages that are taken first.

    What cannot be read counts as nothing.
    """
    if group.hierarchy.kind == "v2":
        held = _number(group, "memory.current") + _number(group, "memory.swap.current")
    else:
        both = _number(group, "memory.memsw.usage_in_bytes")  # memory and swap, where it is on
        held = max(_number(group, "memory.usage_in_bytes"), both)
    return max(held - (_stat(group, "inactive_file") or 0), 0)


def major_faults(group: Cgroup) -> int | None:
    """How many page faults of a group have read from a disk or from swap; ``None`` if not known."""
    return _stat(group, "pgmajfault")


def _stat(group: Cgroup, key: str) -> int | None:
    """A counter of memory.stat, which includes the groups below; ``None`` if it is absent."""
    wanted = key if group.hierarchy.kind == "v2" else f"total_{key}"
    for line in (read_text(memory_file(group, "memory.stat")) or "").splitlines():
        name, _, value = line.partition(" ")
        if name == wanted and value.isdigit():
            return int(value)
    return None


def _number(group: Cgroup, name: str) -> int:
    text = (read_text(memory_file(group, name)) or "").strip()
    return int(text) if text.isdigit() else 0


def count_threads(group: Cgroup, proc: Path) -> int:
    """The threads of the processes in a group; those that end meanwhile do not count."""
    threads = 0
    for pid in group.pids(recursive=True):
        with contextlib.suppress(OSError):
            threads += sum(1 for _ in (proc / str(pid) / "task").iterdir())
    return threads


# ---------- Measures steal time: CPU time that the host gave to other machines (proc(5), ``steal``)


class StealTime:
    """The steal time since a moment."""

    def __init__(self, begin_s: float, steal_s: float) -> None:
        self._begin_s, self._steal_s = begin_s, steal_s

    @classmethod
    def from_now(cls) -> Self:
        """Begin to measure now."""
        return cls(time.monotonic(), _total_s())

    def share(self) -> float:
        """The share of all CPU time since the beginning; 0 if the kernel does not report it."""
        span_s = (time.monotonic() - self._begin_s) * (psutil.cpu_count() or 1)
        return min(max((_total_s() - self._steal_s) / max(span_s, 1e-9), 0.0), 1.0)


_ROUNDS: Final = 20_000
"""Rounds of a hash that take some 10 ms, without the interpreter's lock."""


def probe_steal_share(length_s: float = 1.0) -> float:
    """The share of steal time while every CPU computes and does nothing else.

    Only a CPU that wants to run shows steal time, and a host may also take it for the I/O of this
    machine. Without any I/O it is what the host gives to others.

    Args:
        length_s: How long to compute. The kernel counts steal time in steps of 10 ms.
    """
    steal_time, end_s = StealTime.from_now(), time.monotonic() + length_s

    def compute() -> None:
        while time.monotonic() < end_s:
            hashlib.pbkdf2_hmac("sha256", b"", b"", _ROUNDS)

    threads = [threading.Thread(target=compute) for _ in range(psutil.cpu_count() or 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return steal_time.share()


def _total_s() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))
