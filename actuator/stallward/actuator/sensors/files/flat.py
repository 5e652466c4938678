"""The flat ``key value`` lines of /proc/vmstat, memory.stat, cpu.stat and cgroup.events.

A counter that cannot be understood is absent, and takes no other one along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.kernel.files import OpenFile

T = TypeVar("T")

MAX_COUNT: Final = 2**63 - 1
"""A greater number is a negative one that was printed without its sign, as some kernels do."""
_LAYOUT_MOST: Final = 10**18 - 1
"""The most of a counter that is read by its position: bytes, pages and events never reach it, and
no sum of such counters gets beyond :data:`MAX_COUNT`."""
_LAYOUT_DIGITS: Final = 18


def checked_count(value: int, path: Path | str) -> int:
    """Return ``value``, a counter or a sum of counters.

    Raises:
        SensorError: If no counter of the kernel can be that large.
    """
    if value > MAX_COUNT:
        raise SensorError(path, f"not a counter: {value} is negative, or beyond 63 bits")
    return value


def parse_count(value: bytes, path: Path | str) -> int:
    """Parse a counter: decimal digits and nothing else.

    Raises:
        SensorError: If it is anything else (``int`` alone would take signs and underscores).
    """
    if not value.isdigit() or len(value) > 20:
        raise SensorError(path, f"not a counter: {value[:40]!r}")
    return checked_count(int(value), path)


def is_count(value: bytes, most: int = MAX_COUNT) -> bool:
    """Whether :func:`parse_count` takes a value, and it is at most ``most``."""
    return value.isdigit() and len(value) <= 20 and int(value) <= most


def parse_single(content: bytes, path: Path) -> int | None:
    """Parse a file that holds one counter, or ``max`` (``None``).

    Raises:
        SensorError: If it holds anything else or is cut short.
    """
    if not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[:40]!r}")
    value = content[:-1]
    return None if value == b"max" else parse_count(value, path)


def flat_counts(
    content: bytes, wanted: tuple[bytes, ...], path: Path, most: int = MAX_COUNT
) -> list[int | None]:
    """Return some counters of a flat keyed file; ``None`` for those that this kernel lacks.

    Lines with other keys are not looked at. Of a file that is cut short, the last line is not
    used, and a counter that it does not have may be in the lost part.

    Args:
        content: The file's content.
        wanted: The keys.
        path: The file.
        most: The most that a counter can be.

    Raises:
        PartlyReadError: If some of the counters cannot be known; its value is the list.
        SensorError: If none can.
    """
    *lines, rest = content.split(b"\n")
    texts: dict[bytes, bytes] = {}
    lost: dict[bytes, str] = {}
    for line in lines:
        key, space, value = line.partition(b" ")
        if key not in wanted:
            continue
        if key in texts:
            lost[key] = f"{_name(key)} is there twice"
        elif not space or not is_count(value, most):
            lost[key] = f"{_name(key)}: not a counter: {value[:40]!r}"
        texts[key] = value
    if rest or not lines:
        missing = (key for key in wanted if key not in texts)
        lost |= dict.fromkeys(missing, f"cut short: {content[-60:]!r}")
    counts = [int(texts[key]) if key in texts and key not in lost else None for key in wanted]
    if not lost and not texts and any(line.count(b" ") != 1 for line in lines):
        raise SensorError(path, f"not lines of key and value: {content[-60:]!r}")
    if lost:
        what = "; ".join(dict.fromkeys(lost.values()))
        if all(count is None for count in counts):
            raise SensorError(path, what)
        raise PartlyReadError(path, what, value=counts, lost=frozenset(map(_name, lost)))
    return counts


def _name(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def without_lost(
    error: PartlyReadError,
    make: Callable[[list[int | None]], T],
    fields_of: Mapping[bytes, tuple[str, ...]],
) -> SensorError:
    """Return the error whose value is what ``make`` makes of the counters that are known.

    Where that is nothing, because each known counter is only a part of a sum, it has no value.

    Args:
        error: The error of :func:`flat_counts`.
        make: Makes a value of counters.
        fields_of: The fields that need a counter, by its key; where it is lost, they are ``None``.
    """
    needed = {_name(key): names for key, names in fields_of.items()}
    lost = frozenset(name for key in error.lost for name in needed[key])
    value: Any = make(error.value)
    value = replace(value, **dict.fromkeys(lost))
    if all(getattr(value, field.name) is None for field in fields(value)):
        return SensorError(error.path, error.what)
    return PartlyReadError(error.path, error.what, value=value, lost=lost)


class FlatLayout:
    """Reads some counters of a flat keyed file by the known positions of their lines.

    The kernel always writes the lines of such a file in the same order. The slower
    :func:`flat_counts` learns the positions from the first content, and each use checks them;
    content with another layout is parsed by it again. Other lines are not looked at.

    Args:
        wanted: The keys.
    """

    __slots__ = ("_count", "_places", "_wanted")

    def __init__(self, wanted: tuple[bytes, ...]) -> None:
        self._wanted = wanted
        self._count = -1
        self._places: tuple[tuple[int, bytes, int], ...] = ()

    def counts(self, content: bytes, path: Path) -> list[int | None]:
        """Return the counters in the order of the keys; ``None`` for absent ones.

        Raises:
            PartlyReadError: If some of the counters cannot be known; its value is the list.
            SensorError: If none can.
        """
        lines = content.split(b"\n")
        if len(lines) != self._count or lines[-1]:
            return self._learn(content, path)
        counters: list[int | None] = []
        for index, start, length in self._places:
            if index < 0:  # the key was absent: is it still?
                if start in content:
                    return self._learn(content, path)
                counters.append(None)
                continue
            line = lines[index]
            digits = line[length:]
            if line[:length] != start or not digits.isdigit() or len(digits) > _LAYOUT_DIGITS:
                return self._learn(content, path)
            counters.append(int(digits))
        return counters

    def _learn(self, content: bytes, path: Path) -> list[int | None]:
        self._count = -1
        counters = flat_counts(content, self._wanted, path, _LAYOUT_MOST)
        lines = content.split(b"\n")
        numbers = {line.partition(b" ")[0]: i for i, line in enumerate(lines)}
        if len(numbers) == len(lines):  # no key twice, and no other white space than " "
            self._places = tuple(
                (numbers.get(key, -1), key + b" ", len(key) + 1) for key in self._wanted
            )
            self._count = len(lines)
        return counters


class FlatParser(Generic[T]):
    """Parses a flat keyed file by the known positions of its lines.

    Args:
        fields_of: The fields that need a counter, by its key.
        make: Makes the value of the counters, in the order of the keys.
    """

    __slots__ = ("_fields_of", "_layout", "_make")

    def __init__(
        self, fields_of: Mapping[bytes, tuple[str, ...]], make: Callable[[list[int | None]], T]
    ) -> None:
        self._fields_of, self._make = fields_of, make
        self._layout = FlatLayout(tuple(fields_of))

    def __call__(self, content: bytes, path: Path) -> T:
        """Parse the file.

        Raises:
            PartlyReadError: If some of its counters cannot be known.
            SensorError: If the content is malformed or cut short.
        """
        try:
            return self._make(self._layout.counts(content, path))
        except PartlyReadError as error:
            raise without_lost(error, self._make, self._fields_of) from error


def parse_frozen(content: bytes, path: Path) -> bool | None:
    """Whether every process of the group is frozen; ``None`` before kernel 5.2.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    (value,) = flat_counts(content, (b"frozen",), path)
    if value not in {None, 0, 1}:
        raise SensorError(path, f"frozen is {value}, neither 0 nor 1")
    return None if value is None else bool(value)


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
