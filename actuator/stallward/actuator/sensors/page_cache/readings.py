"""Reads page-cache hits and misses for samples, where they are switched on and allowed.

Nothing is decided by them, so they are read once a second, not at every tick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError, NodeError
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.target import AnyTarget, is_unbound
from stallward.actuator.sensors.group_reader import GroupReader
from stallward.actuator.sensors.node_reader import NodeReader
from stallward.actuator.sensors.page_cache.counters import (
    PageCacheAbsent,
    PageCacheCount,
    PageCacheCounters,
    open_page_cache,
)
from stallward.actuator.sensors.readers import AnyReader
from stallward.agent.sample import ProcessSample, Sample

READ_EVERY_S: Final = 1.0
"""How old the counts in a sample may be."""


class PageCacheSignal:
    """Reads the counts of page-cache lookups of the node, its groups and processes.

    Args:
        mode: ``auto`` or ``ebpf``; see ``node.page_cache`` in the configuration.
        hierarchy: The node's cgroup hierarchies.
        zone: The group that the protected application and the background share.
        protected: The protected applications; a process tree is not counted apart, and several
            are not counted together.
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
        protected: Sequence[AnyTarget],
        slots: Sequence[AnyTarget],
        sys: Path,
    ) -> None:
        self.absent: str | None = None
        """Why nothing is counted; ``None`` while lookups are counted."""
        self._counters: PageCacheCounters | None = None
        self._due_s = -math.inf
        self._counted: list[Path | None] = [
            _counted_dir(target)
            for target in (zone, protected[0] if len(protected) == 1 else None, *slots)
        ]
        """The directory of each group that is counted; ``None`` for one that is not."""
        counters = open_page_cache(
            sys=sys, groups=self._counted, cgroup_root=hierarchy.unified_root
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

    def step(self, now_s: float, node: NodeReader, groups: Sequence[AnyReader]) -> None:
        """Give the counts so far to the readers, once a second; see :data:`READ_EVERY_S`.

        Args:
            now_s: CLOCK_MONOTONIC.
            node: The reader of the machine's counters.
            groups: The readers of the zone, the protected application and the slots.
        """
        counters = self._counters
        if counters is None or now_s < self._due_s:
            return
        self._due_s = now_s + READ_EVERY_S
        count_of_node: PageCacheCount | None = None
        counts: tuple[PageCacheCount | None, ...] = (None,) * len(groups)
        try:
            self._follow(counters, groups)
            reading = counters.read()
            count_of_node, counts = reading.node, reading.groups
        except ActuatorError as error:
            self.close()
            self.absent = str(error)
        node.page_cache = _hits_and_misses(count_of_node)
        for group, count in zip(groups, counts, strict=True):
            if isinstance(group, GroupReader):
                group.page_cache = _hits_and_misses(count)

    def _follow(self, counters: PageCacheCounters, groups: Sequence[AnyReader]) -> None:
        """Count the groups that the readers have now: pods have a place in turn.

        What the next pod did before it was bound is counted to it for a second at most.
        """
        for index, reader in enumerate(groups):
            found = _counted_dir(reader.group) if isinstance(reader, GroupReader) else None
            if found != self._counted[index]:
                self._counted[index] = found
                counters.replace(index, found)

    def fill_processes(self, sample: Sample) -> Sample:
        """Return the sample with the counts of the listed processes at the last read."""
        counters, processes = self._counters, sample.processes
        if counters is None or not processes:
            return sample
        filled = tuple(_filled_process(one, counters.process(one.pid)) for one in processes)
        return replace(sample, processes=filled)

    def close(self) -> None:
        """Detach from the kernel."""
        if self._counters is not None:
            self._counters.close()
            self._counters = None


def _counted_dir(target: AnyTarget | None) -> Path | None:
    """The directory of a group, if it can be counted."""
    if not isinstance(target, Cgroup) or is_unbound(target):
        return None
    return target.unified_dir


def _hits_and_misses(count: PageCacheCount | None) -> tuple[int, int] | None:
    return None if count is None else (count.hits, count.misses)


def _filled_process(part: ProcessSample, count: PageCacheCount) -> ProcessSample:
    return replace(part, page_cache_hits=count.hits, page_cache_misses=count.misses)
