"""``stallward bench pods``: what a tick costs with many pods in one slot.

The groups are real, each with one sleeping process, below a zone of their own. The tick is the
loop's: sensors, decision by the default rule, guard, and levers. A limit is held on the slot while
it is timed, so that the levers of all pods have work.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.engine.engine import Engine
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.actuator.node.node import Node
from stallward.actuator.targets.config import PodConfig
from stallward.actuator.targets.messages import BoundPod, PodsReport, pack
from stallward.agent.desired import MIB, SlotDesire
from stallward.agent.registry import make_controller
from stallward.benchmarks.sample_cost import removed_at_end, sleeping_processes
from stallward.training.progress import Report, silent

PODS: Final = (1, 10, 50, 100)
"""The numbers of pods that are measured."""
_WARM_UP: Final = 20
_TICKS: Final = 50
_PERIOD_S: Final = 0.05
_LIMIT_BYTES: Final = 64 * MIB
"""The limit of each pod, far above what a sleeping process holds."""
_PARTS: Final = ("calm", "limited")
MEANINGS: Final = {
    f"tick_{pods}_pods_{part}_cpu_ms": (
        f"processor time of a tick; pods in one slot: {pods}, "
        f"{'nothing held' if part == 'calm' else 'each of them limited'}"
    )
    for pods in PODS
    for part in _PARTS
}


def bench_pods(report: Report = silent) -> dict[str, float | None]:
    """Measure the mean processor time of a tick, for each number of pods.

    Raises:
        StallwardError: If this machine cannot have the groups.
    """
    figures: dict[str, float | None] = {}
    for number, pods in enumerate(PODS):
        report(f"{pods} pods", number / len(PODS))
        for part, cost_ms in tick_costs_ms(pods).items():
            figures[f"tick_{pods}_pods_{part}_cpu_ms"] = cost_ms
    report("done", 1.0)
    return figures


def tick_costs_ms(pods: int, *, ticks: int = _TICKS) -> dict[str, float]:
    """Mean processor time of a tick with so many pods in one slot, calm and limited."""
    paths = DEFAULT_PATHS
    zone = require(paths).group(f"stallward/{os.getpid()}-{os.urandom(3).hex()}-pods")
    app, groups = zone.child("app"), [zone.child(f"pod{i:03}") for i in range(pods)]
    with removed_at_end(zone, paths), sleeping_processes([app, *groups], pods + 1):
        return _Ticks(zone, app, groups).measure(ticks)


class _Ticks:
    """The loop's tick on a node whose only slot is shared by pods."""

    def __init__(self, zone: Cgroup, app: Cgroup, pods: list[Cgroup]) -> None:
        here = Path("/nonexistent")
        config = DaemonConfig(
            node=NodeConfig(zone=zone.name),
            protected=ProtectedConfig(group=app.name),
            background=(SlotConfig(name="pods", pod=PodConfig(selector="a=b", group_by="all")),),
            service=ServiceConfig(socket=here / "socket"),
            journal=JournalConfig(path=here / "journal"),
            guard=Budgets(lift_budgets=True),
        )
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._node = Node(config, lambda *_: None, lambda *_: None, pods=ours)
        self._engine = Engine(
            settings=self._node.settings(frozenset()),
            configured=make_controller("partition"),
            default=make_controller("partition"),
        )
        self._count = len(pods)
        bound = tuple(BoundPod(group=pod.name, pod=f"bench/{pod.name[-6:]}") for pod in pods)
        self._theirs.send(pack(PodsReport(slots=(bound,))))
        self._number = 0

    def measure(self, ticks: int) -> dict[str, float]:
        """Return the mean processor time of a tick, by what is held."""
        try:
            return {
                "calm": self._mean_ms(ticks, SlotDesire()),
                "limited": self._mean_ms(
                    ticks, SlotDesire(limit_bytes=_LIMIT_BYTES * self._count)
                ),
            }
        finally:
            self._node.close()
            self._theirs.close()

    def _mean_ms(self, ticks: int, desire: SlotDesire) -> float:
        cpu_ms = np.empty(ticks)
        for number in range(_WARM_UP + ticks):
            time.sleep(_PERIOD_S)
            cpu_ns = time.thread_time_ns()
            self._tick(desire)
            if number >= _WARM_UP:
                cpu_ms[number - _WARM_UP] = (time.thread_time_ns() - cpu_ns) / 1e6
        return float(np.mean(cpu_ms))

    def _tick(self, desire: SlotDesire) -> None:
        now_s = time.monotonic()
        sample = self._node.read(self._number, now_s)
        self._number += 1
        outcome = self._engine.step(sample)
        self._node.apply(replace(outcome.granted, slots=(desire,)), sample, now_s)
