"""``mat``: pauses one application after the other while memory thrashes. The idea of MaT.

Source: Li et al., "A Framework for Memory Oversubscription Management in Graphics Processing
Units", ASPLOS 2019, as "Memory Contention Aware Swap Space Management" (NTUST 2019) compares with
it: *memory-aware throttling* closes streaming multiprocessors of a GPU while the page faults are
frequent, and opens them afterwards. Here an application stands for a multiprocessor, and a pause
for closing it.

At the end of each epoch the pages that came back in it are counted. If there were more than a
threshold, the next application is paused, that with the lowest priority first; otherwise one runs
again. Nothing is squeezed: what is paused loses its pages only to what runs. One application runs
always, so that the thrashing ends at the latest when it has the memory for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.control_law.thresholds import spans, tuned
from stallward.agent.controller import Decision, IgnoresTarget, Need, NodeContext, require_needs
from stallward.agent.desired import RELEASED, DesiredState, SlotDesire
from stallward.agent.observation.demand import held_bytes
from stallward.agent.plugin import ControllerEntry, number
from stallward.agent.sample import Sample

RUNS_BYTES: Final = 4 << 20
"""A group that holds less than this runs no application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatThresholds:
    """When memory thrashes, and how often that is asked. None of them is in the source."""

    refaults_per_s: float = tuned(
        2000.0, "pages that come back of all applications that are thrashing, pages/s",
        10.0, 1e6, logarithmic=True,
    )  # fmt: skip
    epoch_s: float = tuned(0.5, "how often it is decided who runs, s", 0.1, 60.0, logarithmic=True)


class MatController(IgnoresTarget):
    """Pauses and resumes one slot an epoch.

    Args:
        thresholds: When memory thrashes.
    """

    name = "mat"
    needs_processes = False

    def __init__(self, thresholds: MatThresholds) -> None:
        self._thresholds = thresholds
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def check(self, context: NodeContext) -> None:
        """Check that slots can be paused, and that pages that come back are counted."""
        require_needs(self.name, (Need.PAUSE, Need.REFAULTS), context)

    def reset(self, context: NodeContext) -> None:
        """Forget the epoch and the pauses."""
        self._closed = 0
        self._began: tuple[float, int] | None = None

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Who is paused now; it changes at the end of an epoch only."""
        groups = (sample.protected, *sample.slots)
        counts = [group.refaulted_pages for group in groups]
        known = [count for count in counts if count is not None]
        if not known:
            return Decision(desired=RELEASED, reason="refaults are not known")
        running = [i for i, group in enumerate(sample.slots) if held_bytes(group) >= RUNS_BYTES]
        # The protected application is never paused, so it is the one that runs always.
        spared = 0 if held_bytes(sample.protected) >= RUNS_BYTES else 1
        most = max(len(running) - spared, 0)
        self._closed = min(self._closed, most)
        total = sum(known)
        if self._began is None or sample.time_s < self._began[0] or total < self._began[1]:
            self._began = (sample.time_s, total)
        began_s, before = self._began
        passed_s = sample.time_s - began_s
        reason = "within an epoch"
        if passed_s >= self._thresholds.epoch_s:
            rate_per_s = (total - before) / passed_s
            self._began = (sample.time_s, total)
            thrashes = rate_per_s > self._thresholds.refaults_per_s
            self._closed = min(max(self._closed + (1 if thrashes else -1), 0), most)
            reason = f"{rate_per_s:.0f} pages/s came back, {self._closed} of {len(running)} closed"
        paused = frozenset(running[: self._closed])
        slots = tuple(SlotDesire(paused=i in paused) for i in range(len(sample.slots)))
        return Decision(desired=DesiredState(slots=slots), reason=reason)


def _make(arguments: Mapping[str, str]) -> MatController:
    default = MatThresholds()
    values = {
        name: number(arguments, name, getattr(default, name), low=span.low, high=span.high)
        for name, span in spans(MatThresholds).items()
    }
    return MatController(MatThresholds(**values))


ENTRY: Final = ControllerEntry(
    name="mat",
    summary="pauses one group after the other while memory thrashes (the idea of MaT)",
    make=_make,
    parameters={
        name: f"{span.meaning} (default {getattr(MatThresholds(), name):g})"
        for name, span in spans(MatThresholds).items()
    },
)
