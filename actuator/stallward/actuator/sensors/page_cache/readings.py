"""Adds page-cache hits and misses to a sample, where they are switched on and allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stallward.actuator.errors import ActuatorError, NodeError
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.target import AnyTarget
from stallward.agent.sample import GroupSample, NodeSample, ProcessSample, Sample

if TYPE_CHECKING:
    from stallward.actuator.sensors.page_cache.counters import PageCacheCount, PageCacheCounters


class PageCacheSignal:
    """Fills in the fields of a sample that hold page-cache counts.

    Args:
        mode: ``off``, ``auto`` or ``ebpf``; see ``node.page_cache`` in the configuration.
        hierarchy: The node's cgroup hierarchies.
        zone: The group that the protected application and the background share.
        protected: The protected application's group; a process tree is not counted apart.
        slots: The background groups or process trees, in slot order.
        sys: Where sysfs is.

    Raises:
        NodeError: If the mode is ``ebpf`` and the kernel does not allow it.
    """

    def __init__(
        self,
        mode: str,
        *,
        hierarchy: Hierarchy,
        zone: Cgroup,
        protected: AnyTarget,
        slots: Sequence[AnyTarget],
        sys: Path,
    ) -> None:
        self.absent: str | None = None
        """Why nothing is counted; ``None`` while lookups are counted."""
        self._counters: PageCacheCounters | None = None
        if mode == "off":
            self.absent = 'switched off (node.page_cache = "off")'
            return
        from stallward.actuator.sensors.page_cache.counters import PageCacheAbsent, open_page_cache  # noqa: PLC0415 - only where wanted

        counters = open_page_cache(
            mode,
            sys=sys,
            groups=[
                group.unified_dir if isinstance(group, Cgroup) else None
                for group in (zone, protected, *slots)
            ],
            cgroup_root=hierarchy.unified_root,
        )
        if isinstance(counters, PageCacheAbsent):
            if mode == "ebpf":
                raise NodeError(
                    f"The page cache cannot be watched by eBPF: {counters.reason}",
                    next_step='Set node.page_cache to "auto" or "off" to do without.',
                )
            self.absent = counters.reason
        else:
            self._counters = counters

    def fill(self, sample: Sample) -> Sample:
        """Return the sample with the counts so far; unchanged if nothing is counted."""
        counters = self._counters
        if counters is None:
            return sample
        try:
            reading = counters.read()
        except ActuatorError as error:
            self.close()
            self.absent = str(error)
            return sample
        zone, protected, *slots = reading.groups
        processes = sample.processes
        return replace(
            sample,
            node=_filled_node(sample.node, reading.node),
            zone=_filled_group(sample.zone, zone),
            protected=_filled_group(sample.protected, protected),
            slots=tuple(map(_filled_group, sample.slots, slots)),
            processes=None
            if processes is None
            else tuple(_filled_process(one, counters.process(one.pid)) for one in processes),
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """Why the counts are missing; empty if they are not."""
        return () if self.absent is None else (f"page cache by eBPF: {self.absent}",)

    def close(self) -> None:
        """Detach from the kernel."""
        if self._counters is not None:
            self._counters.close()
            self._counters = None


def _filled_node(part: NodeSample, count: PageCacheCount) -> NodeSample:
    return replace(part, page_cache_hits=count.hits, page_cache_misses=count.misses)


def _filled_group(part: GroupSample, count: PageCacheCount | None) -> GroupSample:
    if count is None:
        return part
    return replace(part, page_cache_hits=count.hits, page_cache_misses=count.misses)


def _filled_process(part: ProcessSample, count: PageCacheCount) -> ProcessSample:
    return replace(part, page_cache_hits=count.hits, page_cache_misses=count.misses)
