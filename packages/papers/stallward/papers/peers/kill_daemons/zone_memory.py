"""The zone as the machine that a daemon would see in /proc/meminfo. Pure.

The daemons are written for a whole machine. A sandbox or a slice has a limit of its own, so the
limit takes the place of MemTotal, and ``observation.available`` that of MemAvailable. Swap is the
machine's. Where the zone is the whole machine, everything is the machine's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from stallward.agent.observation.available import available_bytes
from stallward.agent.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneMemory:
    """The memory of the zone, by the names of /proc/meminfo."""

    total_bytes: int
    available_bytes: int
    anon_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int

    @property
    def available_share(self) -> float:
        """MemAvailable over MemTotal."""
        return self.available_bytes / self.total_bytes

    @property
    def swap_free_share(self) -> float:
        """SwapFree over SwapTotal; 0 without swap."""
        return self.swap_free_bytes / self.swap_total_bytes if self.swap_total_bytes else 0.0


def zone_memory(sample: Sample, zone_limit_bytes: int) -> ZoneMemory | None:
    """The memory of the zone; ``None`` where the sample does not tell it.

    Args:
        sample: The sample.
        zone_limit_bytes: The zone's limit, where the sample does not have it.
    """
    node, zone = sample.node, sample.zone
    total = zone.memory_limit_bytes or zone_limit_bytes
    available = available_bytes(sample, zone_limit_bytes)
    if available is None:
        return None
    anon = zone.anon_bytes
    if anon is None:
        anon = (zone.memory_usage_bytes or 0) - (zone.file_bytes or 0)
    return ZoneMemory(
        total_bytes=total,
        available_bytes=available,
        anon_bytes=max(anon, 0),
        swap_total_bytes=node.swap_total_bytes or 0,
        swap_free_bytes=node.swap_free_bytes or 0,
    )


def reclaim_count(sample: Sample) -> int | None:
    """A counter that rises while reclaim works in the zone; ``None`` where there is none.

    It counts the pages that reclaim looks at in the zone (``pgscan``). A cgroup v1 does not count
    them, and /proc/vmstat leaves out what is reclaimed for a limit. There it counts how often the
    zone was at its limit, which starts reclaim, and the pages that were swapped out.
    """
    if sample.zone.scanned_pages is not None:
        return sample.zone.scanned_pages
    counts = (sample.zone.max_events, sample.node.swap_out_pages, sample.node.scan_direct_pages)
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
