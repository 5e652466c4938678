"""``tmo``: reclaims a little from each background group for as long as it hardly stalls.

Source: the senpai plugin of facebookincubator/oomd with ``immediate_backoff``,
src/oomd/plugins/Senpai.cpp and Senpai.h (88c28fde, 2026-03-15), with its default arguments. It is
the part of Transparent Memory Offloading (Weiner et al., ASPLOS 2022) that decides.

For each group: where avg10 and avg60 of ``some`` are both below 0.1 %, of memory and of I/O, 1 %
of what the group holds above its lowest size is reclaimed, once, in whole pages; then it rests for
6 runs. Where it stalls more it waits until it does not. The lowest size is 100 MiB and what cannot
be reclaimed: what is neither page cache nor anonymous memory for which there is swap. There is no
limit, so a group may grow again at once.

What differs on this node:

* oomd runs its plugins every 5 s unless its unit says 1 s, as the shipped one does: a run is 1 s.
* The averages are computed from the totals as the kernel does (``PressureAverages``).
* Only the background is reclaimed from. TMO also takes from workloads themselves.
* memory.reclaim as there; a hybrid node has a limit in its place that is taken back at once
  (``docs/reference/levers.md``).
* Reclaiming by memory.high, checks of swap and a changing swappiness are off by default, and left
  out. The paper's own formula (a share of what the group holds, less the nearer its stall is to a
  threshold) is not that of the plugin, which is what is published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.controller import Decision, Need, NodeContext
from stallward.agent.desired import MIB, DesiredState, SlotDesire
from stallward.agent.sample import GroupSample, Sample
from stallward.papers.peers.published import (
    Averages,
    Every,
    PressureAverages,
    PublishedController,
    published_entry,
)

_PERIOD_S: Final = 1.0
_PAGE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TmoNumbers:
    """The arguments of the plugin, with their defaults."""

    limit_min_mib: float = tuned(100, "what is left to a group at least, MiB", 1, 1e6)
    interval: float = tuned(6, "runs of 1 s that it rests after a reclaim", 0, 600, whole=True)
    pressure_percent: float = tuned(0.1, "memory stall from which on it waits, per cent", 0, 100)
    io_pressure_percent: float = tuned(0.1, "I/O stall from which on it waits, per cent", 0, 100)
    max_probe: float = tuned(0.01, "share that is reclaimed at once", 0.0, 1.0)


def reclaim_bytes(group: GroupSample, swap_free_bytes: int, numbers: TmoNumbers) -> int:
    """How much is reclaimed from a group at once; 0 where that is not known.

    Args:
        group: The group.
        swap_free_bytes: The free swap of the node.
        numbers: The arguments.
    """
    usage, file, anon = group.memory_usage_bytes, group.file_bytes, group.anon_bytes
    if usage is None or file is None or anon is None:
        return 0
    unreclaimable = usage - (file + min(anon, swap_free_bytes))
    least = int(numbers.limit_min_mib * MIB) + max(unreclaimable, 0)
    size = int((usage - least) * numbers.max_probe)
    return max(size // _PAGE_BYTES * _PAGE_BYTES, 0)


class _Group:
    """The stall and the rest of one group."""

    def __init__(self, interval: int) -> None:
        self.memory, self.io = PressureAverages(), PressureAverages()
        self.rests = interval
        self.target_bytes: int | None = None


class TmoController(PublishedController[TmoNumbers]):
    """The plugin for each group."""

    name = "tmo"

    def _needs(self) -> tuple[Need, ...]:
        return (Need.RECLAIM, Need.SLOT_STALL, Need.SLOT_IO_STALL)

    def reset(self, context: NodeContext) -> None:
        """Forget the stalls and the rests."""
        super().reset(context)
        self._period = Every(_PERIOD_S)
        self._groups: list[_Group] = []

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """One run of the plugin, if it is due."""
        while len(self._groups) < len(sample.slots):
            self._groups.append(_Group(int(self._numbers.interval)))
        due = self._period.due(sample.time_s)
        slots = []
        for index, (one, group) in enumerate(zip(self._groups, sample.slots, strict=False)):
            memory = one.memory.update(group.psi.memory_some_us, sample.time_s)
            io = one.io.update(group.psi.io_some_us, sample.time_s)
            if due:
                swap_free = sample.node.swap_free_bytes or 0
                self._run(one, group, memory, io, swap_free, self._context.floor(index))
            slots.append(SlotDesire(reclaim_to_bytes=one.target_bytes))
        targets = ", ".join(
            "-" if slot.reclaim_to_bytes is None else f"{slot.reclaim_to_bytes / MIB:.0f}"
            for slot in slots
        )
        return Decision(
            desired=DesiredState(slots=tuple(slots)), reason=f"reclaims to {targets} MiB"
        )

    def _run(
        self,
        one: _Group,
        group: GroupSample,
        memory: Averages,
        io: Averages,
        swap_free_bytes: int,
        floor_bytes: int,
    ) -> None:
        numbers = self._numbers
        one.target_bytes = None
        if one.rests:
            one.rests -= 1
            return
        stalls = (
            max(memory.avg10, memory.avg60) >= numbers.pressure_percent
            or max(io.avg10, io.avg60) >= numbers.io_pressure_percent
        )
        size, usage = reclaim_bytes(group, swap_free_bytes, numbers), group.memory_usage_bytes
        if stalls or not size or usage is None:
            return
        one.target_bytes = max(usage - size, floor_bytes)
        one.rests = int(numbers.interval)


ENTRY = published_entry(
    TmoController,
    TmoNumbers,
    "senpai of oomd, as in TMO: reclaims 1 % from each group that hardly stalls",
)
