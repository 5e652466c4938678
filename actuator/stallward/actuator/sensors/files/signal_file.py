"""One file of the kernel that holds one signal or several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.kernel.files import OpenFile

T = TypeVar("T")
P = TypeVar("P", bound=Path | str)


class SignalFile(Generic[T]):
    """A file that is kept open, and its parsed value.

    If a file cannot be parsed, only its own signal is absent, and ``fault`` says why. If only some
    of its signals cannot be understood, the others stay. Content that is the same as before is
    not parsed again.

    Args:
        path: The file.
        parse: Parses the content; raises ``SensorError`` if it cannot.
        absent: The value while the file is absent or cannot be parsed.
        one_piece: See :class:`~stallward.actuator.kernel.files.OpenFile`.
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
        """The value of the last read."""
        self.fault: SensorError | None = None
        """What the last read could not understand although the file exists."""

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def there(self) -> bool:
        """Whether the file existed at the last read."""
        return self._content is not None or self.fault is not None

    def read(self) -> T:
        """Read the file and return its value."""
        try:
            content = self._file.read()
            if content is not None and content == self._content:
                return self.value
            self._content = self.fault = None
            self.value = self._absent
            if content is not None:
                self.value = self._parse(content, self._file.path)
                self._content = content
        except PartlyReadError as error:
            self._content, self.fault, self.value = content, error, error.value
        except SensorError as error:  # the content is not kept, so that the next read tries again
            self._content, self.fault = None, error
            self.value = self._absent
        return self.value

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        self._file.close()


AnySignal: TypeAlias = SignalFile[Any]
"""A file with a value of any type, where only faults and closing matter."""


def parse_partly(
    parse: Callable[[bytes, P], T], content: bytes, path: P
) -> tuple[T | None, SensorError | None]:
    """Parse a file that is not kept open; return what can be understood, and what is wrong."""
    try:
        return parse(content, path), None
    except PartlyReadError as error:
        return error.value, error
    except SensorError as error:
        return None, error
