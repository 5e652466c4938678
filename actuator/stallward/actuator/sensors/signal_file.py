"""One file of the kernel that gives one signal, or a few that come together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from stallward.actuator.errors import SensorError
from stallward.actuator.kernelfile import OpenFile

T = TypeVar("T")


class SignalFile(Generic[T]):
    """A file kept open, and what it means.

    One file that cannot be understood must not blind the node to all the others: its signal is
    absent then, and ``fault`` says why.

    Args:
        path: The file.
        parse: Understands its content; raises ``SensorError`` if it cannot.
        absent: The value while the file is not there, or not to be understood.
    """

    __slots__ = ("_absent", "_file", "_parse", "fault")

    def __init__(self, path: Path, parse: Callable[[bytes, Path], T], absent: T) -> None:
        self._file = OpenFile(path, SensorError)
        self._parse = parse
        self._absent = absent
        self.fault: SensorError | None = None
        """Why the last read gave nothing though the file is there."""

    def read(self) -> T:
        """The present value."""
        self.fault = None
        try:
            content = self._file.read()
            return self._absent if content is None else self._parse(content, self._file.path)
        except SensorError as error:
            self.fault = error
            return self._absent

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        self._file.close()


AnySignal: TypeAlias = SignalFile[Any]
"""Where only faults and closing matter."""
