"""/proc/vmstat: the machine's paging counters."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from stallward.actuator.sensors.files.flat import FlatParser
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


_FIELDS_OF: Final = {
    b"pswpin": ("swap_in_pages",),
    b"pswpout": ("swap_out_pages",),
    b"pgmajfault": ("major_faults",),
    b"workingset_refault_file": ("refault_file_pages",),
    b"workingset_refault": (),  # before kernel 5.9, anonymous pages had no refaults
    b"workingset_refault_anon": ("refault_anon_pages",),
    b"pgscan_kswapd": ("scan_kswapd_pages",),
    b"pgscan_direct": ("scan_direct_pages",),
    b"pgsteal_kswapd": ("steal_kswapd_pages",),
    b"pgsteal_direct": ("steal_direct_pages",),
    **dict.fromkeys(_STALLS, ("allocation_stalls",)),
}
"""The counters of the file, in the order in which they are taken, each with the fields that need
it."""


def vmstat_parser() -> FlatParser[VmStat]:
    """Make a parser of /proc/vmstat."""
    return FlatParser(_FIELDS_OF, _make)


def _make(counts: list[int | None]) -> VmStat:
    swap_in, swap_out, major_faults, refault_file, old_refaults, refault_anon = counts[:6]
    scan_kswapd, scan_direct, steal_kswapd, steal_direct = counts[6:10]
    stalls = [count for count in counts[10:] if count is not None]
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
        allocation_stalls=sum(stalls) if stalls else None,
    )


def vmstat_file(path: Path) -> SignalFile[VmStat]:
    """Open /proc/vmstat; only its first piece is read if that has all the counters.

    The kernel sums up all counters anew for every piece (22 us each), and once more for the empty
    piece at the end.
    """
    signal = SignalFile(path, vmstat_parser(), VmStat(), one_piece=True)
    whole = SignalFile(path, vmstat_parser(), VmStat())
    if _present(signal.read()) == _present(whole.read()):
        whole.close()
        return signal
    signal.close()
    return whole


def _present(stat: VmStat) -> tuple[bool, ...]:
    return tuple(getattr(stat, field.name) is not None for field in fields(stat))
