"""Whether the loop lives: its heartbeats, and what the service manager is told of them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guardian.children import Wiring
from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.guardian.sd_notify import Notifier
from stallward.actuator.ipc.channels import BEAT, SILENCE_S

_SILENT_PERIODS: Final = 3.0
"""A loop whose ticks are far apart may be silent for so many of them."""
_START_S: Final = 15.0
"""How long a loop may take from its start to its first tick, on a starving node."""


class LoopHealth:
    """When the loop was heard last.

    Args:
        config: Says how far apart ticks are, and how long a restart may be put off.
        notifier: The service manager.
    """

    def __init__(self, config: DaemonConfig, notifier: Notifier) -> None:
        self.silence_s = max(SILENCE_S, _SILENT_PERIODS * config.control.slowest_tick_s)
        self._notifier = notifier
        self._heard_s: float | None = None
        self._ready = False
        # A loop that hangs, is killed and started again must not trip the watchdog.
        notifier.allow(self.silence_s + config.restart.max_delay_s + _START_S)

    @property
    def ticking(self) -> bool:
        """Whether the loop that runs now has ticked."""
        return self._heard_s is not None

    @property
    def due_s(self) -> float | None:
        """When the loop counts as hung if it is not heard before."""
        return None if self._heard_s is None else self._heard_s + self.silence_s

    def beat(self) -> None:
        """The loop says that it has ticked."""
        self._heard_s = time.monotonic()
        if not self._ready:
            self._ready = True
            self._notifier.send("READY=1")
        self._notifier.status("The loop ticks.")
        self._notifier.feed()

    def heard(self) -> None:
        """A ticking loop sent something else: it lives."""
        if self._heard_s is not None:
            self._heard_s = time.monotonic()

    def forget(self, why: str) -> None:
        """The loop is dead, or will be."""
        self._heard_s = None
        self._notifier.status(why)

    def hung(self, now_s: float) -> bool:
        """Whether a ticking loop has been silent for too long."""
        return self._heard_s is not None and now_s - self._heard_s > self.silence_s


LOOK_S: Final = 0.25
"""How often to look; waking up for it costs 0.05 % of a core."""


_KILLED: Final = 1 << (signal.SIGKILL - 1)


_PENDING: Final = (b"\nSigPnd:", b"\nShdPnd:")


_STATUS_BYTES: Final = 8192


_OVER: Final = frozenset({b"Z", b"X"})


def is_dying(proc: Path, pid: int) -> bool:
    """Whether a child that was not waited for yet runs no more of its program."""
    try:
        fd = os.open(proc / str(pid) / "status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # waiting for it says the rest
        return False
    try:
        return tells_death(os.read(fd, _STATUS_BYTES))
    except OSError:
        return False
    finally:
        os.close(fd)


def tells_death(status: bytes) -> bool:
    """Whether a /proc/PID/status is that of a process whose main thread has ended or must."""
    if _word(status, b"\nState:") in _OVER:
        return True
    return any(_mask(_word(status, name)) & _KILLED for name in _PENDING)


def _word(status: bytes, name: bytes) -> bytes:
    """The first word after ``name``; empty if there is none."""
    start = status.find(name)
    if start < 0:
        return b""
    line = status[start + len(name) :].split(b"\n", 1)[0]
    return line.split(None, 1)[0] if line.strip() else b""


def _mask(digits: bytes) -> int:
    try:
        return int(digits, 16)
    except ValueError:
        return 0


_MESSAGE_BYTES: Final = 65536


class Hearing:
    """The guardian's side of the talk with its loop.

    Args:
        wiring: Holds the socket to the loop.
        health: Is told of every sign of life.
        journal: Takes the entries.
    """

    def __init__(self, wiring: Wiring, health: LoopHealth, journal: HeldJournal) -> None:
        self._wiring = wiring
        self._health = health
        self._journal = journal

    def take(self, link: socket.socket) -> None:
        """Take one message, if there is one."""
        try:
            message = link.recv(_MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except OSError:
            return
        if message == BEAT:
            self._health.beat()
            _answer(link, BEAT)  # a guardian that is stopped could not restore: it must show
        elif message:
            self._health.heard()
            self._journal.take(message, lambda answer: _answer(link, answer))
        else:  # closed: its process is ending, reaping it restores
            self._wiring.drop_link()

    def until_closed(self, timeout_s: float) -> None:
        """Go on answering a loop that stops: it may be waiting for us."""
        deadline_s = time.monotonic() + timeout_s
        while (link := self._wiring.link) is not None and time.monotonic() < deadline_s:
            if select.select([link], [], [], 0.1)[0]:
                self.take(link)


def _answer(link: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):
        link.send(answer, socket.MSG_DONTWAIT)


SPARE_S: Final = 0.5
"""How much later than a tick may be the loop is waited for: ending it costs more than a tick."""


class PauseLimit:
    """Until when the loop that runs now must have ended its pauses.

    Args:
        budgets: Says how long a pause may be, and how late a tick.
    """

    def __init__(self, budgets: Budgets) -> None:
        self._longest_s = budgets.max_pause_s + budgets.late_allowance_s + SPARE_S
        self._lifted = budgets.lift_budgets

    def due_s(self, since_s: Sequence[float], started_s: float) -> float | None:
        """When the first pause will have lasted too long; ``None`` if there is none.

        Args:
            since_s: Since when the loop keeps each slot paused, CLOCK_MONOTONIC; 0 if it does not.
            started_s: When it was started: what is older is not its own.
        """
        own = [since for since in since_s if since >= started_s > 0.0]
        return None if self._lifted or not own else min(own) + self._longest_s
