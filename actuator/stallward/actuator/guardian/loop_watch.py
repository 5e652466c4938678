"""Watches the loop: its heartbeats, its messages, its death, and the length of its pauses."""

from __future__ import annotations

import contextlib
import math
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
from stallward.actuator.guardian.children import Channels
from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.guardian.sd_notify import Notifier
from stallward.actuator.ipc.channels import BEAT, SILENCE_S
from stallward.actuator.runtime.stderr_line import say

_SILENT_PERIODS: Final = 3.0
"""The number of tick periods for which a loop with long periods may be silent."""
_START_S: Final = 15.0
"""The longest time from the start of a loop to its first tick, on a node short of memory."""
LOOK_S: Final = 0.25
"""The time between two checks whether the loop is dying; they cost 0.05 % of a core."""
SPARE_S: Final = 0.5
"""How long to wait beyond the latest tick, because ending a loop costs more than a late tick."""
_SIGKILL_BIT: Final = 1 << (signal.SIGKILL - 1)
_PENDING_FIELDS: Final = (b"\nSigPnd:", b"\nShdPnd:")
_STATUS_BYTES: Final = 8192
_DEAD_STATES: Final = frozenset({b"Z", b"X"})
_MESSAGE_BYTES: Final = 65536


class LoopHealth:
    """Notes when the loop was last heard, and tells the service manager.

    Args:
        config: The configuration, for the time between ticks and the longest restart delay.
        notifier: The connection to the service manager.
    """

    def __init__(self, config: DaemonConfig, notifier: Notifier) -> None:
        self.silence_s = max(SILENCE_S, _SILENT_PERIODS * config.control.slowest_tick_s)
        self._notifier = notifier
        self._heard_s: float | None = None
        self._ready = False
        # A loop that hangs, is killed and started again must not trip the watchdog.
        notifier.allow(self.silence_s + config.restart.max_delay_s + _START_S)

    @property
    def due_s(self) -> float | None:
        """When the loop will count as hung unless it is heard before; ``None`` before it ticks."""
        return None if self._heard_s is None else self._heard_s + self.silence_s

    def beat(self) -> None:
        """Note a heartbeat, which the loop sends at every tick."""
        self._heard_s = time.monotonic()
        if not self._ready:
            self._ready = True
            say("the loop ticks")
            self._notifier.send("READY=1")
        self._notifier.status("The loop ticks.")
        self._notifier.feed()

    def heard(self) -> None:
        """Note any other message; it is a sign of life once the loop ticks."""
        if self._heard_s is not None:
            self._heard_s = time.monotonic()

    def forget(self, why: str) -> None:
        """Note that the loop is dead or dying, and report ``why`` to the service manager."""
        self._heard_s = None
        self._notifier.status(why)

    def hung(self, now_s: float) -> bool:
        """Whether a ticking loop has been silent for too long."""
        return self._heard_s is not None and now_s - self._heard_s > self.silence_s


def is_dying(proc: Path, pid: int) -> bool:
    """Whether a child that was not waited for yet is dead or must die without running further."""
    try:
        fd = os.open(proc / str(pid) / "status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # its pidfd reports a death in any case
        return False
    try:
        return shows_death(os.read(fd, _STATUS_BYTES))
    except OSError:
        return False
    finally:
        os.close(fd)


def shows_death(status: bytes) -> bool:
    """Whether a /proc/PID/status shows that the main thread has ended or has to."""
    if _first_word(status, b"\nState:") in _DEAD_STATES:
        return True
    return any(_mask(_first_word(status, name)) & _SIGKILL_BIT for name in _PENDING_FIELDS)


def _first_word(status: bytes, name: bytes) -> bytes:
    """The first word after ``name``; empty if there is none."""
    start = status.find(name)
    if start < 0:
        return b""
    line = status[start + len(name) :].split(b"\n", 1)[0]
    return line.split(None, 1)[0] if line.strip() else b""


def _mask(digits: bytes) -> int:
    """A hexadecimal mask of signals; 0 if it cannot be read."""
    try:
        return int(digits, 16)
    except ValueError:
        return 0


class LoopMessages:
    """Receives the loop's messages and answers them.

    Args:
        channels: The channels, with the socket to the loop.
        health: Gets every sign of life.
        journal: Gets the entries that the loop sends.
    """

    def __init__(self, channels: Channels, health: LoopHealth, journal: HeldJournal) -> None:
        self._channels = channels
        self._health = health
        self._journal = journal

    def take(self, link: socket.socket) -> None:
        """Receive one message, if there is one."""
        try:
            message = link.recv(_MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except OSError:
            return
        if message == BEAT:
            self._health.beat()
            _answer(link, BEAT)  # without it the loop knows that the guardian cannot restore
        elif message:
            self._health.heard()
            self._journal.take(message, lambda answer: _answer(link, answer))
        else:  # closed: the loop's process is ending, and everything is restored at its death
            self._channels.drop_link()

    def take_until_closed(self, timeout_s: float) -> None:
        """Receive messages until a stopping loop closes its socket: it may wait for answers."""
        deadline_s = time.monotonic() + timeout_s
        while (link := self._channels.link) is not None and time.monotonic() < deadline_s:
            if select.select([link], [], [], 0.1)[0]:
                self.take(link)


def _answer(link: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):
        link.send(answer, socket.MSG_DONTWAIT)


class PauseLimit:
    """The time by which the loop must end each of its pauses.

    Args:
        budgets: The guard's budgets, for the longest pause and the allowance for late ticks.
        in_force_s: Since when they are in force, CLOCK_MONOTONIC; a pause that began under other
            ones counts from then on.
    """

    def __init__(self, budgets: Budgets, *, in_force_s: float = -math.inf) -> None:
        self._longest_s = math.inf if budgets.lift_budgets else budgets.max_pause_s
        self._beyond_s = budgets.late_allowance_s + SPARE_S
        self._in_force_s = in_force_s

    def due_s(
        self, since_s: Sequence[float], longest_s: Sequence[float], started_s: float
    ) -> float | None:
        """When the first pause will have lasted too long; ``None`` if there is none.

        Args:
            since_s: The begin of each slot's pause, CLOCK_MONOTONIC; 0 if it is not paused.
            longest_s: The longest pause that the pod of each slot allows; infinite for no bound.
            started_s: When the loop was started; it did not begin pauses that are older.
        """
        dues_s = [
            max(since, self._in_force_s) + min(longest, self._longest_s) + self._beyond_s
            for since, longest in zip(since_s, longest_s, strict=True)
            if since >= started_s > 0.0
        ]
        due_s = min(dues_s, default=math.inf)
        return due_s if math.isfinite(due_s) else None
