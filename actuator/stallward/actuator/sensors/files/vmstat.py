"""/proc/vmstat: the machine's paging counters."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from stallward.actuator.sensors.files.flat import FlatLayout, checked_count
from stallward.actuator.sensors.files.signal_file import SignalFile

# One counter per memory zone since kernel 4.10, a single one before.
_STALLS: Final = tuple(
    b"allocstall" + zone
    for zone in (b"", b"_dma", b"_dma32", b"_normal", b"_high", b"_movable", b"_device")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VmStat:
    """The counters of /proc/vmstat that are used, since boot; absent ones are ``None``."""

    swap_in_pages: int | None = None
    swap_out_pages: int | None = None
    major_faults: int | None = None
    refault_file_pages: int | None = None
    refault_anon_pages: int | None = None
    scan_kswapd_pages: int | None = None
    scan_direct_pages: int | None = None
    steal_kswapd_pages: int | None = None
    steal_direct_pages: int | None = None
    allocation_stalls: int | None = None


_COUNTERS: Final = (
    b"pswpin",
    b"pswpout",
    b"pgmajfault",
    b"workingset_refault_file",
    b"workingset_refault",  # before kernel 5.9, anonymous pages had no refaults
    b"workingset_refault_anon",
    b"pgscan_kswapd",
    b"pgscan_direct",
    b"pgsteal_kswapd",
    b"pgsteal_direct",
)


class VmStatParser:
    """Parses /proc/vmstat by the known positions of its lines."""

    def __init__(self) -> None:
        self._layout = FlatLayout((*_COUNTERS, *_STALLS))

    def __call__(self, content: bytes, path: Path) -> VmStat:
        """Parse the file.

        Raises:
            SensorError: If the content is malformed or cut short.
        """
        values = self._layout.counts(content, path)
        swap_in, swap_out, major_faults, refault_file, old_refaults, refault_anon = values[:6]
        scan_kswapd, scan_direct, steal_kswapd, steal_direct = values[6:10]
        stalls = [value for value in values[10:] if value is not None]
        return VmStat(
            swap_in_pages=swap_in,
            swap_out_pages=swap_out,
            major_faults=major_faults,
            refault_file_pages=old_refaults if refault_file is None else refault_file,
            refault_anon_pages=refault_anon,
            scan_kswapd_pages=scan_kswapd,
            scan_direct_pages=scan_direct,
            steal_kswapd_pages=steal_kswapd,
            steal_direct_pages=steal_direct,
            allocation_stalls=checked_count(sum(stalls), path) if stalls else None,
        )


def parse_vmstat(content: bytes, path: Path) -> VmStat:
    """Parse /proc/vmstat.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    return VmStatParser()(content, path)


def vmstat_file(path: Path) -> SignalFile[VmStat]:
    """Open /proc/vmstat; only its first piece is read if that has all the counters.

    The kernel sums up all counters anew for every piece (22 us each), and once more for the empty
    piece at the end.
    """
    signal = SignalFile(path, VmStatParser(), VmStat(), one_piece=True)
    whole = SignalFile(path, VmStatParser(), VmStat())
    if _present(signal.read()) == _present(whole.read()):
        whole.close()
        return signal
    signal.close()
    return whole


def _present(stat: VmStat) -> tuple[bool, ...]:
    return tuple(getattr(stat, field.name) is not None for field in fields(stat))
