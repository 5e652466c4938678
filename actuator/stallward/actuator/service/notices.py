"""Notices of what is done to the background, for the journal and for a command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from stallward.actuator.kernel.paths import RUN
from stallward.actuator.runtime.private_files import SAFE_PATH, changeable_by_others
from stallward.actuator.runtime.stderr_line import say
from stallward.proto.v1 import stallward_pb2 as pb

# ---------- When a slot is paused, limited or let go, told no more often than people can read. Pure

NOTICE_ID: Final = "5c1f2b0f6a0e4b0c9d0f3c1e8a7d4b62"
"""Identifies notices among all other messages of the journal."""


class Treatment(StrEnum):
    """What is done to a slot."""

    FREE = "free"
    LIMITED = "limited"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One change of what is done to a slot."""

    slot: str
    before: Treatment
    now: Treatment
    limit_bytes: int | None
    """The limit, if there is one."""
    memory_bytes: int | None = None
    """What the slot holds, if that is known."""
    controller: str
    """Who decided it."""
    reason: str
    """Why, in the controller's words."""
    left_out: int = 0
    """How many changes of this slot were not told since the notice before."""
    message_id: str = NOTICE_ID

    @property
    def message(self) -> str:
        """The notice as a sentence."""
        limit = "" if self.limit_bytes is None else f" to {self.limit_bytes >> 20} MiB"
        what = {
            Treatment.FREE: "let go",
            Treatment.LIMITED: f"limited{limit}",
            Treatment.PAUSED: f"paused{' and limited' if limit else ''}{limit}",
        }[self.now]
        more = f" ({self.left_out} changes before that were not told)" if self.left_out else ""
        why = f": {self.reason}" if self.reason else ""
        holds = "" if self.memory_bytes is None else f" ({self.memory_bytes >> 20} MiB)"
        return f"{self.slot}{holds} is {what} by {self.controller}{why}{more}"

    def fields(self) -> dict[str, str]:
        """The notice as named texts, for the journal and for a command's environment."""
        found = {
            "STALLWARD_SLOT": self.slot,
            "STALLWARD_BEFORE": self.before.value,
            "STALLWARD_NOW": self.now.value,
            "STALLWARD_CONTROLLER": self.controller,
            "STALLWARD_REASON": self.reason,
            "STALLWARD_LEFT_OUT": str(self.left_out),
        }
        if self.limit_bytes is not None:
            found["STALLWARD_LIMIT_BYTES"] = str(self.limit_bytes)
        if self.memory_bytes is not None:
            found["STALLWARD_MEMORY_BYTES"] = str(self.memory_bytes)
        return found


class _Slot:
    """What was told of one slot."""

    def __init__(self) -> None:
        self.told = Treatment.FREE
        self.told_s = float("-inf")
        self.told_limit_bytes: int | None = None
        self.last = Treatment.FREE
        self.changes = 0
        """How often it has changed since it was told of."""


class SlotChanges:
    """Finds what is to be told, tick by tick.

    What holds at the first tick is not told: a service that was started again finds it so. A
    change is told at once, and further ones of the slot no more often than once in ``interval_s``:
    then the state at the end of that time is told, unless it is the one that was told last. A limit
    that moves counts as a change when it has become half of what was told, or twice as much.

    Args:
        names: The slots' names.
        interval_s: The least time between two notices of one slot.
    """

    def __init__(self, names: Sequence[str], interval_s: float) -> None:
        self._names = tuple(names)
        self._interval_s = interval_s
        self._slots = tuple(_Slot() for _ in names)
        self._began = False

    def take(self, record: pb.TickRecord) -> tuple[Notice, ...]:
        """Take one tick; returns what is to be told now."""
        notices = []
        for index, (name, slot) in enumerate(zip(self._names, self._slots, strict=True)):
            desires = record.granted.slots
            desire = desires[index] if index < len(desires) else pb.SlotDesire()
            now = _treatment(desire)
            limit_bytes = desire.limit_bytes if desire.HasField("limit_bytes") else None
            if not self._began:
                slot.told, slot.last, slot.told_limit_bytes = now, now, limit_bytes
            slot.changes += now is not slot.last
            slot.last = now
            due = record.time_s - slot.told_s >= self._interval_s
            moved = _far(slot.told_limit_bytes, limit_bytes)
            if not due or (now is slot.told and not moved):
                continue
            groups = record.sample.slots
            known = index < len(groups) and groups[index].HasField("memory_usage_bytes")
            notices.append(
                Notice(
                    slot=name,
                    before=slot.told,
                    now=now,
                    limit_bytes=limit_bytes,
                    memory_bytes=groups[index].memory_usage_bytes if known else None,
                    controller=record.decision.controller,
                    reason=record.decision.reason,
                    left_out=max(slot.changes - 1, 0),
                )
            )
            slot.told, slot.told_s, slot.changes = now, record.time_s, 0
            slot.told_limit_bytes = limit_bytes
        self._began = True
        return tuple(notices)


def _far(told_bytes: int | None, now_bytes: int | None) -> bool:
    """Whether a limit has become half of what was told, or twice as much."""
    if told_bytes is None or now_bytes is None:
        return False
    return not 0.5 * told_bytes < now_bytes < 2.0 * told_bytes


