"""A node of kind "none": sensors, decisions and levers with process trees only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.engine.engine import Engine
from stallward.actuator.errors import NodeError
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.kernel.process_table import read_seen
from stallward.actuator.kernel.target import protected_pids
from stallward.actuator.levers.base.lever import ExemptProcesses
from stallward.actuator.node.find_targets import find_targets
from stallward.actuator.node.node import Node
from stallward.agent.controller import check_node
from stallward.agent.desired import RELEASED, DesiredState, SlotDesire
from stallward.agent.errors import ControllerError
from stallward.agent.registry import make_controller

PROC = Path("/proc")
# A shell with two children of which one has a child of its own.
TREE = "sleep 1000 & sh -c 'sleep 1000 & wait' & wait"


def session(shell: subprocess.Popen[bytes]) -> set[int]:
    """The processes of the session that ``shell`` leads: itself and its descendants."""
    pids = set()
    for pid in (int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == shell.pid:
                pids.add(pid)
    return pids


class Programs:
    """An application and a batch job, each a shell with children, and a node for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app, self.batch = (
            subprocess.Popen(["sh", "-c", TREE], start_new_session=True) for _ in range(2)
        )
        (folder / "app.pid").write_text(f"{self.app.pid}\n")
        (folder / "cgroup").mkdir()

    def config(self, **changes: object) -> DaemonConfig:
        values: dict[str, object] = {
            "node": NodeConfig(cgroup=self.folder / "cgroup"),
            "protected": ProtectedConfig(
                processes=ProcessesConfig(pidfile=self.folder / "app.pid")
            ),
            "background": (
                SlotConfig(name="batch", processes=ProcessesConfig(pids=(self.batch.pid,))),
            ),
            "service": ServiceConfig(socket=self.folder / "s.sock"),
            "journal": JournalConfig(path=self.folder / "journal"),
        }
        return DaemonConfig(**{**values, **changes})  # type: ignore[arg-type]

    def stopped(self) -> tuple[int, int]:
        """The numbers of stopped processes of the application and of the batch job."""
        app, batch = (
            [read_seen(PROC, pid) for pid in session(shell)] for shell in (self.app, self.batch)
        )
        return (
            sum(1 for seen in app if seen is not None and seen.stopped),
            sum(1 for seen in batch if seen is not None and seen.stopped),
        )

    def end(self) -> None:
        for process in (self.app, self.batch):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    started = Programs(tmp_path)
    try:
        yield started
    finally:
        started.end()


def wait_stopped(programs: Programs, wanted: tuple[int, int]) -> bool:
    deadline_s = time.monotonic() + 5.0
    while programs.stopped() != wanted:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True


def settle(programs: Programs) -> None:
    """Wait until both shells have started all their children."""
    deadline_s = time.monotonic() + 5.0
    while [len(session(shell)) for shell in (programs.app, programs.batch)] != [4, 4]:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_node_without_groups_senses_and_pauses(programs: Programs) -> None:
    held: list[object] = []
    node = Node(programs.config(), lambda *entries: held.extend(entries))
    settle(programs)
    assert node.hierarchy.kind == "none"
    sample = node.read(0, time.monotonic())
    assert sample.zone.memory_usage_bytes is not None
    assert sample.protected.memory_usage_bytes
    assert sample.slots[0].name == "batch"
    assert sample.slots[0].memory_usage_bytes
    assert node.zone_limit_bytes == sample.node.memory_total_bytes
    paused = DesiredState(slots=(SlotDesire(paused=True),))
    for sequence in range(3):
        node.apply(paused, sample, time.monotonic())
        sample = node.read(sequence, time.monotonic())
    assert wait_stopped(programs, (0, 4))
    assert node.tracker.states(time.monotonic())[0].paused
    assert node.anything_held()
    assert node.read(4, time.monotonic()).slots[0].frozen is True
    node.apply(RELEASED, sample, time.monotonic())
    assert wait_stopped(programs, (0, 0))
    assert not node.tracker.states(time.monotonic())[0].paused
    node.apply(paused, sample, time.monotonic())
    assert node.close()
    assert wait_stopped(programs, (0, 0))


