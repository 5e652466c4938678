"""What nodes with groups lack, found out from files like those of the kernel: v2 and hybrid."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pod_tree import FILES, PodNode

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.node.lacking import find_lacks
from stallward.actuator.node.node import Node
from stallward.actuator.sensors.missing import Absence, Why
from stallward.agent.controller import THREAD_NEEDS, Need, check_node
from stallward.agent.desired import MIB
from stallward.agent.errors import ControllerError
from stallward.agent.registry import make_controller

STALL = FILES["memory.pressure"]
OF_V2 = {**FILES, "io.pressure": STALL, "memory.reclaim": "", "cgroup.kill": ""} | {
    "memory.stat": "anon 4096\nfile 8192\ninactive_file 4096\npgmajfault 0\n"
    "workingset_refault_anon 0\nworkingset_refault_file 0\n"
}
OF_V1 = {
    "cgroup.procs": "",
    "memory.usage_in_bytes": "8192\n",
    "memory.limit_in_bytes": "9223372036854771712\n",
    "memory.stat": "total_cache 8192\ntotal_rss 4096\ntotal_swap 0\ntotal_pgmajfault 0\n"
    "total_inactive_file 4096\ntotal_workingset_refault_file 0\n",
    "memory.swappiness": "60\n",
    "memory.failcnt": "0\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
}
UNIFIED_OF_HYBRID = ("cgroup.freeze", "cgroup.events", "cgroup.procs", "cpu.stat", "cgroup.kill")
VM = ("swappiness", "overcommit_memory", "dirty_ratio", "dirty_background_ratio")
UNLIKE = {Need.FILE_CACHE, Need.REFERENCED_BITS, Need.FILE_ADVICE, *THREAD_NEEDS}
"""What depends on the machine that the test runs on, and on consent."""


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)


@dataclass
class FakeNode:
    """The folders and files of a node with an application and one slot."""

    root: Path
    kind: str
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        proc, cgroup = self.root / "proc", self.root / "cgroup"
        write(
            proc,
            {
                "meminfo": "MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 700 kB\n"
                "Inactive(file): 100 kB\nSwapTotal: 100 kB\nSwapFree: 100 kB\n",
                "vmstat": "pgmajfault 0\n",
                "stat": "cpu 1 1 1 1\ncpu0 1 1 1 1\n",
            },
        )
        write(proc / "pressure", dict.fromkeys(("memory", "io", "cpu"), STALL))
        write(proc / "sys/vm", dict.fromkeys(VM, "20\n"))
        mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
        if self.kind == "hybrid":
            mounts = "none /sys/fs/cgroup/memory cgroup rw,memory 0 0\n" + mounts.replace(
                "group ", "group/unified ", 1
            )
        write(proc / "self", {"mounts": mounts})
        for group in ("app", "b"):
            if self.kind == "v2":
                write(cgroup / group, OF_V2)
            else:
                unified = {name: OF_V2[name] for name in UNIFIED_OF_HYBRID}
                pressure = {"memory.pressure": STALL, "io.pressure": STALL}
                write(cgroup / "unified" / group, unified | pressure)
                write(cgroup / "memory" / group, OF_V1)
        if self.kind == "v2":
            write(cgroup, {"cgroup.controllers": "cpu io memory\n"})
        else:
            write(cgroup / "unified", {"cgroup.controllers": ""})
            write(cgroup / "memory", {})

    def remove(self, path: str) -> None:
        found = self.root / path
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink()

    def config(self) -> DaemonConfig:
        return DaemonConfig(
            node=NodeConfig(
                proc=self.root / "proc", cgroup=self.root / "cgroup", sys=self.root / "sys"
            ),
            protected=ProtectedConfig(group="app"),
            background=(SlotConfig(name="b", group="b"),),
            service=ServiceConfig(socket=self.root / "s.sock"),
            journal=JournalConfig(path=self.root / "journal"),
        )

    def node(self) -> Node:
        self.nodes.append(Node(self.config(), lambda *_entries: None))
        assert self.nodes[-1].hierarchy.kind == self.kind
        return self.nodes[-1]

    def lacks(self) -> dict[Need, str]:
        found = self.node().lacks(Budgets(allow_protected_threads=True))
        return {need: why for need, why in found.items() if need not in UNLIKE}


@pytest.fixture(params=["v2", "hybrid"])
def fake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeNode]:
    made = FakeNode(tmp_path, request.param)
    yield made
    for node in made.nodes:
        node.close()


def test_a_node_with_all_its_files_lacks_latencies_and_on_v2_a_swappiness(fake: FakeNode) -> None:
    lacks = fake.lacks()
    assert "add a [latency] section" in lacks.pop(Need.LATENCY)
    if fake.kind == "v2":
        assert "only cgroup v1" in lacks.pop(Need.GROUP_SWAPPINESS)
    else:
        assert "cpu_max:b" in lacks.pop(Need.CPU_MAX), "no v1 hierarchy of that controller"
    assert lacks == {}


@pytest.mark.parametrize(
    ("removed", "need", "why"),
    [
        ("b/memory.pressure", Need.SLOT_STALL, "slots[0].psi.memory_some_us: there is no such"),
        ("b/io.pressure", Need.SLOT_IO_STALL, "slots[0].psi.io_some_us: there is no such"),
    ],
)
def test_a_group_without_pressure_files_is_named(
    fake: FakeNode, removed: str, need: Need, why: str
) -> None:
    before = fake.lacks()
    fake.remove(f"cgroup/{'unified/' if fake.kind == 'hybrid' else ''}{removed}")
    after = fake.lacks()
    assert after.keys() - before.keys() == {need}
    assert after[need].startswith(why)


@pytest.mark.parametrize(
    ("removed", "needs", "why"),
    [
        ("proc/pressure/memory", {Need.MEMORY_STALL}, "node.psi.memory_some_us: there is no such"),
        ("proc/pressure/io", {Need.IO_STALL}, "node.psi.io_some_us: there is no such"),
        ("proc/sys/vm/dirty_ratio", {Need.NODE_TUNING}, "vm.dirty_ratio: "),
    ],
)
def test_a_machine_that_lacks_a_file_is_told_with_its_name(
    fake: FakeNode, removed: str, needs: set[Need], why: str
) -> None:
    before = fake.lacks()
    fake.remove(removed)
    after = fake.lacks()
    assert after.keys() - before.keys() == needs
    for need in needs:
        assert after[need].startswith(why)
        assert removed.rpartition("/")[2] in after[need]


def test_a_group_in_which_no_page_that_comes_back_is_counted(fake: FakeNode) -> None:
    folder = "cgroup/memory" if fake.kind == "hybrid" else "cgroup"
    stat = fake.root / folder / "b/memory.stat"
    kept = [line for line in stat.read_text().splitlines() if "refault" not in line]
    stat.write_text("\n".join(kept) + "\n")
    assert Need.REFAULTS not in fake.lacks(), "major faults stand in for refaults"
    stat.write_text("\n".join(line for line in kept if "majfault" not in line) + "\n")
    context = fake.node().settings(frozenset()).context
    refused = r"lacks refaults \(slots\[0\]\.major_faults: the file does not have it"
    with pytest.raises(ControllerError, match=refused):
        check_node(make_controller("mat"), context)


@pytest.mark.parametrize(
    ("signal", "why", "lacked"),
    [
        ("slots[0].psi.memory_some_us", Why.NOT_THERE, {Need.SLOT_STALL}),
        ("slots[0].psi.memory_some_us", Why.GROUP_GONE, set()),
        ("protected.swap_bytes", Why.NOT_YET, set()),
        ("latency", Why.OFF, {Need.LATENCY}),
        ("latency", Why.UNREADABLE, set()),
    ],
)
def test_what_comes_with_its_group_or_with_time_is_not_lacked(
    fake: FakeNode, signal: str, why: Why, lacked: set[Need]
) -> None:
    node = fake.node()
    sample, config = node.read(0, time.monotonic()), fake.config()

    def lacks(*absences: Absence) -> set[Need]:
        return set(find_lacks(config, Budgets(), node.levers, sample, absences))

    assert lacks(Absence(signal=signal, why=why)) - lacks() == lacked


def test_pods_that_are_not_there_yet_lack_nothing_but_what_the_machine_lacks(
    tmp_path: Path,
) -> None:
    node = PodNode(tmp_path, protected_is_pod=True)
    try:
        lacks = node.node.lacks(Budgets())
        stalls = {need for need in lacks if need.value.endswith("stall")}
        assert len(stalls) == 5, "this machine has no /proc/pressure"
        assert Need.REFAULTS not in lacks
        assert Need.LIMIT not in lacks
    finally:
        node.close()


def test_only_hard_limits_say_how_far_a_running_slot_can_be_limited(tmp_path: Path) -> None:
    """The swap of 100 kB is little beside what a program may allocate until the next tick."""
    least = {}
    for kind in ("v2", "hybrid"):
        fake = FakeNode(tmp_path / kind, kind)
        node = fake.node()
        least[kind] = node.read(0, time.monotonic()).slot_states[0].least_limit_bytes
        node.close()
    assert least["v2"] is None
    assert (least["hybrid"] or 0) > 100 * MIB
