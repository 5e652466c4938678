"""The file of a rollout: one line of JSON for each event, on the disk before anything follows.

It is the state from which another client goes on, and the audit trail in one.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

from stallward.actuator.errors import RolloutError
from stallward.actuator.policies.rollout.events import Began, Event
from stallward.agent.errors import SchemaError
from stallward.agent.schema.read import read
from stallward.agent.schema.write import to_table

_KINDS: Final = {kind.__name__: kind for kind in get_args(Event)}
_AT: Final = "at"
_EVENT: Final = "event"


class EventFile:
    """The events of one rollout, which one client at a time may append to.

    Args:
        path: The file; it is made if it is not there.

    Raises:
        RolloutError: If it cannot be used, or another client goes on with the rollout.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise RolloutError(
                f"Another client goes on with the rollout of {path}.",
                next_step="Wait until it ends, or end it.",
            ) from error
        try:
            self.events: Final = self._read()
            """The events that were in it."""
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; another client may go on."""
        os.close(self._fd)

    def append(self, events: Iterable[Event]) -> None:
        """Write events, and wait until the disk has them.

        Raises:
            RolloutError: If they cannot be written.
        """
        lines = "".join(map(event_line, events)).encode()
        try:
            while lines:
                lines = lines[os.write(self._fd, lines) :]
            os.fsync(self._fd)
        except OSError as error:
            raise self._unusable(error) from error

    def _read(self) -> list[Event]:
        """Read all whole lines, and cut off what a client that died wrote of another one."""
        try:
            content = self._path.read_bytes()
            whole = content.rfind(b"\n") + 1
            os.ftruncate(self._fd, whole)
            os.lseek(self._fd, whole, os.SEEK_SET)
        except OSError as error:
            raise self._unusable(error) from error
        events = [
            self._event(number, line)
            for number, line in enumerate(content[:whole].splitlines(), start=1)
        ]
        if events and not isinstance(events[0], Began):
            raise self._damaged(1, "it is not the beginning of a rollout")
        return events

    @property
    def began(self) -> Began:
        """The first event of a file that has events."""
        first = self.events[0]
        assert isinstance(first, Began)
        return first

    def _event(self, number: int, line: bytes) -> Event:
        try:
            table = json.loads(line)
            kind = _KINDS[table.pop(_EVENT)]
            del table[_AT]
            event: Event = read(kind, table)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(number, f"it is no event ({error!r})") from error
        except (SchemaError, RolloutError) as error:
            raise self._damaged(number, error.cause) from error
        return event

    def _damaged(self, number: int, why: str) -> RolloutError:
        return RolloutError(
            f"{self._path}, line {number} cannot be read: {why}.",
            next_step="Name the file of a rollout of this version with --state.",
        )

    def _unusable(self, error: OSError) -> RolloutError:
        return RolloutError(
            f"The rollout cannot be kept in {self._path}: {error.strerror or error}.",
            next_step="Name another file with --state.",
        )


def event_line(event: Event) -> str:
    """The line of an event."""
    table = {_AT: round(time.time(), 3), _EVENT: type(event).__name__, **to_table(event)}
    return json.dumps(table, separators=(",", ":"), allow_nan=False) + "\n"


def who() -> str:
    """The user and the machine, for the audit trail."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a number without a name, as in containers
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
