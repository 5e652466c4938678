"""The flat ``key value`` lines of /proc/vmstat, memory.stat, cpu.stat and cgroup.events."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError

MAX_COUNT: Final = 2**64 - 1
"""The kernel's counters are of 64 bits, and so are those of a record."""


def checked_count(value: int, path: Path | str) -> int:
    """``value`` again, a counter or a sum of some.

    Raises:
        SensorError: If it does not fit into a counter of the kernel.
    """
    if value > MAX_COUNT:
        raise SensorError(path, f"not a counter: {value} is beyond 64 bits")
    return value


def parse_count(value: bytes, path: Path | str) -> int:
    """A counter: decimal digits and nothing else.

    Raises:
        SensorError: If it is anything else (Python's own ``int`` takes signs and underscores).
    """
    if not value.isdigit() or len(value) > 20:
        raise SensorError(path, f"not a counter: {value[:40]!r}")
    return checked_count(int(value), path)


def parse_single(content: bytes, path: Path) -> int | None:
    """A file that holds one counter, or ``max`` (``None``).

    Raises:
        SensorError: If it holds anything else or is cut short.
    """
    if not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[:40]!r}")
    value = content[:-1]
    return None if value == b"max" else parse_count(value, path)


def parse_flat(content: bytes, path: Path) -> dict[bytes, bytes]:
    """All pairs of a flat keyed file; values are checked when they are used.

    Raises:
        SensorError: If a line is not one key and one value, or the last one is cut short.
    """
    words = content.split()
    if len(words) != 2 * content.count(b"\n") or not content.endswith(b"\n"):
        raise SensorError(path, f"not lines of key and value: {content[-60:]!r}")
    return dict(zip(words[::2], words[1::2], strict=True))


def count_of(table: dict[bytes, bytes], key: bytes, path: Path) -> int | None:
    """The counter ``key``, or ``None`` if this kernel does not have it.

    Raises:
        SensorError: If the value is not a counter.
    """
    value = table.get(key)
    return None if value is None else parse_count(value, path)


def sum_of(table: dict[bytes, bytes], keys: tuple[bytes, ...], path: Path) -> int | None:
    """The sum of those counters that this kernel has; ``None`` if it has none of them.

    Raises:
        SensorError: If a value is not a counter.
    """
    values = [parse_count(table[key], path) for key in keys if key in table]
    return checked_count(sum(values), path) if values else None