def _treatment(desire: pb.SlotDesire) -> Treatment:
    if desire.paused:
        return Treatment.PAUSED
    return Treatment.LIMITED if desire.HasField("limit_bytes") else Treatment.FREE


# ---------- Running a command of the operator's for each notice

TIMEOUT_S: Final = 10.0
"""A command that takes longer is killed."""
MOST_WAITING: Final = 16
"""More notices than this do not wait for a slow command: the oldest is lost."""
LOSS_SHOWN_S: Final = 300.0
"""For so long after the last loss it is a problem of the service."""


class NoticeCommand:
    """Runs one command for each notice, one after the other.

    The notice is in the command's environment, in the variables of :meth:`Notice.fields` and
    ``STALLWARD_MESSAGE``; nothing else is, but ``PATH``. No shell reads any of it.

    Args:
        command: The program and its arguments.
        timeout_s: How long it may take.
        now_s: The clock by which a loss is a problem for some minutes.
    """

    def __init__(
        self,
        command: Sequence[str],
        timeout_s: float = TIMEOUT_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._waiting: deque[Notice] = deque(maxlen=MOST_WAITING)
        self._more = asyncio.Event()
        self.lost = 0
        """How many notices were lost because the command was too slow."""
        self._lost_s = float("-inf")
        self._now_s = now_s
        self._failed = ""

    @property
    def problem(self) -> str:
        """What is wrong with the command; empty if nothing is."""
        if self._failed:
            return self._failed
        if self._now_s() - self._lost_s > LOSS_SHOWN_S:
            return ""
        return f"{self.lost} notices were lost behind a slow command"

    def tell(self, notice: Notice) -> None:
        """Have the command run for one more notice, without waiting."""
        if len(self._waiting) == MOST_WAITING:
            self.lost, self._lost_s = self.lost + 1, self._now_s()
        self._waiting.append(notice)
        self._more.set()

    async def run_for_ever(self) -> None:
        """Run the command for every notice."""
        while True:
            while self._waiting:
                before, self._failed = self._failed, await self._run(self._waiting.popleft())
                if self._failed and self._failed != before:
                    say(f"notify: {self._failed}", "service")
            self._more.clear()
            await self._more.wait()

    async def _run(self, notice: Notice) -> str:
        """Run the command for one notice; returns what went wrong, if anything."""
        program = self._command[0]
        try:
            changeable = changeable_by_others(Path(program))
        except OSError as error:
            return f"{program} cannot be run ({error.strerror})"
        if changeable:
            return f"{program} is not run, because other users can change {changeable}"
        environment = {"PATH": SAFE_PATH, "STALLWARD_MESSAGE": notice.message, **notice.fields()}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={name: text.replace("\0", "") for name, text in environment.items()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: an argument with a NUL
            why = error.strerror if isinstance(error, OSError) else error
            return f"{program} cannot be run ({why})"
        try:
            # wait_for() of Python 3.11 forgets that it was cancelled if the command has just ended.
            async with asyncio.timeout(self._timeout_s):
                ended = await process.wait()
        except TimeoutError:
            return f"{program} took more than {self._timeout_s:g} s and was killed"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # it has a session of its own
                await process.wait()
        return f"{program} ended with status {ended}" if ended else ""


# ---------- Writing notices to systemd's journal, with fields of their own
# The journal takes a datagram of lines ``NAME=value`` on its socket; a value with a line break is
# written with its length instead (systemd, Native Journal Protocol).

JOURNAL_SOCKET: Final = RUN / "systemd/journal/socket"
_NOTICE: Final = "5"
"""The priority of what is normal but worth noting (syslog(3))."""


def encode(fields: dict[str, str]) -> bytes:
    """The datagram of an entry."""
    parts = []
    for name, value in fields.items():
        raw = value.encode("utf-8", "replace")
        if b"\n" in raw:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(raw)) + raw + b"\n")
        else:
            parts.append(name.encode() + b"=" + raw + b"\n")
    return b"".join(parts)


class JournalEntry(Protocol):
    """What is written to the journal."""

    @property
    def message(self) -> str:
        """The sentence for people."""

    @property
    def message_id(self) -> str:
        """Identifies such messages among all others (``journalctl MESSAGE_ID=...``)."""

    def fields(self) -> dict[str, str]:
        """Further fields, by their names."""


class Journald:
    """Writes notices to the journal, or to standard error where there is none, without waiting.

    Args:
        path: The journal's socket.
    """

    def __init__(self, path: Path = JOURNAL_SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def tell(self, notice: JournalEntry) -> None:
        """Write one notice; it is lost where the journal has no room."""
        entry = {
            "MESSAGE": notice.message,
            "MESSAGE_ID": notice.message_id,
            "PRIORITY": _NOTICE,
            "SYSLOG_IDENTIFIER": "stallward",
            **notice.fields(),
        }
        try:
            self._socket.sendto(encode(entry), str(self._path))
        except (FileNotFoundError, ConnectionRefusedError):
            say(notice.message, "service")
        except OSError:
            return

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
