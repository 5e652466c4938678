"""CPU time and memory in equal units, shared between the application and its background. Pure.

PARTIES and Heracles move whole cores and ways of the last-level cache. Nodes here have few CPUs
and no cache partitions, so a unit is a sixteenth of the node's CPU time, or of the zone's memory:
about what one core of 14, or one way of 20, was on their servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from stallward.agent.controller import NodeContext
from stallward.agent.desired import SlotDesire
from stallward.agent.sample import Sample

UNITS: Final = 16
"""The units of each resource on a node."""
Resource = Literal["cpu", "memory"]
RESOURCES: Final[tuple[Resource, ...]] = ("cpu", "memory")


def zone_bytes(sample: Sample, context: NodeContext) -> int:
    """The memory of the zone."""
    return sample.zone.memory_limit_bytes or context.zone_limit_bytes


def limits_of(
    context: NodeContext, slots: int, memory_bytes: int, units: dict[Resource, int]
) -> Sequence[SlotDesire]:
    """The limits that leave the background so many units, divided equally among its groups.

    Args:
        context: What is known about the node.
        slots: How many groups there are.
        memory_bytes: The memory of the zone.
        units: The units of each resource that the background has.
    """
    cores = context.cpus * units["cpu"] / UNITS / slots
    size = memory_bytes * units["memory"] // UNITS // slots
    return [
        SlotDesire(cpu_max_cores=cores, limit_bytes=max(size, context.floor(i)))
        for i in range(slots)
    ]
