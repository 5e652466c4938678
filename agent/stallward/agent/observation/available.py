"""The memory of the zone that is available without swapping. Pure.

Where the zone is the whole machine, that is MemAvailable. A group with a limit has what is free
below the limit, and its page cache: the kernel's formula (``si_mem_available`` in mm/show_mem.c)
without watermarks, which a cgroup has none of, and without reclaimable slab, which samples do not
have. lxcfs shows a container the same.
"""

from __future__ import annotations

from stallward.agent.sample import Sample


def available_bytes(sample: Sample, zone_limit_bytes: int) -> int | None:
    """The available memory of the zone.

    Args:
        sample: The sample.
        zone_limit_bytes: The zone's limit, where the sample does not have it.

    Returns:
        Bytes, at most the zone's limit; ``None`` where the sample does not tell.
    """
    node, zone = sample.node, sample.zone
    total = zone.memory_limit_bytes or zone_limit_bytes
    if total <= 0:
        return None
    if _is_machine(sample, total):
        return node.memory_available_bytes
    if zone.memory_usage_bytes is None:
        return None
    return min(max(total - zone.memory_usage_bytes + _page_cache(sample), 0), total)


def _is_machine(sample: Sample, total_bytes: int) -> bool:
    """Whether the zone's memory is all that the machine has."""
    machine = sample.node.memory_total_bytes
    if machine is None:
        return False
    unlimited = sample.zone.memory_limit_bytes is None
    return total_bytes > machine or (unlimited and total_bytes == machine)


def _page_cache(sample: Sample) -> int:
    """The page cache of the zone; its inactive part where the whole is not known."""
    file, inactive = sample.zone.file_bytes, sample.zone.inactive_file_bytes
    return inactive or 0 if file is None else file
