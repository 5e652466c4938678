"""Pressure stall information: /proc/pressure/* and the groups' *.pressure files."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.sensors.files.flat import is_count
from stallward.actuator.sensors.files.psi_leaps import SteadyTotals
from stallward.actuator.sensors.files.signal_file import SignalFile
from stallward.agent.sample import PsiTotals

_RESOURCES: Final = ("memory", "io", "cpu")
_LINES: Final = frozenset({b"some", b"full"})
_TOTALS: Final = re.compile(rb"some [^\n]* total=(\d{1,18})\nfull [^\n]* total=(\d{1,18})\n")
"""The form that the kernel writes; any other form is parsed line by line."""


def parse_psi(content: bytes, path: Path) -> tuple[int | None, int | None]:
    """Parse the ``some`` and ``full`` totals in microseconds; ``None`` for a missing line.

    The averages are not used: the kernel updates them only every two seconds.

    Raises:
        PartlyReadError: If one of the two cannot be known.
        SensorError: If a line is malformed or cut short.
    """
    match = _TOTALS.fullmatch(content)
    if match is not None:
        return int(match[1]), int(match[2])
    *lines, rest = content.split(b"\n")
    totals: dict[bytes, int] = {}
    lost: dict[bytes, str] = {}
    odd = rest
    for line in lines:
        kind, _, numbers = line.partition(b" ")
        _, separator, total = numbers.rpartition(b" total=")
        if kind not in _LINES:
            odd = odd or line
        elif kind in totals or kind in lost or not separator or not is_count(total):
            lost[kind] = f"not a pressure line: {line[:80]!r}"
        else:
            totals[kind] = int(total)
    if rest:
        missing = _LINES - totals.keys() - lost.keys()
        lost |= dict.fromkeys(missing, f"cut short: {rest[-40:]!r}")
    known = {kind: total for kind, total in totals.items() if kind not in lost}
    if not known:
        what = "; ".join(dict.fromkeys(lost.values())) or f"not a pressure line: {odd[:80]!r}"
        raise SensorError(path, what)
    value = (known.get(b"some"), known.get(b"full"))
    if lost:
        names = frozenset(f"{kind.decode()}_us" for kind in lost)
        raise PartlyReadError(path, "; ".join(lost.values()), value=value, lost=names)
    return value


class PsiReader:
    """The PSI files of the node or of one group, kept open.

    Args:
        folder: The directory of the files.
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
        self._steady = tuple(SteadyTotals() for _ in _RESOURCES)
        self._parts: tuple[object, ...] = ()
        self._totals = PsiTotals()

    def read(self, *, io_too: bool = True, cpu_too: bool = True) -> PsiTotals:
        """Read the totals; absent ones are ``None``.

        Args:
            io_too: Whether to read the io file, too; else its last totals are returned.
            cpu_too: Whether to read the cpu file, too; else its last totals are returned.
        """
        began_s = time.monotonic()
        steady_memory, steady_io, steady_cpu = self._steady
        memory = steady_memory.take(self.memory.read(), began_s)
        io = steady_io.take(self._io.read(), began_s) if io_too else steady_io.value
        cpu = steady_cpu.take(self._cpu.read(), began_s) if cpu_too else steady_cpu.value
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
