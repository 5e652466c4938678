"""Pressure stall information: /proc/pressure/* and the groups' *.pressure files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.flat import parse_count
from stallward.actuator.sensors.signal_file import SignalFile
from stallward.agent.sample import PsiTotals

_RESOURCES: Final = ("memory", "io", "cpu")
_LINES: Final = frozenset({b"some", b"full"})


def parse_psi(content: bytes, path: Path) -> tuple[int | None, int | None]:
    """The ``some`` and ``full`` totals, microseconds; ``None`` for a line that is not there.

    The averages are not read: they move only every two seconds.

    Raises:
        SensorError: If a line is malformed or cut short.
    """
    totals: dict[bytes, int] = {}
    for line in content.split(b"\n"):
        kind, _, rest = line.partition(b" ")
        if not line:
            continue
        _, found, total = rest.rpartition(b" total=")
        if kind not in _LINES or kind in totals or not found:
            raise SensorError(path, f"not a pressure line: {line[:80]!r}")
        totals[kind] = parse_count(total, path)
    if not totals or not content.endswith(b"\n"):
        raise SensorError(path, f"no pressure totals, or cut short: {content[:80]!r}")
    return totals.get(b"some"), totals.get(b"full")


class PsiReader:
    """The PSI files of the node or of one group, kept open.

    Args:
        folder: Where they are.
        suffix: ``""`` for /proc/pressure/memory, ``".pressure"`` for a group's memory.pressure.
    """

    def __init__(self, folder: Path, suffix: str = "") -> None:
        absent: tuple[int | None, int | None] = (None, None)
        self.memory, self._io, self._cpu = self.signals = tuple(
            SignalFile(folder / f"{r}{suffix}", parse_psi, absent) for r in _RESOURCES
        )

    def read(self) -> PsiTotals:
        """The present totals; absent ones are ``None``."""
        memory_some, memory_full = self.memory.read()
        io_some, io_full = self._io.read()
        cpu_some, _ = self._cpu.read()
        return PsiTotals(
            memory_some_us=memory_some,
            memory_full_us=memory_full,
            io_some_us=io_some,
            io_full_us=io_full,
            cpu_some_us=cpu_some,
        )
