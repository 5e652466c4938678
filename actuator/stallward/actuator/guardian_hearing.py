"""What the guardian hears of its loop: journal entries and signs of life, each answered."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import Final

from stallward.actuator.guardian.children import Wiring
from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.guardian.loop_watch import LoopHealth
from stallward.actuator.ipc.channels import BEAT

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
