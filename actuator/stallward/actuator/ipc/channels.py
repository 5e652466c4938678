"""The sockets between the daemon's processes, as the loop uses them.

Everything is SOCK_SEQPACKET (a message is whole or not there). Sending records never waits: a
reader that is too slow loses them, and that is counted.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterable
from typing import Final

from stallward.actuator.errors import JournalError
from stallward.actuator.ipc.shared_memory import PLACES, SharedMemory
from stallward.actuator.journal.entries import NOTABLE, JournalEntry, Noted, to_line

EXIT_USER: Final = 2
"""Exit status of a process that cannot run because of a user's mistake."""
BEAT: Final = b"beat"
"""What a ticking loop sends its guardian once a second, and the guardian's answer."""
SILENCE_S: Final = 5.0
"""Guardian and loop each take the other for hung that has not been heard for so long."""
LOOP_DIED: Final = b"\x12\x00"
"""An empty CommandResult in a LoopMessage: the guardian's word to the service that no answer
will come to what was asked."""
MESSAGE_BYTES: Final = 1 << 20
SEND_BUFFER_BYTES: Final = 1 << 20
_SO_SNDBUFFORCE: Final = 32
_TICK_TAG: Final = b"\x0a"
_STATUS_TAG: Final = b"\x1a"
"""Fields 1 and 3 of LoopMessage, length-delimited (protobuf encoding)."""
_ENTRIES_PER_MESSAGE: Final = 100


def frame_tick(record: bytes) -> bytes:
    """``LoopMessage(tick=record)`` from a serialised record, without encoding it again."""
    return _framed(_TICK_TAG, record)


def frame_status(status: bytes) -> bytes:
    """``LoopMessage(status=status)`` from a serialised status."""
    return _framed(_STATUS_TAG, status)


def _framed(tag: bytes, content: bytes) -> bytes:
    length, prefix = len(content), bytearray(tag)
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + content


