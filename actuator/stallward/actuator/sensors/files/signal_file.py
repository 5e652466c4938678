"""One file of the kernel that gives one signal, or a few that come together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.files import OpenFile

T = TypeVar("T")


class SignalFile(Generic[T]):
    """A file kept open, and what it means.

    One file that cannot be understood must not blind the node to all the others: its signal is
    absent then, and ``fault`` says why. A file that reads as it did before is not parsed again.

    Args:
        path: The file.
        parse: Understands its content; raises ``SensorError`` if it cannot.
        absent: The value while the file is not there, or not to be understood.
        one_piece: See :class:`~stallward.actuator.kernel.files.OpenFile`.

    Attributes:
        value: What the last read gave.
        fault: Why the last read gave nothing though the file is there.
    """

    __slots__ = ("_absent", "_content", "_file", "_parse", "fault", "value")

    def __init__(
        self,
        path: Path,
        parse: Callable[[bytes, Path], T],
        absent: T,
        *,
        one_piece: bool = False,
    ) -> None:
        self._file = OpenFile(path, SensorError, one_piece=one_piece)
        self._parse = parse
        self._absent = absent
        self._content: bytes | None = None
        self.value = absent
        self.fault: SensorError | None = None

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def there(self) -> bool:
        """Whether the file was there when it was last read."""
        return self._content is not None or self.fault is not None

    def read(self) -> T:
        """The present value."""
        try:
            content = self._file.read()
            if content is not None and content == self._content:
                return self.value
            self._content = self.fault = None
            self.value = self._absent
            if content is not None:
                self.value = self._parse(content, self._file.path)
                self._content = content
        except SensorError as error:  # it is not kept: the next read tries again
            self._content, self.fault = None, error
            self.value = self._absent
        return self.value

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        self._file.close()


AnySignal: TypeAlias = SignalFile[Any]
"""Where only faults and closing matter."""
