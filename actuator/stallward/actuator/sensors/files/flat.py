"""The flat ``key value`` lines of /proc/vmstat, memory.stat, cpu.stat and cgroup.events."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError

MAX_COUNT: Final = 2**64 - 1
"""The kernel's counters have 64 bits, and so have those of a record."""


def checked_count(value: int, path: Path | str) -> int:
    """Return ``value``, a counter or a sum of counters.

    Raises:
        SensorError: If it does not fit into a counter of the kernel.
    """
    if value > MAX_COUNT:
        raise SensorError(path, f"not a counter: {value} is beyond 64 bits")
    return value


def parse_count(value: bytes, path: Path | str) -> int:
    """Parse a counter: decimal digits and nothing else.

    Raises:
        SensorError: If it is anything else (``int`` alone would take signs and underscores).
    """
    if not value.isdigit() or len(value) > 20:
        raise SensorError(path, f"not a counter: {value[:40]!r}")
    return checked_count(int(value), path)


def parse_single(content: bytes, path: Path) -> int | None:
    """Parse a file that holds one counter, or ``max`` (``None``).

    Raises:
        SensorError: If it holds anything else or is cut short.
    """
    if not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[:40]!r}")
    value = content[:-1]
    return None if value == b"max" else parse_count(value, path)


def parse_flat(content: bytes, path: Path) -> dict[bytes, bytes]:
    """Parse all pairs of a flat keyed file; values are checked when they are used.

    Raises:
        SensorError: If a line is not one key and one value, or the last one is cut short, or a
            key occurs twice.
    """
    pairs = [line.split(b" ") for line in content.split(b"\n")]
    try:
        if pairs.pop() == [b""] and len(table := dict(pairs)) == len(pairs) > 0:
            return table
    except ValueError:
        pass
    raise SensorError(path, f"not lines of key and value: {content[-60:]!r}")


def count_of(table: dict[bytes, bytes], key: bytes, path: Path) -> int | None:
    """Return the counter ``key``, or ``None`` if this kernel lacks it.

    Raises:
        SensorError: If the value is not a counter.
    """
    value = table.get(key)
    return None if value is None else parse_count(value, path)


class FlatLayout:
    """Reads some counters of a flat keyed file by the known positions of their lines.

    The kernel always writes the lines of such a file in the same order. The strict parser learns
    the positions from the first content, and each use checks them; content with another layout is
    parsed strictly again. Other lines are not looked at.

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
            SensorError: If the content is malformed or cut short.
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
            if line[:length] != start or not digits.isdigit() or len(digits) > 19:
                return self._learn(content, path)
            counters.append(int(digits))
        return counters

    def _learn(self, content: bytes, path: Path) -> list[int | None]:
        self._count = -1
        table = parse_flat(content, path)
        counters = [count_of(table, key, path) for key in self._wanted]
        lines = content.split(b"\n")
        numbers = {line.partition(b" ")[0]: i for i, line in enumerate(lines)}
        if len(numbers) == len(lines):  # no key twice, and no other white space than " "
            self._places = tuple(
                (numbers.get(key, -1), key + b" ", len(key) + 1) for key in self._wanted
            )
            self._count = len(lines)
        return counters


def parse_frozen(content: bytes, path: Path) -> bool | None:
    """Whether every process of the group is frozen; ``None`` before kernel 5.2.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    value = count_of(parse_flat(content, path), b"frozen", path)
    if value not in {None, 0, 1}:
        raise SensorError(path, f"frozen is {value}, neither 0 nor 1")
    return None if value is None else bool(value)
