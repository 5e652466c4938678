"""Pressure stall information: /proc/pressure/* and the groups' *.pressure files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.files.flat import parse_count
from stallward.actuator.sensors.files.signal_file import SignalFile
from stallward.agent.sample import PsiTotals

_RESOURCES: Final = ("memory", "io", "cpu")
_LINES: Final = frozenset({b"some", b"full"})
_USUAL: Final = re.compile(rb"some [^\n]* total=(\d{1,19})\nfull [^\n]* total=(\d{1,19})\n")
"""What the kernel writes; anything else is looked at line by line."""


def parse_psi(content: bytes, path: Path) -> tuple[int | None, int | None]:
    """The ``some`` and ``full`` totals, microseconds; ``None`` for a line that is not there.

    The averages are not read: they move only every two seconds.

    Raises:
        SensorError: If a line is malformed or cut short.
    """
    usual = _USUAL.fullmatch(content)
    if usual is not None:
        return int(usual[1]), int(usual[2])
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
        machine: Whether this is the whole machine, for which cpu's ``full`` is not defined: the
            kernel writes 0 there.
    """

    def __init__(self, folder: Path, suffix: str = "", *, machine: bool = False) -> None:
        self._machine = machine
        absent: tuple[int | None, int | None] = (None, None)
        self.memory, self._io, self._cpu = self.signals = tuple(
            SignalFile(folder / f"{r}{suffix}", parse_psi, absent) for r in _RESOURCES
        )
        self._parts: tuple[object, ...] = ()
        self._totals = PsiTotals()

    def read(self, *, io_too: bool = True, cpu_too: bool = True) -> PsiTotals:
        """The present totals; absent ones are ``None``.

        Args:
            io_too: Read also that of io; it stays as it was otherwise.
            cpu_too: The same of cpu.
        """
        memory = self.memory.read()
        io = self._io.read() if io_too else self._io.value
        cpu = self._cpu.read() if cpu_too else self._cpu.value
        if (memory, io, cpu) != self._parts:  # making a value costs more than comparing
            self._parts = (memory, io, cpu)
            self._totals = PsiTotals(
                memory_some_us=memory[0],
                memory_full_us=memory[1],
                io_some_us=io[0],
                io_full_us=io[1],
                cpu_some_us=cpu[0],
                cpu_full_us=None if self._machine else cpu[1],
            )
        return self._totals
