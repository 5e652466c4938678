"""``bvt``: borrowed virtual time, with which DASEC compares itself.

Source: K. J. Duda, D. R. Cheriton, "Borrowed-virtual-time (BVT) scheduling: supporting
latency-sensitive threads in a general-purpose scheduler", SOSP 1999. A latency-sensitive thread
warps back in virtual time by W, so that it is dispatched earlier, while its long-run share stays.
It may run warped for at most the warp time limit L, and then not warp for the unwarp time U.

Linux chooses the eligible thread with the earliest virtual deadline, which lies one timeslice
ahead of the thread's virtual time (EEVDF). A timeslice that is shorter by W makes the deadline
earlier by W: this is the warp. Only eligible threads are chosen, so nothing is borrowed beyond
the thread's lag, and its share stays, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import Decision, IgnoresTarget, Need, NodeContext, require_needs
from stallward.agent.desired import RELEASED
from stallward.agent.plugin import ControllerEntry, number
from stallward.agent.sample import Sample
from stallward.agent.threads import ThreadDesire, ThreadRef

DEFAULT_SLICE_US: Final = 100
DEFAULT_LIMIT_MS: Final = 50.0
DEFAULT_UNWARP_MS: Final = 100.0


class BvtController(IgnoresTarget):
    """Warps every thread of the application, within the limits on warped time.

    Args:
        slice_us: The timeslice of a warped thread; what it lacks to the usual one is the warp.
        limit_ms: How long a thread may run warped before it has to unwarp.
        unwarp_ms: How long it then stays unwarped.
    """

    name = "bvt"
    needs_processes = False
    needs_threads = True

    def __init__(
        self,
        *,
        slice_us: int = DEFAULT_SLICE_US,
        limit_ms: float = DEFAULT_LIMIT_MS,
        unwarp_ms: float = DEFAULT_UNWARP_MS,
    ) -> None:
        self._slice_us = slice_us
        self._limit_us = limit_ms * 1e3
        self._unwarp_s = unwarp_ms / 1e3
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def check(self, context: NodeContext) -> None:
        """Check that a node counts what the application's threads run, and sets their timeslices.

        Raises:
            ControllerError: If it cannot, or may not.
        """
        require_needs(self.name, (Need.THREAD_SLICE, Need.THREAD_TIMES), context)

    def reset(self, context: NodeContext) -> None:
        """Forget the threads."""
        self._run_us: dict[ThreadRef, int] = {}
        """How long each thread had run when it last began to warp, or slept since."""
        self._switches: dict[ThreadRef, int] = {}
        self._unwarped_until_s: dict[ThreadRef, float] = {}

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """Warp every thread that has not just run warped for too long."""
        threads = sample.protected_threads
        if threads is None:
            self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))
            return Decision(desired=RELEASED, reason="the application's threads are not known")
        refs = {thread.ref for thread in threads}
        for known in (self._run_us, self._switches, self._unwarped_until_s):
            for gone in known.keys() - refs:
                del known[gone]
        desires = []
        for thread in threads:
            ref, slept = thread.ref, thread.voluntary_switches
            if sample.time_s < self._unwarped_until_s.get(ref, float("-inf")):
                self._run_us[ref] = thread.run_us
                continue
            if self._switches.get(ref) != slept:  # it slept, which ends the warp
                self._run_us[ref] = thread.run_us
            self._switches[ref] = slept
            if thread.run_us - self._run_us[ref] > self._limit_us:
                self._unwarped_until_s[ref] = sample.time_s + self._unwarp_s
                self._run_us[ref] = thread.run_us
                continue
            desires.append(ThreadDesire(thread=ref, slice_us=self._slice_us))
        return Decision(
            desired=replace(RELEASED, protected_threads=tuple(desires)),
            reason=f"{len(desires)} of {len(threads)} threads warped",
        )


def _make(arguments: Mapping[str, str]) -> BvtController:
    return BvtController(
        slice_us=int(number(arguments, "slice_us", DEFAULT_SLICE_US, low=100, high=100_000)),
        limit_ms=number(arguments, "limit_ms", DEFAULT_LIMIT_MS, low=0.0, high=60_000.0),
        unwarp_ms=number(arguments, "unwarp_ms", DEFAULT_UNWARP_MS, low=0.0, high=60_000.0),
    )


ENTRY = ControllerEntry(
    name="bvt",
    summary="borrowed virtual time: lets the application's threads run sooner, at the same share",
    make=_make,
    parameters={
        "slice_us": f"timeslice of a warped thread, microseconds (default {DEFAULT_SLICE_US})",
        "limit_ms": f"how long a thread may run warped at once (default {DEFAULT_LIMIT_MS:g})",
        "unwarp_ms": f"how long it then stays unwarped (default {DEFAULT_UNWARP_MS:g})",
    },
)