class Outlet:
    """Sends whole messages without ever waiting.

    Args:
        connection: A SOCK_SEQPACKET socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.dropped = 0
        """Messages that the other side was too slow or gone for."""
        connection.setblocking(False)
        for option in (_SO_SNDBUFFORCE, socket.SO_SNDBUF):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, option, SEND_BUFFER_BYTES)
                break

    def send(self, message: bytes) -> bool:
        """Send ``message``; returns whether it was taken."""
        try:
            self.connection.send(message)
        except OSError:  # full, or nobody is there: never the loop's problem
            self.dropped += 1
            return False
        return True

    def receive(self) -> bytes | None:
        """The next message; ``None`` if there is none (or the other side is gone)."""
        try:
            return self.connection.recv(MESSAGE_BYTES) or None
        except OSError:
            return None


class GuardianLink:
    """The loop's line to its guardian: entries are acknowledged before anything is changed.

    What is noted at the start is undone only while it is touched, and touching needs no answer:
    it is written to memory that the guardian reads when the loop is dead.

    Args:
        connection: A SOCK_SEQPACKET socket.
        timeout_s: How long to wait for an acknowledgement while ticking.
        memory: Shared with the guardian; without it every entry is undone.
        first_place: The first place of that memory that no earlier loop's entry needs.
    """

    def __init__(
        self,
        connection: socket.socket,
        timeout_s: float = 0.05,
        memory: SharedMemory | None = None,
        first_place: int = 0,
    ) -> None:
        self.connection = connection
        # Python waits for a socket with a time-out of its own, even where MSG_DONTWAIT is given.
        connection.setblocking(False)
        self._timeout_s = timeout_s
        self._memory = memory
        self._next_place = first_place
        self._held: dict[JournalEntry, JournalEntry] = {}
        """As the guardian holds each."""
        self.orphaned = False
        """Whether the guardian is known to be dead."""
        self._unanswered = 0
        self._beaten_s: float | None = None
        """When the guardian was first told of life that it has not confirmed."""
        self._problem = ""
        self._lock = threading.Lock()  # levers that write in threads of their own send entries too

    def hold(self, entries: Iterable[JournalEntry], timeout_s: float | None = None) -> None:
        """Have the guardian undo ``entries`` if this process dies.

        Raises:
            JournalError: If the guardian did not take them in time: change nothing.
        """
        with self._lock:
            new = [entry for entry in dict.fromkeys(entries) if entry not in self._held]
            for start in range(0, len(new), _ENTRIES_PER_MESSAGE):
                part = new[start : start + _ENTRIES_PER_MESSAGE]
                noted = [self._noted(entry) for entry in part]
                message = "".join(f"{to_line(entry)}\n" for entry in noted).encode()
                self._ask(message, self._timeout_s if timeout_s is None else timeout_s)
                self._held.update(zip(part, noted, strict=True))

    def _noted(self, entry: JournalEntry) -> JournalEntry:
        """An entry with its place in the touch table, if it is of those that have one."""
        place = self._next_place
        if self._memory is None or place >= PLACES or not isinstance(entry, NOTABLE):
            return entry
        self._next_place += 1
        return Noted(entry, place)

    def touch(self, entry: JournalEntry, moved: bool) -> None:
        """Have ``entry``, which is held, undone if this process dies, or not; never waits."""
        noted = self._held.get(entry)
        if self._memory is not None and isinstance(noted, Noted):
            if moved:
                self._memory.touch(noted.place)
            else:
                self._memory.settle(noted.place)

    def hold_one(self, *entries: JournalEntry) -> None:
        """:meth:`hold` for what the levers change now: one entry, or those of a whole tree."""
        self.hold(entries)

    def release_one(self, *entries: JournalEntry) -> None:
        """Tell the guardian that there is nothing to undo of ``entries``; never waits."""
        with self._lock:
            held = [entry for entry in entries if entry in self._held]
            for entry in held:
                self.touch(entry, moved=False)  # at once, whatever becomes of the message
            for start in range(0, len(held), _ENTRIES_PER_MESSAGE):
                part = held[start : start + _ENTRIES_PER_MESSAGE]
                message = "".join(
                    f"{to_line(self._held[entry], 'release')}\n" for entry in part
                ).encode()
                try:
                    self.connection.send(message, socket.MSG_DONTWAIT)
                except OSError:
                    return  # then they stay held
                self._unanswered += 1
                for entry in part:
                    del self._held[entry]

    def beat(self) -> None:
        """Tell the guardian that the loop ticks, and ask it for the same; never waits.

        Takes in the answers so far: nothing wakes the loop for them.
        """
        self._ended()
        if self._beaten_s is None:
            self._beaten_s = time.monotonic()
        with contextlib.suppress(OSError):
            self.connection.send(BEAT, socket.MSG_DONTWAIT)

    @property
    def held(self) -> tuple[JournalEntry, ...]:
        """What the guardian undoes if this process dies now, in order."""
        held = tuple(self._held.values())
        return held if self._memory is None else self._memory.in_force(held)

    @property
    def problem(self) -> str:
        """Why the guardian refused the last entry; empty if it took it."""
        return self._problem

    @property
    def overdue(self) -> bool:
        """Whether a sign of life is due that may have come in unread; asks no kernel."""
        beaten_s = self._beaten_s
        return beaten_s is not None and time.monotonic() - beaten_s > SILENCE_S

    @property
    def gone(self) -> bool:
        """Whether the guardian died or hangs: one that is stopped would undo nothing.

        Also takes in answers that came too late.
        """
        if self.overdue:
            return self._ended() or self._beaten_s is not None
        return self._ended()

    def _ended(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return False  # a thread is waiting for its answer, and will notice
        try:
            while select.select([self.connection], [], [], 0)[0]:
                answer = self.connection.recv(MESSAGE_BYTES)
                if not answer:
                    self.orphaned = True
                    return True
                if answer == BEAT:
                    self._beaten_s = None
                else:
                    self._unanswered = max(self._unanswered - 1, 0)
        except OSError:
            self.orphaned = True
            return True
        finally:
            self._lock.release()
        return False

    def _ask(self, message: bytes, timeout_s: float) -> None:
        try:
            deadline_s = time.monotonic() + timeout_s
            self._send_by(message, deadline_s)
            self._unanswered += 1
            while True:
                self._wait_by(select.POLLIN, deadline_s)
                answer = self.connection.recv(MESSAGE_BYTES)
                if not answer:
                    raise JournalError("The guardian is gone.")
                if answer == BEAT:
                    self._beaten_s = None
                    continue
                self._unanswered -= 1
                if answer.startswith(b"!"):
                    self._problem = answer[1:].decode("utf-8", "replace")
                    raise JournalError(self._problem)
                if self._unanswered == 0:  # earlier answers that came late are skipped
                    self._problem = ""
                    return
        except OSError as error:
            self._problem = (
                f"The guardian did not take a journal entry within {timeout_s:g} s ({error})."
            )
            raise JournalError(self._problem) from error

    def _send_by(self, message: bytes, deadline_s: float) -> None:
        while True:
            try:
                self.connection.send(message)
            except BlockingIOError:
                self._wait_by(select.POLLOUT, deadline_s)
            else:
                return

    def _wait_by(self, event: int, deadline_s: float) -> None:
        poller = select.poll()
        poller.register(self.connection, event)
        if not poller.poll(max(deadline_s - time.monotonic(), 0.0) * 1e3):
            raise TimeoutError("timed out")
