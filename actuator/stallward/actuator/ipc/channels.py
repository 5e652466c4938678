"""The loop's ends of the sockets between the daemon's processes.

All are SOCK_SEQPACKET, so that a message arrives whole or not at all. Sending a record never
waits: when the reader is too slow, the record is dropped and counted.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final

from stallward.actuator.errors import JournalError
from stallward.actuator.ipc.shared_memory import PLACES, SharedMemory
from stallward.actuator.journal.entries import NOTABLE, JournalEntry, Noted, to_line

EXIT_USER: Final = 2
"""The exit status of a process that cannot run because of a user's mistake."""
BEAT: Final = b"beat"
"""The message that a ticking loop sends its guardian once a second, and the answer to it."""
SILENCE_S: Final = 5.0
"""The guardian takes the loop for hung after so long without a message, and vice versa."""
LOOP_DIED: Final = b"\x12\x00"
"""An empty CommandResult in a LoopMessage: the guardian tells the service with it that the loop
has died and will not answer its commands."""
MESSAGE_BYTES: Final = 1 << 20
SEND_BUFFER_BYTES: Final = 1 << 20
_SO_SNDBUFFORCE: Final = 32
_TICK_TAG: Final = b"\x0a"
"""The tag of field 1 of LoopMessage, length-delimited (protobuf encoding)."""
_STATUS_TAG: Final = b"\x1a"
"""The tag of field 3 of LoopMessage, length-delimited (protobuf encoding)."""
_ENTRIES_PER_MESSAGE: Final = 100


def frame_tick(record: bytes) -> bytes:
    """Return ``LoopMessage(tick=record)`` of a serialised record, without encoding it again."""
    return _length_delimited(_TICK_TAG, record)


def frame_status(status: bytes) -> bytes:
    """Return ``LoopMessage(status=status)`` of a serialised status."""
    return _length_delimited(_STATUS_TAG, status)


def _length_delimited(tag: bytes, content: bytes) -> bytes:
    length, prefix = len(content), bytearray(tag)
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + content


