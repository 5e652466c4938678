"""Reading a counter from a file."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from stallward.actuator.errors import WorkError
from stallward.actuator.kernel.files import ABSENT
from stallward.actuator.work.config import FileWork
from stallward.agent.sample import WorkFault

MAX_BYTES: Final = 64 << 10
"""How much of a file, or of a command's output, is looked at."""
_NUMBER: Final = re.compile(
    r"(?<![\w.])[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:inf(?:inity)?|nan)(?![\w.]))",
    re.IGNORECASE | re.ASCII,
)
_ATTACHED: Final = re.compile(r"[\w.%]|,\d", re.ASCII)
"""What makes a number another one than its digits say: a unit, a percentage, a thousand."""


def first_number(text: str) -> float:
    """The first number in a text.

    Raises:
        WorkError: If there is none, or something is attached to it, as in ``12k`` or ``1,234``.
    """
    match = _NUMBER.search(text)
    if match is None:
        raise WorkError("holds no number", fault=WorkFault.NO_NUMBER)
    if _ATTACHED.match(text, match.end()):
        raise WorkError("has something attached to its number", fault=WorkFault.NO_NUMBER)
    return float(match[0])


class FileReader:
    """Reads one counter from one file, which is opened each time: it may be replaced.

    Args:
        work: The source.
    """

    def __init__(self, work: FileWork) -> None:
        self._path, self._name = work.path, work.name
        self._begin = re.compile(rf"\s*{re.escape(work.name or '')}(?![^\s:=])")
        """What the line begins with; the name may hold a colon or ``=`` itself."""

    def read(self) -> dict[str, float]:
        """Return the counter.

        Raises:
            WorkError: If it cannot be read.
        """
        text = _text(self._path)
        if self._name is None:
            return {"": first_number(text)}
        for line in text.splitlines():
            begin = self._begin.match(line)
            if begin is not None:
                return {"": first_number(line[begin.end() :])}
        raise WorkError(f"has no line that begins with {self._name}", fault=WorkFault.ABSENT)

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def _text(path: Path) -> str:
    # A FIFO or a device would be waited for.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = os.open(path, flags)
    except OSError as error:
        raise _unreadable(error) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise WorkError("is not a regular file", fault=WorkFault.UNREADABLE)
        return os.read(fd, MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise _unreadable(error) from error
    finally:
        os.close(fd)


def _unreadable(error: OSError) -> WorkError:
    fault = WorkFault.ABSENT if error.errno in ABSENT else WorkFault.UNREADABLE
    return WorkError(f"cannot be read ({error.strerror})", fault=fault)
