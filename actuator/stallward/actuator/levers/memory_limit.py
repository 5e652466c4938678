"""Limiting a group's memory, also of a paused group: squeezing it.

v1: memory.limit_in_bytes. v2: memory.high, which never makes the kernel kill; memory.max would.

Writing a limit below what the group uses reclaims before the write returns (0.2-0.8 s for
300 MB) and v1 may refuse with EBUSY after having reclaimed most. So a thread of its own writes,
in bounded steps: a new wish is taken up between two steps and the last one wins.
"""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError, LeverError
from stallward.actuator.groups import Group
from stallward.actuator.kernelfile import read_text, write_text
from stallward.actuator.levers.originals import Originals
from stallward.actuator.levers.result import LeverResult
from stallward.actuator.levers.spared import Spared
from stallward.agent.desired import MIB
from stallward.agent.errors import StallwardError

STEP_BYTES: Final = 64 * MIB
"""At most this much is reclaimed by one write: about 0.1 s."""
_MOST_STEPS: Final = 2000
_STUCK_TRIES: Final = 5
"""Writes in a row that may reclaim nothing before the limit is given up."""
RETRY_S: Final = 1.0
"""How long a limit that could not be reached is not tried again."""
_RESTORE_S: Final = 2.0
_LARGEST_PAGE_BYTES: Final = 65536


class _LeftAloneError(LeverError):
    """Raised when somebody else has set the limit since: it is theirs now."""


