"""When the kernel would say that memory is low: the watermarks MIN, LOW and HIGH. Pure.

LOW is MIN and a quarter of it, HIGH is MIN and half of it, as in setup_per_zone_wmarks() of Linux
3.0 (mm/page_alloc.c), which the Birkbeck thesis patched. On a whole machine MIN is the sum of
those in /proc/zoneinfo. A cgroup has no watermarks: its MIN is what the kernel would keep free on
a machine of its size, and what is free is the rest up to its limit. The kernel reclaims in a group
only when it is full, so there LOW and MIN are reached nearly at the same time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from stallward.agent.sample import GroupSample

_KIB: Final = 1024
_LEAST_KIB: Final = 128
_MOST_KIB: Final = 262_144
"""The bounds in calculate_min_free_kbytes()."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """The free memory at which the kernel starts and ends to reclaim."""

    min_bytes: float

    @property
    def low_bytes(self) -> float:
        """At or below it, kswapd wakes up."""
        return self.min_bytes * 1.25

    @property
    def high_bytes(self) -> float:
        """At or above it, kswapd goes to sleep."""
        return self.min_bytes * 1.5


def watermarks_of(zone_bytes: float, machine_min_bytes: int = 0) -> Watermarks:
    """The watermarks of a zone.

    Args:
        zone_bytes: The zone's memory.
        machine_min_bytes: MIN in /proc/zoneinfo where the zone is the whole machine; else 0.
    """
    if machine_min_bytes > 0:
        return Watermarks(min_bytes=float(machine_min_bytes))
    kib = math.isqrt(int(max(zone_bytes, 0.0)) // _KIB * 16)
    return Watermarks(min_bytes=float(min(max(kib, _LEAST_KIB), _MOST_KIB) * _KIB))


def free_bytes(zone: GroupSample, zone_bytes: float) -> float | None:
    """The free memory of a zone; ``None`` where its use is not known."""
    used = zone.memory_usage_bytes
    return None if used is None or zone_bytes <= 0 else max(zone_bytes - used, 0.0)