class MessageSocket:
    """Sends and receives whole messages without ever waiting.

    Args:
        connection: A SOCK_SEQPACKET socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.dropped = 0
        """How many messages were dropped because the other end was too slow or closed."""
        connection.setblocking(False)
        for option in (_SO_SNDBUFFORCE, socket.SO_SNDBUF):
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, option, SEND_BUFFER_BYTES)
                break

    def send(self, message: bytes) -> bool:
        """Send ``message``; return whether it was taken."""
        try:
            self.connection.send(message)
        except OSError:  # full, or the other end is closed: the loop goes on
            self.dropped += 1
            return False
        return True

    def receive(self) -> bytes | None:
        """Return the next message; ``None`` if there is none or the other end is closed."""
        try:
            return self.connection.recv(MESSAGE_BYTES) or None
        except OSError:
            return None


class GuardianLink:
    """The loop's connection to its guardian, which acknowledges entries before they are changed.

    An entry with a place in the touch table is undone only while it is touched. Touching needs no
    answer: it is a write to memory that the guardian reads when the loop is dead.

    Args:
        connection: A SOCK_SEQPACKET socket.
        timeout_s: How long to wait for an acknowledgement while ticking.
        memory: The memory shared with the guardian; without it every entry is undone.
        first_place: The first place in that memory that is free of earlier loops' entries.
    """

    def __init__(
        self,
        connection: socket.socket,
        timeout_s: float = 0.05,
        memory: SharedMemory | None = None,
        first_place: int = 0,
    ) -> None:
        self.connection = connection
        # Otherwise Python itself waits for the socket, even where MSG_DONTWAIT is given.
        connection.setblocking(False)
        self._timeout_s = timeout_s
        self._memory = memory
        self._next_place = first_place
        self._free_places: list[int] = []
        """Places of entries that were released."""
        self._held: dict[JournalEntry, JournalEntry] = {}
        """Each entry, and the form in which the guardian holds it."""
        self._asked: dict[JournalEntry, JournalEntry] = {}
        """The same of entries that it did not take, or has not said that it took."""
        self.orphaned = False
        """Whether the guardian is known to be dead."""
        self._unanswered = 0
        self._beaten_s: float | None = None
        """When the first beat was sent that the guardian has not answered yet."""
        self._problem = ""
        self._lock = threading.Lock()  # threads of levers send entries, too

    def hold_all(self, entries: Iterable[JournalEntry], timeout_s: float | None = None) -> None:
        """Have the guardian undo ``entries`` if this process dies.

        Raises:
            JournalError: If the guardian did not take them in time; nothing may be changed then.
        """
        with self._lock:
            new = [entry for entry in dict.fromkeys(entries) if entry not in self._held]
            for start in range(0, len(new), _ENTRIES_PER_MESSAGE):
                part = new[start : start + _ENTRIES_PER_MESSAGE]
                # Asked again with the same place: it may hold the entry, and places are few.
                noted = [
                    self._asked.pop(entry) if entry in self._asked else self._noted(entry)
                    for entry in part
                ]
                message = "".join(f"{to_line(entry)}\n" for entry in noted).encode()
                try:
                    self._ask(message, self._timeout_s if timeout_s is None else timeout_s)
                except JournalError:
                    self._asked.update(zip(part, noted, strict=True))
                    raise
                self._held.update(zip(part, noted, strict=True))

    def _noted(self, entry: JournalEntry) -> JournalEntry:
        """Give the entry a place in the touch table, if its kind takes one and one is free."""
        if self._memory is None or not isinstance(entry, NOTABLE):
            return entry
        if self._free_places:
            return Noted(entry, self._free_places.pop())
        place = self._next_place
        if place >= PLACES:
            return entry
        self._next_place += 1
        return Noted(entry, place)

    def touch(self, entry: JournalEntry, moved: bool, values: Sequence[str] = ()) -> None:
        """Mark a held ``entry`` as changed, between two ``values``, or as restored; never wait.

        If this process dies, the guardian undoes only entries that are marked as changed.
        """
        noted = self._held.get(entry)
        if self._memory is not None and isinstance(noted, Noted):
            if moved:
                self._memory.touch(noted.place, values)
            else:
                self._memory.settle(noted.place)

    def hold(self, *entries: JournalEntry) -> None:
        """Call :meth:`hold_all` for entries that a lever is about to change.

        Raises:
            JournalError: See there.
        """
        self.hold_all(entries)

    def release(self, *entries: JournalEntry) -> None:
        """Tell the guardian that ``entries`` need not be undone any more; never wait."""
        with self._lock:
            held = [entry for entry in entries if entry in self._held]
            for entry in held:
                self.touch(entry, moved=False)  # in force at once, even if the message is lost
            for start in range(0, len(held), _ENTRIES_PER_MESSAGE):
                part = held[start : start + _ENTRIES_PER_MESSAGE]
                message = "".join(
                    f"{to_line(self._held[entry], 'release')}\n" for entry in part
                ).encode()
                try:
                    self.connection.send(message, socket.MSG_DONTWAIT)
                except OSError:
                    return  # these entries stay held
                self._unanswered += 1
                for entry in part:
                    noted = self._held.pop(entry)
                    if isinstance(noted, Noted):
                        # The guardian reads the release before it reads who has the place next.
                        self._free_places.append(noted.place)

    def beat(self) -> None:
        """Tell the guardian that the loop ticks, and ask it to answer; never wait.

        This also reads the answers so far, for which nothing wakes the loop.
        """
        self._read_answers()
        if self._beaten_s is None:
            self._beaten_s = time.monotonic()
        with contextlib.suppress(OSError):
            self.connection.send(BEAT, socket.MSG_DONTWAIT)

    @property
    def held(self) -> tuple[JournalEntry, ...]:
        """The entries that the guardian would undo, in order, if this process died now."""
        held = tuple(self._held.values())
        return held if self._memory is None else self._memory.in_force(held)

    @property
    def problem(self) -> str:
        """Why the guardian did not take the last entry; empty if it did."""
        return self._problem

    @property
    def overdue(self) -> bool:
        """Whether the answer to a beat is overdue, or has arrived but was not read yet."""
        beaten_s = self._beaten_s
        return beaten_s is not None and time.monotonic() - beaten_s > SILENCE_S

    @property
    def gone(self) -> bool:
        """Whether the guardian is dead or hangs, so that it would undo nothing.

        This also reads answers that came late.
        """
        if self.overdue:
            return self._read_answers() or self._beaten_s is not None
        return self._read_answers()

    def _read_answers(self) -> bool:
        """Read the answers that have arrived; return whether the guardian is dead."""
        if not self._lock.acquire(blocking=False):
            return False  # a thread waits for its answer, and will notice
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
                if self._unanswered == 0:  # an earlier answer that came late is skipped
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