def test_signals_that_a_tree_lacks_are_reported(programs: Programs) -> None:
    node = Node(programs.config(), lambda *_entries: None)
    missing = node.missing()
    assert any(reason.startswith("protected: psi: a process tree has none") for reason in missing)
    assert any("no cgroup hierarchy" in reason for reason in missing)
    node.close()


def test_controllers_are_told_what_the_application_is_known_to_need(programs: Programs) -> None:
    protected = replace(programs.config().applications[0], demand_bytes=3 << 20)
    config = programs.config(protected=protected)
    node = Node(config, lambda *_entries: None)
    assert node.settings(frozenset()).context.demand_bytes == 3 << 20
    node.close()


@pytest.mark.parametrize(
    "spec", ["none", "rule", "static:pause=all", "excite", "partition", "earlyoom"]
)
def test_rules_decide_finitely_on_a_node_without_groups(programs: Programs, spec: str) -> None:
    node = Node(programs.config(), lambda *_entries: None)
    settle(programs)
    engine = Engine(
        settings=node.settings(frozenset({os.getpid()})),
        configured=make_controller(spec),
        default=make_controller("none"),
    )
    node.sampler.needs_processes = any(one.needs_processes for one in engine.controllers)
    try:
        for sequence in range(4):
            sample = node.read(sequence, time.monotonic())
            outcome = engine.step(sample, late=False)
            assert np.isfinite(outcome.observation).all()
            assert not outcome.fallback, outcome.reasons
            node.apply(replace(outcome.granted, tuning=RELEASED.tuning), sample, time.monotonic())
        if spec == "static:pause=all":
            assert wait_stopped(programs, (0, 4))
    finally:
        assert node.close()


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        ("latd-cgroup", r"limit \(limit:batch: process trees have no memory limit\)"),
        ("pi", "limit"),
        ("static:limit=0.5", "limit"),
        ("tmo", r"slot_stall \(slots\[0\]\.psi.*a process tree has none of its own"),
        ("static:profile=keep-anon", r"group_swappiness \(protected_swappiness: only cgroup v1"),
        ("parties", r"latency \(latency: off in the configuration \(add a \[latency\] section"),
    ],
)
def test_rules_that_trees_cannot_support_are_refused_with_what_is_missing(
    programs: Programs, spec: str, missing: str
) -> None:
    node = Node(programs.config(), lambda *_entries: None)
    try:
        with pytest.raises(ControllerError, match=missing):
            check_node(make_controller(spec), node.settings(frozenset()).context)
    finally:
        node.close()


def test_latd_sees_the_processes_of_a_tree(programs: Programs) -> None:
    node = Node(programs.config(), lambda *_entries: None)
    settle(programs)
    node.sampler.needs_processes = True
    processes = node.read(0, time.monotonic()).processes
    assert processes is not None
    assert {p.pid for p in processes if p.slot == 0} == session(programs.batch)
    assert {p.pid for p in processes if p.slot == -1} == session(programs.app)
    node.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"background": (SlotConfig(name="x", group="edge/x"),)},
            r"background\[0\]\.group names the group 'edge/x'.*Name processes instead",
        ),
        ({"protected": ProtectedConfig(group="app")}, r"protected\.group names the group 'app'"),
        ({"node": "edge"}, r"node\.zone names the group 'edge'.*let the zone be"),
    ],
)
def test_groups_are_refused_where_there_are_none(
    programs: Programs, change: dict[str, object], message: str
) -> None:
    if isinstance(zone := change.get("node"), str):
        change = {"node": NodeConfig(zone=zone, cgroup=programs.folder / "cgroup")}
    with pytest.raises(NodeError, match=f"(?s){message}"):
        Node(programs.config(**change), lambda *_entries: None)


def test_a_tree_that_holds_the_daemon_is_refused(programs: Programs) -> None:
    mine = ProcessesConfig(pids=(os.getppid(),))
    with pytest.raises(NodeError, match="is a parent of this daemon"):
        Node(
            programs.config(background=(SlotConfig(name="x", processes=mine),)),
            lambda *_entries: None,
        )


