"""cpu.stat of a v2 group (there also without the cpu controller), and of a v1 cpu group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import PartlyReadError
from stallward.actuator.sensors.files.flat import FlatLayout, flat_counts, without_lost

_FIELDS_OF: Final = {b"usage_usec": ("usage_us",), b"throttled_usec": ("throttled_us",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuStat:
    """CPU time of a group; absent values are ``None``."""

    usage_us: int | None = None
    throttled_us: int | None = None


class CpuStatParser:
    """Parses cpu.stat of v2: CPU time used by the group and all below it.

    ``throttled_us`` is present only where the cpu controller is enabled for the group.
    """

    def __init__(self) -> None:
        self._layout = FlatLayout(tuple(_FIELDS_OF))

    def __call__(self, content: bytes, path: Path) -> CpuStat:
        """Parse the file.

        Raises:
            PartlyReadError: If one of the two cannot be understood.
            SensorError: If the content is malformed or cut short.
        """
        try:
            return _make(self._layout.counts(content, path))
        except PartlyReadError as error:
            raise without_lost(error, _make, _FIELDS_OF) from error


def _make(counts: list[int | None]) -> CpuStat:
    return CpuStat(usage_us=counts[0], throttled_us=counts[1])


def parse_cpu_stat(content: bytes, path: Path) -> CpuStat:
    """Parse cpu.stat of v2, see :class:`CpuStatParser`.

    Raises:
        PartlyReadError: If one of the two cannot be understood.
        SensorError: If the content is malformed or cut short.
    """
    return CpuStatParser()(content, path)


def parse_throttled_v1(content: bytes, path: Path) -> int | None:
    """Parse ``throttled_time`` of v1 cpu.stat; returns microseconds of the file's nanoseconds.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    (time_ns,) = flat_counts(content, (b"throttled_time",), path)
    return None if time_ns is None else time_ns // 1000
