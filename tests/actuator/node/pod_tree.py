"""A node with cgroup v2 whose pods come and go: folders and files like those of the kernel."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import TickOutcome
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.journal.entries import JournalEntry
from stallward.actuator.latency.config import LatencyConfig
from stallward.actuator.node.node import Node
from stallward.actuator.record.reasons import Fault, FaultKind
from stallward.actuator.targets.config import PodConfig
from stallward.actuator.targets.messages import BoundPod, PauseBudget, PodsReport, pack
from stallward.agent.controller import Controller
from stallward.agent.desired import DEFAULT_FLOOR_BYTES, MIB
from stallward.agent.registry import make_controller

FILES = {
    "cgroup.freeze": "0\n",
    "cgroup.events": "populated 1\nfrozen 0\n",
    "cgroup.procs": "",
    "memory.current": f"{100 * MIB}\n",
    "memory.swap.current": "0\n",
    "memory.high": "max\n",
    "memory.max": "max\n",
    "memory.low": "0\n",
    "memory.min": "0\n",
    "memory.swap.max": "max\n",
    "memory.stat": f"anon {60 * MIB}\nfile {40 * MIB}\n",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "cpu.weight": "100\n",
    "cpu.max": "max 100000\n",
    "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\n",
}


def _bound(group: str, pause: PauseBudget | None = None) -> BoundPod:
    return BoundPod(group=group, pod=f"work/{group[-4:]}", pause=pause)


def fault_of(outcome: TickOutcome) -> Fault | None:
    """The fault of a tick. A busy machine makes decisions late, which is no fault of a rollout."""
    fault = outcome.reasons.fault
    return None if fault is not None and fault.kind is FaultKind.LATE else fault


class PodNode:
    """A node, the reports that it gets, and the journal that it keeps.

    Args:
        folder: Where everything is.
        slots: How many slots there are, all of pods.
        controller: Who decides.
        protected_is_pod: Whether the application is a pod, too.
        budgets: The guard's numbers; without pause budgets by default.
        group_by: Which pods share a slot; none by default.
        floor_bytes: The lowest limit of a slot, or of each pod that shares it.
        max_pause_s: The longest pause that the configuration allows each slot.
        tick_s: The time from one tick to the next, in which writes on threads get done. Without
            it ticks are as fast as they can be, on this machine's clock.
        latency: The source of the application's latencies, of which nothing is ever heard.
    """

    def __init__(
        self,
        folder: Path,
        *,
        slots: int = 2,
        controller: Controller | None = None,
        protected_is_pod: bool = False,
        applications: Sequence[str] = (),
        budgets: Budgets | None = None,
        group_by: str = "pod",
        floor_bytes: int = DEFAULT_FLOOR_BYTES,
        max_pause_s: float | None = None,
        tick_s: float | None = None,
        latency: LatencyConfig | None = None,
    ) -> None:
        self.root, proc = folder / "cgroup", folder / "proc"
        (proc / "self").mkdir(parents=True)
        (proc / "self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
        (proc / "meminfo").write_text("MemTotal: 1024000 kB\nMemAvailable: 512000 kB\n")
        self.root.mkdir()
        (self.root / "cgroup.controllers").write_text("cpu io memory\n")
        self.make("app")
        batch = PodConfig(selector="app=batch", group_by=group_by)
        app = PodConfig(selector="app=app")
        self.config = DaemonConfig(
            node=NodeConfig(proc=proc, cgroup=self.root, sys=folder / "sys"),
            protected=tuple(ProtectedConfig(name=name, pod=app) for name in applications)
            if applications
            else ProtectedConfig(pod=app)
            if protected_is_pod
            else ProtectedConfig(group="app"),
            background=tuple(
                SlotConfig(
                    name=f"b{i}", pod=batch, floor_bytes=floor_bytes, max_pause_s=max_pause_s
                )
                for i in range(slots)
            ),
            service=ServiceConfig(socket=folder / "s.sock"),
            journal=JournalConfig(path=folder / "journal"),
            control=ControlConfig(controller="none"),
            guard=budgets or Budgets(lift_budgets=True),
            latency=latency,
        )
        self.journal: dict[JournalEntry, None] = {}
        """The entries that the guardian would undo."""
        self.touched: set[JournalEntry] = set()
        """Those that it would undo now."""
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._silent: tuple[socket.socket, ...] = ()
        latencies: tuple[socket.socket, ...] = ()
        if latency is not None:
            one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            latencies, self._silent = (one,), (other,)
        self.node = Node(
            self.config,
            self._hold,
            self._release,
            touch_journal=self._touch,
            pods=ours,
            latencies=latencies,
        )
        self._hold(*self.node.levers.originals())
        self.engine = Engine(
            settings=self.node.settings(frozenset()),
            configured=controller or make_controller("none"),
            default=make_controller("none"),
        )
        self.report = PodsReport(slots=((),) * slots)
        self.last: TickOutcome | None = None
        self._ticks = 0
        self._tick_s, self._now_s = tick_s, time.monotonic()

    def _hold(self, *entries: JournalEntry) -> None:
        self.journal |= dict.fromkeys(entries)

    def _release(self, *entries: JournalEntry) -> None:
        for entry in entries:
            self.journal.pop(entry, None)
            self.touched.discard(entry)

    def _touch(self, entry: JournalEntry, moved: bool, _values: Sequence[str] = ()) -> None:
        assert entry in self.journal, "it must be in the journal before it is changed"
        (self.touched.add if moved else self.touched.discard)(entry)

    def make(self, group: str, **changes: str) -> str:
        """Make a group with files, in which numbers and names of files may be given."""
        folder = self.root / group
        folder.mkdir(parents=True)
        for name, content in {**FILES, **changes}.items():
            (folder / name).write_text(content)
        return group

    def pod(self, number: int, **changes: str) -> str:
        """Make the group of a pod."""
        return self.make(f"kubepods/besteffort/pod{number:08x}", **changes)

    def remove(self, group: str) -> None:
        """Remove a group, as the kubelet does when a pod has ended."""
        shutil.rmtree(self.root / group)

    def read(self, group: str, name: str) -> str:
        """The content of a file of a group."""
        return (self.root / group / name).read_text().strip()

    def tell(self, slot: int, group: str | None, pause: PauseBudget | None = None) -> None:
        """Report which pod a slot has, and how it may be paused; -1, -2 are the applications."""
        if slot < 0:
            protected = list(self.report.protected)
            protected += [None] * (-slot - len(protected))
            protected[-1 - slot] = None if group is None else _bound(group)
            self.report = replace(self.report, protected=tuple(protected))
            self._theirs.send(pack(self.report))
        else:
            self.tell_all(slot, () if group is None else (group,), pause)

    def tell_all(self, slot: int, groups: Iterable[str], pause: PauseBudget | None = None) -> None:
        """Report which pods share a slot, and how each may be paused."""
        slots = list(self.report.slots)
        slots[slot] = tuple(_bound(group, pause) for group in groups)
        self.report = replace(self.report, slots=tuple(slots))
        self._theirs.send(pack(self.report))

    def tick(self, now_s: float | None = None) -> TickOutcome:
        """Run one tick, and let the groups do what they are told."""
        if now_s is None:
            now_s = self._next_s()
        sample = self.node.read(self._ticks, now_s)
        self._ticks += 1
        self.last = self.engine.step(sample)
        self.results = self.node.apply(self.last.granted, sample, now_s)
        for path in self.root.rglob("cgroup.freeze"):
            frozen = path.read_text().strip()
            events = path.with_name("cgroup.events")
            events.write_text(f"populated 1\nfrozen {frozen}\n")
        if self._tick_s is not None:
            deadline_s = time.monotonic() + 20.0
            while self._writing():
                assert time.monotonic() < deadline_s
                time.sleep(0.0005)
        return self.last

    def _next_s(self) -> float:
        """When the next tick is."""
        if self._tick_s is None:
            return time.monotonic()
        self._now_s += self._tick_s
        return self._now_s

    def _writing(self) -> bool:
        """Whether a lever has something to write on a thread of its own."""
        workers = (getattr(lever, "_worker", None) for lever in self.node.levers._every)
        return any(worker.busy for worker in workers if worker is not None)

    def tick_until(self, condition: Callable[[], object], ticks: int = 3000) -> int:
        """Tick until a condition holds; return how many ticks it took."""
        deadline_s = time.monotonic() + 20.0
        for count in range(ticks):
            if condition():
                return count
            assert time.monotonic() < deadline_s
            self.tick()
            time.sleep(0.0005)
        raise AssertionError(f"not after {ticks} ticks: {self.last}")

    def held_below(self, folder: str) -> list[Any]:
        """The entries of the journal for groups below a folder."""
        top = self.root / folder
        return [e for e in self.journal if getattr(e, "path", Path("/")).is_relative_to(top)]

    def changed(self, group: str) -> dict[str, str]:
        """The files of a group that are not as they were made."""
        return {
            name: self.read(group, name)
            for name in ("cgroup.freeze", "memory.high", "memory.max", "cpu.weight", "memory.low")
            if self.read(group, name) != FILES[name].strip()
        }

    def close(self) -> None:
        """End the node."""
        self.node.close()
        for end in (self._theirs, *self._silent):
            end.close()
