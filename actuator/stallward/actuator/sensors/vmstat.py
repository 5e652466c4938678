"""/proc/vmstat: the machine's paging counters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.sensors.flat import count_of, parse_flat, sum_of

# One counter per memory zone since kernel 4.10, a single one before.
_STALLS: Final = tuple(
    b"allocstall" + zone
    for zone in (b"", b"_dma", b"_dma32", b"_normal", b"_high", b"_movable", b"_device")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VmStat:
    """The counters used of /proc/vmstat, since boot; absent ones are ``None``."""

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


def parse_vmstat(content: bytes, path: Path) -> VmStat:
    """Parse /proc/vmstat.

    Raises:
        SensorError: If it is malformed or cut short.
    """
    table = parse_flat(content, path)
    file_refaults = count_of(table, b"workingset_refault_file", path)
    if file_refaults is None:  # before kernel 5.9, anonymous pages had no refaults
        file_refaults = count_of(table, b"workingset_refault", path)
    return VmStat(
        swap_in_pages=count_of(table, b"pswpin", path),
        swap_out_pages=count_of(table, b"pswpout", path),
        major_faults=count_of(table, b"pgmajfault", path),
        refault_file_pages=file_refaults,
        refault_anon_pages=count_of(table, b"workingset_refault_anon", path),
        scan_kswapd_pages=count_of(table, b"pgscan_kswapd", path),
        scan_direct_pages=count_of(table, b"pgscan_direct", path),
        steal_kswapd_pages=count_of(table, b"pgsteal_kswapd", path),
        steal_direct_pages=count_of(table, b"pgsteal_direct", path),
        allocation_stalls=sum_of(table, _STALLS, path),
    )