def test_without_psi_the_machine_is_read_all_the_same(programs: Programs, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    for name in ("meminfo", "vmstat"):
        (proc / name).write_bytes((PROC / name).read_bytes())
    for process in (programs.app, programs.batch):
        folder = proc / str(process.pid)
        folder.mkdir()
        for name in ("stat", "status", "io", "schedstat", "cmdline"):
            (folder / name).write_bytes((PROC / str(process.pid) / name).read_bytes())
    config = programs.config(node=NodeConfig(proc=proc, cgroup=tmp_path / "cgroup"))
    assert detect(config.node.paths).kind == "none"
    node = Node(config, lambda *_entries: None)
    sample = node.read(0, time.monotonic())
    assert sample.zone.psi.memory_some_us is None
    assert sample.zone.memory_usage_bytes
    assert sample.slots[0].memory_usage_bytes
    assert any("psi" in reason for reason in node.missing())
    context = node.settings(frozenset()).context
    refused = r"_stall \(node\.psi\.memory_some_us: there is no"
    for spec in ("latd", "psi-hold", "ws-flush:at=distress", "nohang"):
        with pytest.raises(ControllerError, match=refused):
            check_node(make_controller(spec), context)
    for spec in ("partition", "mat", "earlyoom", "nohang:psi=0", "rule"):
        check_node(make_controller(spec), context)
    node.close()


def test_a_tree_beside_groups(programs: Programs) -> None:
    """A node with groups may have a service without one of its own."""
    if detect(NodeConfig().paths).kind == "none":
        pytest.skip("this machine has no cgroups")
    node = Node(programs.config(node=NodeConfig()), lambda *_entries: None)
    settle(programs)
    assert node.hierarchy.kind != "none"
    sample = node.read(0, time.monotonic())
    node.apply(DesiredState(slots=(SlotDesire(paused=True),)), sample, time.monotonic())
    assert wait_stopped(programs, (0, 4))
    assert node.close()
    assert json.dumps(node.missing())


def test_the_protected_tree_keeps_a_group_from_being_paused(programs: Programs) -> None:
    settle(programs)
    targets = find_targets(programs.config())
    assert targets.forest is not None
    targets.forest.refresh()
    app, batch = targets.forest.trees
    assert app is not None
    assert batch is not None
    exempt = ExemptProcesses(frozenset(), lambda: protected_pids([app]))
    batch.members.update(app.members)  # as if the group had been given one of its processes
    assert exempt.within(batch) in app.pids()
    targets.forest.close()


@pytest.mark.parametrize("place", [0, 1])
def test_no_slot_takes_a_process_of_any_of_several_applications(
    programs: Programs, place: int
) -> None:
    settle(programs)
    protected = [
        ProtectedConfig(
            name="web", processes=ProcessesConfig(pidfile=programs.folder / "app.pid")
        ),
        ProtectedConfig(name="db", processes=ProcessesConfig(pids=(programs.batch.pid,))),
    ]
    worker = max(session(programs.app))
    slot = SlotConfig(name="job", processes=ProcessesConfig(pids=(worker,)))
    ordered = (protected[place], protected[1 - place])
    targets = find_targets(programs.config(protected=ordered, background=(slot,)))
    assert targets.forest is not None
    targets.forest.refresh()
    assert set(targets.applications[place].pids()) == session(programs.app)
    assert targets.slots[0].pids() == ()
    targets.forest.close()


def test_one_of_several_applications_without_latencies_is_told_where_to_name_them(
    programs: Programs,
) -> None:
    pids = (("web", programs.app.pid), ("db", programs.batch.pid))
    protected = tuple(
        ProtectedConfig(name=name, processes=ProcessesConfig(pids=(pid,))) for name, pid in pids
    )
    node = Node(programs.config(protected=protected, background=()), lambda *_entries: None)
    node.read(0, time.monotonic())
    off = "latency of web, latency of db: off in the configuration"
    assert f"{off} (add a [protected.latency] section)" in node.missing_signals()
    assert node.close()


def test_a_node_whose_configuration_names_no_latencies_has_no_problem(programs: Programs) -> None:
    settle(programs)
    node = Node(programs.config(), lambda *_entries: None)
    node.read(0, time.monotonic())
    assert any(text.startswith("latency: off") for text in node.missing())
    assert node.problems() == ()
    assert node.close()
