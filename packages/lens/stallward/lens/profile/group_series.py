"""Reads the counters of one group again and again while programs run in it."""

from __future__ import annotations

import time
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.sensors.group_reader import GroupReader
from stallward.agent.sample import GroupSample
from stallward.env.sandbox.watch import PeriodicWatch

_PERIOD_S: Final = 0.1


class GroupSeries(PeriodicWatch):
    """Reads a group ten times a second; a context manager.

    Args:
        group: The group.
    """

    def __init__(self, group: Cgroup) -> None:
        super().__init__("group-series", _PERIOD_S)
        self._reader = GroupReader(group)
        self._samples: list[tuple[float, GroupSample]] = []

    def samples(self, begin_s: float, end_s: float) -> list[tuple[float, GroupSample]]:
        """What was read between two times: when, by CLOCK_MONOTONIC, and the counters."""
        return [one for one in self._samples if begin_s <= one[0] <= end_s]

    def _look(self) -> None:
        now_s = time.monotonic()
        self._samples.append((now_s, self._reader.read(now_s)))
