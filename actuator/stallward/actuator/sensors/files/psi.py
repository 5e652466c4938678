"""Pressure stall information: /proc/pressure/* and the groups' *.pressure files."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.sensors.files.flat import SignalFile, is_count
from stallward.agent.sample import PsiTotals

# ---------- The stall totals of one pressure file, without leaps that no stall can make
# Some kernels now and then add 2^32 ns to a total at once (https://bugzilla.kernel.org/219194). A
# controller would take that for a tick in which everything stalled.

Totals = tuple[int | None, int | None]
"""``some`` and ``full`` in microseconds; ``None`` where the kernel has none."""

_SLACK_US: Final = 2_000_000
"""The kernel sums up stalls processor by processor, and late. A leap is more than twice this."""


class SteadyTotals:
    """Follows the two totals of a file.

    A total grows by at most the time between two reads. That is measured from before the one to
    after the other, so no stall is left out if the reader itself stalls in between.
    """

    __slots__ = ("_before_s", "_last", "_raw", "_shown", "value")

    def __init__(self) -> None:
        self._raw: Totals = (None, None)
        self.value: Totals = (None, None)
        """The totals of the last read, without leaps."""
        self._last: list[int | None] = [None, None]
        """The last totals that were there, as the file had them."""
        self._shown = [0, 0]
        """The same without leaps."""
        self._before_s = 0.0

    def take(self, raw: Totals, began_s: float) -> Totals:
        """Return the totals without leaps.

        Args:
            raw: The totals in the file.
            began_s: When reading them began, by CLOCK_MONOTONIC.
        """
        if raw != self._raw:
            most_us = (time.monotonic() - self._before_s) * 1e6 + _SLACK_US
            self._raw = raw
            self.value = (self._grown(0, raw[0], most_us), self._grown(1, raw[1], most_us))
        if raw[0] is not None:
            self._before_s = began_s
        return self.value

    def _grown(self, index: int, now: int | None, most_us: float) -> int | None:
        if now is None:
            return None
        last, self._last[index] = self._last[index], now
        if last is None or now < last:  # another group that has the same name now
            self._shown[index] = now
        elif now - last <= most_us:
            self._shown[index] += now - last
        return self._shown[index]


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