class MemoryLimitLever:
    """The memory limit of one group, written by a thread of its own.

    Args:
        group: The background group.
        originals: Keeps the journal.
        spared: Processes with which no group is limited.
    """

    def __init__(
        self, group: Group, originals: Originals, *, spared: Spared | None = None
    ) -> None:
        v2 = group.hierarchy.kind == "v2"
        folder = group.memory_dir
        self._group = group
        self._name = f"limit:{group.name.rpartition('/')[2]}"
        self._originals = originals
        self._spared = spared or Spared()
        self._path = folder and folder / ("memory.high" if v2 else "memory.limit_in_bytes")
        self._usage = folder and folder / ("memory.current" if v2 else "memory.usage_in_bytes")
        self._unlimited = "max" if v2 else "-1"
        self._wake = threading.Condition()
        self._wanted: int | None = None
        self._serial = 0
        """Counts wishes, so that the writer sees a new one between two steps."""
        self._done = 0
        self._failed_at_s = 0.0
        self._in_force: int | None = None
        self._written: int | None = None
        """What this lever wrote last; ``None`` when it has put the original back."""
        self._stop = False
        self._results: deque[LeverResult] = deque()
        self._thread: threading.Thread | None = None
        if self._path is not None:
            originals.note_file(self._path)

    @property
    def missing(self) -> str:
        """Why this lever cannot be used; empty if it can."""
        if self._path is None:
            return f"{self._name}: no memory controller"
        if self._group.exists() and not self._path.exists():
            return f"{self._name}: no {self._path}"
        return ""

    @property
    def limit_bytes(self) -> int | None:
        """The limit that holds or is being worked towards; ``None`` for the original one."""
        with self._wake:
            return self._in_force if self._failed_at_s else self._wanted

    @property
    def held(self) -> bool:
        """Whether the limit may not be the original one."""
        with self._wake:
            settled = self._done == self._serial and not self._failed_at_s
            return self._written is not None or not settled

    @property
    def busy(self) -> bool:
        """Whether the writer has not finished yet."""
        with self._wake:
            return self._done != self._serial

    def apply(self, limit_bytes: int | None) -> None:
        """Wish for a limit; ``None`` for the original one. Returns at once."""
        with self._wake:
            settled = not self._failed_at_s or time.monotonic() < self._failed_at_s + RETRY_S
            if limit_bytes == self._wanted and settled:
                return
            self._wanted, self._failed_at_s = limit_bytes, 0.0
            self._serial += 1
            self._wake.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"stallward-{self._name}", daemon=True
                )
                self._thread.start()

    def poll(self) -> tuple[LeverResult, ...]:
        """What the writer has finished since the last call."""
        results = []
        while self._results:
            results.append(self._results.popleft())
        return tuple(results)

    def restore(self) -> None:
        """Wish for the original limit and wait for it, but not for ever."""
        self.apply(None)
        with self._wake:
            self._stop = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(_RESTORE_S)
            if not self._thread.is_alive():
                self._thread, self._stop = None, False

    def _run(self) -> None:
        # A signal would end a write half way; the main thread handles them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            with self._wake:
                while self._done == self._serial and not self._stop:
                    self._wake.wait()
                if self._done == self._serial:
                    return
                serial, wanted = self._serial, self._wanted
            started_s = time.monotonic()
            error, left = "", False
            try:
                finished = self._write(wanted, serial)
            except (StallwardError, OSError) as failure:
                finished, error = True, str(failure)
                left = isinstance(failure, _LeftAloneError) and wanted is None
            if not finished:
                continue  # a newer wish
            with self._wake:
                if error and not left and serial == self._serial:
                    self._failed_at_s = time.monotonic()
                if left or not error:
                    self._in_force = wanted
                    self._written = self._written if wanted is not None else None
                self._done = serial
            self._results.append(
                LeverResult(
                    lever=self._name,
                    value="original" if wanted is None else str(wanted),
                    ok=not error,
                    error=error,
                    took_ms=(time.monotonic() - started_s) * 1e3,
                )
            )

    def _write(self, wanted: int | None, serial: int) -> bool:
        """Move to ``wanted``; false if a newer wish came in between.

        Raises:
            StallwardError: If the limit cannot be reached.
        """
        if self._path is None or self._usage is None:
            raise LeverError("There is no memory controller.")
        self._refuse_if_foreign(self._path)
        if wanted is None:
            self._write_original(self._path)
            return True
        self._spared.check(self._group)
        original = self._originals.ensure_file(self._path)
        if original.isdigit():
            wanted = min(wanted, int(original))  # a group is never given more than it had
        stuck = 0
        for _ in range(_MOST_STEPS):
            usage = self._read_usage(self._usage)
            step = max(wanted, usage - STEP_BYTES)
            done = self._write_step(self._path, step)
            with self._wake:
                if done:
                    self._in_force = self._written = step
                if serial != self._serial:
                    return False
            if done and step == wanted:
                return True
            stuck = 0 if self._read_usage(self._usage) < usage else stuck + 1
            if stuck >= _STUCK_TRIES:
                break
        raise LeverError(
            f"{self._path}: {usage} bytes in use cannot be reclaimed to {wanted}.",
            next_step="Give the group a larger floor, or the node more swap.",
        )

    def _refuse_if_foreign(self, path: Path) -> None:
        """Keep hands off a limit that somebody else has set since it was written here.

        Raises:
            LeverError: Saying what it is now.
        """
        ours, now = self._written, read_text(path)
        if ours is None or now is None:
            return
        # The kernel keeps whole pages.
        if not now.isdigit() or abs(int(now) - ours) >= _LARGEST_PAGE_BYTES:
            self._originals.forget(path)
            raise _LeftAloneError(f"{path} is {now} now, set by somebody else; left as it is.")

    def _write_original(self, path: Path) -> None:
        original = self._originals.value(path)
        if original is None or not self._group.exists():
            return  # never changed, or gone with its limit
        try:
            write_text(path, original)
        except KernelFileError as error:
            if error.number != errno.EBUSY:
                raise
            # The original is below what is used now: no limit rather than a stuck one.
            write_text(path, self._unlimited)
            self._written = None
            raise

    @staticmethod
    def _write_step(path: Path, value: int) -> bool:
        """Write one step; false if v1 could not reclaim all of it."""
        try:
            write_text(path, str(value))
        except KernelFileError as error:
            if error.number in {errno.EBUSY, errno.EINTR}:
                return False
            raise
        return True

    @staticmethod
    def _read_usage(path: Path) -> int:
        text = read_text(path)
        if text is None or not text.isdigit():
            raise LeverError(f"{path}: no usage to be read ({text!r}).")
        return int(text)
