"""Levers on files of our own: both kinds of node, failures included."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stallward.actuator.errors import JournalError, KernelFileError
from stallward.actuator.journal.entries import FileValue, Frozen, JournalEntry, OomScore
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.files import FileWriter
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.cgroup.pause import PauseLever
from stallward.actuator.levers.lever_set import LeverSet
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import MIB, RELEASED, DesiredState, SlotDesire, Tuning

VM = {
    "swappiness": "60",
    "overcommit_memory": "0",
    "dirty_ratio": "20",
    "dirty_bytes": "0",
    "dirty_background_ratio": "10",
    "dirty_background_bytes": "0",
}


@dataclass(frozen=True)
class FakeNode:
    paths: Paths
    zone: Cgroup
    app: Cgroup
    slots: tuple[Cgroup, ...]
    sent: list[JournalEntry]
    released: list[JournalEntry] = field(default_factory=list)

    def lever_set(
        self, zone_limit_bytes: int | None = 100 * MIB, exempt: frozenset[int] = frozenset()
    ) -> LeverSet:
        return LeverSet(
            self.paths,
            self.zone.hierarchy,
            self.zone,
            (self.app,),
            self.slots,
            zone_limit_bytes,
            self.sent.append,
            lambda *entries: self.released.extend(entries),
            exempt=exempt,
        )

    def vm(self, name: str) -> str:
        return (self.paths.proc / "sys/vm" / name).read_text()


@pytest.fixture(params=["hybrid", "v2"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> FakeNode:
    v2 = request.param == "v2"
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    (paths.proc / "sys/vm").mkdir(parents=True)
    for name, value in VM.items():
        (paths.proc / "sys/vm" / name).write_text(value)
    root = paths.cgroup if v2 else paths.cgroup / "memory"
    unified = paths.cgroup if v2 else paths.cgroup / "unified"
    hierarchy = Hierarchy(kind="v2" if v2 else "hybrid", memory_root=root, unified_root=unified)
    zone = hierarchy.group("stallward/1")
    groups = (zone, zone.child("app"), zone.child("bg0"), zone.child("bg1"))
    for group in groups:
        for folder in group.dirs:
            folder.mkdir(parents=True)
        assert group.memory_dir is not None
        assert group.unified_dir is not None
        if v2:
            (group.memory_dir / "memory.high").write_text("max")
            (group.memory_dir / "memory.current").write_text(str(50 * MIB))
        else:
            (group.memory_dir / "memory.limit_in_bytes").write_text("9223372036854771712")
            (group.memory_dir / "memory.usage_in_bytes").write_text(str(50 * MIB))
            (group.memory_dir / "memory.swappiness").write_text("60")
        (group.unified_dir / "cgroup.freeze").write_text("0")
        (group.unified_dir / "cgroup.events").write_text("populated 1\nfrozen 0\n")
        (group.unified_dir / "cgroup.procs").write_text("")
    return FakeNode(paths, zone, groups[1], groups[2:], [])


def limit_file(group: Cgroup) -> Path:
    assert group.memory_dir is not None
    v2 = group.hierarchy.kind == "v2"
    return group.memory_dir / ("memory.high" if v2 else "memory.limit_in_bytes")


PAUSED = DesiredState(slots=(SlotDesire(paused=True),))


def first_paused(granted: DesiredState) -> bool:
    return granted.slot(0).paused


def look_at_all(levers: LeverSet, state: DesiredState) -> list[LeverResult]:
    """Run as many ticks as it takes until every lever has looked at its setting."""
    return [result for _ in range(20) for result in levers.apply(state)]


def settle(levers: LeverSet, slot: int) -> None:
    deadline = time.monotonic() + 5
    while not levers.slot_limit_settled(slot):
        assert time.monotonic() < deadline
        time.sleep(0.002)


def tree(paths: Paths) -> dict[str, str]:
    roots = (paths.proc, paths.cgroup)
    files = (p for root in roots for p in root.rglob("*") if p.is_file())
    return {str(path): path.read_text() for path in files}


def test_everything_it_may_change_is_among_the_originals(node: FakeNode) -> None:
    levers = node.lever_set()
    entries = set(levers.originals())
    for slot in node.slots:
        assert slot.unified_dir is not None
        assert Frozen(slot.unified_dir / "cgroup.freeze") in entries
        assert FileValue(limit_file(slot), limit_file(slot).read_text()) in entries
    vm = node.paths.proc / "sys/vm"
    assert FileValue(vm / "dirty_ratio", "20") in entries
    assert not any(getattr(e, "path", None) == vm / "dirty_bytes" for e in entries)
    files = {e.path for e in entries if isinstance(e, FileValue | Frozen)}
    before = tree(node.paths)
    state = DesiredState(
        slots=(SlotDesire(paused=True, limit_bytes=60 * MIB), SlotDesire(limit_bytes=70 * MIB)),
        tuning=Tuning(swappiness=1, protected_swappiness=2, overcommit_memory=1),
    )
    assert all(result.ok for result in levers.apply(state))
    settle(levers, 0)
    settle(levers, 1)
    changed = {Path(p) for p, value in tree(node.paths).items() if value != before[p]}
    assert changed
    assert changed <= files
    assert node.sent == []
    assert all(result.ok for result in levers.restore())
    assert tree(node.paths) == before


def test_repeating_a_state_writes_nothing(node: FakeNode) -> None:
    levers = node.lever_set()
    state = DesiredState(
        slots=(SlotDesire(paused=True, limit_bytes=80 * MIB),),
        tuning=Tuning(swappiness=90, dirty_ratio=100, dirty_background_ratio=2),
    )
    levers.apply(state)
    settle(levers, 0)
    levers.poll()
    stamps = {p: p.stat().st_mtime_ns for p in node.paths.cgroup.rglob("*") if p.is_file()}
    assert levers.apply(state) == ()
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps
    assert levers.slot_limit_bytes(0) == 80 * MIB
    assert limit_file(node.slots[0]).read_text() == str(80 * MIB)
    assert limit_file(node.slots[1]).read_text() in {"max", "9223372036854771712"}
    levers.restore()


def test_dirty_shares_are_scaled_to_a_sandbox_but_not_to_the_machine(node: FakeNode) -> None:
    tuning = Tuning(dirty_ratio=100, dirty_background_ratio=2)
    sandbox = node.lever_set()
    sandbox.apply(DesiredState(tuning=tuning))
    assert node.vm("dirty_bytes") == str(100 * MIB)
    assert node.vm("dirty_background_bytes") == str(2 * MIB)
    sandbox.apply(RELEASED)
    assert (node.vm("dirty_ratio"), node.vm("dirty_background_ratio")) == ("20", "10")
    machine = LeverSet(
        node.paths,
        node.zone.hierarchy,
        node.zone.hierarchy.group("/"),
        (node.app,),
        node.slots,
        8 << 30,
        node.sent.append,
    )
    machine.apply(DesiredState(tuning=tuning))
    assert (node.vm("dirty_ratio"), node.vm("dirty_background_ratio")) == ("100", "2")


def test_the_setting_in_force_of_a_pair_is_saved(node: FakeNode) -> None:
    (node.paths.proc / "sys/vm/dirty_bytes").write_text("5000000")
    (node.paths.proc / "sys/vm/dirty_ratio").write_text("0")
    levers = node.lever_set()
    files = {e.path.name: e.value for e in levers.originals() if isinstance(e, FileValue)}
    assert files["dirty_bytes"] == "5000000"
    assert "dirty_ratio" not in files
    assert files["dirty_background_ratio"] == "10"
    levers.apply(DesiredState(tuning=Tuning(dirty_ratio=50)))
    assert node.vm("dirty_bytes") == str(50 * MIB)
    levers.restore()
    assert node.vm("dirty_bytes") == "5000000"


def test_a_knob_that_is_not_there_is_a_result_and_tried_again_later(node: FakeNode) -> None:
    (node.paths.proc / "sys/vm/overcommit_memory").unlink()
    levers = node.lever_set()
    assert any("overcommit_memory" in reason for reason in levers.missing())
    state = DesiredState(tuning=Tuning(overcommit_memory=1, swappiness=5))
    results = {r.lever: r for r in levers.apply(state)}
    assert not results["vm.overcommit_memory"].ok
    assert "not there" in results["vm.overcommit_memory"].error
    assert results["vm.swappiness"].ok
    assert levers.apply(state) == ()
    levers.restore()
    assert node.vm("swappiness") == "60"


def test_a_lever_that_the_node_lacks_has_not_failed(node: FakeNode) -> None:
    """On v1 there is no memory.low, which partition asks for everywhere."""
    levers = node.lever_set()
    results = levers.apply(DesiredState(protected_low_bytes=30 * MIB))
    lacking = [result.lever for result in results if result.missing]
    assert lacking == ["memory_low:app"]
    assert all(result.ok != result.missing for result in results)
    levers.restore()


def test_a_v2_node_says_that_groups_have_no_swappiness(node: FakeNode) -> None:
    reported = any("protected_swappiness" in reason for reason in node.lever_set().missing())
    assert reported == (node.zone.hierarchy.kind == "v2")


def test_a_journal_that_refuses_keeps_the_change_from_being_made(node: FakeNode) -> None:
    missing_at_first = node.zone.child("late")

    def refuse(entry: JournalEntry) -> None:
        raise JournalError(f"no room for {entry}")

    levers = LeverSet(
        node.paths,
        node.zone.hierarchy,
        node.zone,
        (node.app,),
        (missing_at_first,),
        100 * MIB,
        refuse,
    )
    assert missing_at_first.memory_dir is not None
    missing_at_first.memory_dir.mkdir()
    limit_file(missing_at_first).write_text("max")
    name = "memory.current" if node.zone.hierarchy.kind == "v2" else "memory.usage_in_bytes"
    (missing_at_first.memory_dir / name).write_text("0")
    levers.apply(DesiredState(slots=(SlotDesire(limit_bytes=64 * MIB),)))
    settle(levers, 0)
    (result,) = levers.poll()
    assert not result.ok
    assert "no room" in result.error
    assert limit_file(missing_at_first).read_text() == "max"
    levers.restore()


def test_a_limit_is_lowered_in_bounded_steps_and_given_up_when_stuck(node: FakeNode) -> None:
    slot = node.slots[0]
    assert slot.memory_dir is not None
    v2 = slot.hierarchy.kind == "v2"
    (slot.memory_dir / ("memory.current" if v2 else "memory.usage_in_bytes")).write_text(
        str(500 * MIB)
    )
    (slot.memory_dir / "memory.swap.max").write_text("0")
    levers = node.lever_set()
    levers.apply(DesiredState(slots=(SlotDesire(limit_bytes=100 * MIB),)))
    settle(levers, 0)
    (result,) = levers.poll()
    assert not result.ok
    if v2:
        assert "cannot be reclaimed" in result.error
        assert "memory.swap.max of " in result.error
        assert limit_file(slot).read_text() == str(436 * MIB)  # one step, and no further
        assert levers.slot_limit_bytes(0) == 436 * MIB
    else:  # it has no memory.oom_control, so that a limit could kill
        assert "needs more than" in result.error
        assert levers.slot_limit_bytes(0) is None
    levers.apply(RELEASED)
    settle(levers, 0)
    assert limit_file(slot).read_text() in {"max", "9223372036854771712"}
    assert levers.slot_limit_bytes(0) is None


def test_a_group_is_never_given_more_than_it_had(node: FakeNode) -> None:
    limit_file(node.slots[0]).write_text(str(70 * MIB))
    levers = node.lever_set()
    for wish, limit in ((90, 70), (60, 60)):
        levers.apply(DesiredState(slots=(SlotDesire(limit_bytes=wish * MIB),)))
        settle(levers, 0)
        assert limit_file(node.slots[0]).read_text() == str(limit * MIB)
    levers.restore()
    assert limit_file(node.slots[0]).read_text() == str(70 * MIB)


def test_a_group_that_does_not_freeze_in_time_is_thawed_and_left_for_a_while(
    node: FakeNode,
) -> None:
    slot = node.slots[0]
    assert slot.unified_dir is not None
    freeze, events = slot.unified_dir / "cgroup.freeze", slot.unified_dir / "cgroup.events"
    lever = PauseLever(slot, Originals(node.sent.append), first_paused, confirm_s=0.03)
    assert [r.ok for r in lever.apply(PAUSED, 1.0)] == [True]
    assert (freeze.read_text(), lever.poll(1.0)) == ("1", ())
    (result,) = lever.poll(1.04)
    assert not result.ok
    assert "thawed again" in result.error
    assert freeze.read_text() == "0"
    assert lever.apply(PAUSED, 1.05) == ()  # not tried again at once
    lever.apply(RELEASED, 1.06)
    assert [r.ok for r in lever.apply(PAUSED, 1.07)] == [True]
    events.write_text("populated 1\nfrozen 1\n")
    assert lever.poll(1.2) == ()
    assert freeze.read_text() == "1"


def test_a_group_is_thawed_where_no_descriptor_is_left(node: FakeNode) -> None:
    slot = node.slots[0]
    assert slot.unified_dir is not None
    freeze = slot.unified_dir / "cgroup.freeze"
    lever = PauseLever(slot, Originals(node.sent.append), first_paused)
    lever.apply(PAUSED, 1.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        (result,) = lever.apply(RELEASED, 2.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (result.ok, freeze.read_text(), lever.held) == (True, "0", False)


def test_a_thaw_that_the_file_does_not_show_is_tried_again(node: FakeNode) -> None:
    slot = node.slots[0]
    assert slot.unified_dir is not None
    freeze = slot.unified_dir / "cgroup.freeze"
    lever = PauseLever(slot, Originals(node.sent.append), first_paused)
    lever.apply(PAUSED, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileWriter, "write", lambda _writer, _value: None)
        (result,) = lever.apply(RELEASED, 2.0)
    assert (result.ok, lever.held) == (False, True)
    assert "still asks for a freeze" in result.error
    assert [r.ok for r in lever.apply(RELEASED, 2.1)] == [True]
    assert (freeze.read_text(), lever.held) == ("0", False)


def test_a_squeezed_group_has_its_limit_loosened_before_it_runs(node: FakeNode) -> None:
    levers, slot = node.lever_set(), node.slots[0]
    assert slot.unified_dir is not None
    freeze, limit = slot.unified_dir / "cgroup.freeze", limit_file(slot)
    levers.apply(DesiredState(slots=(SlotDesire(paused=True, limit_bytes=60 * MIB),)))
    settle(levers, 0)
    assert (freeze.read_text(), limit.read_text()) == ("1", str(60 * MIB))
    seen: list[str] = []
    write = FileWriter.write

    def note(writer: FileWriter, value: str) -> None:
        seen.append(limit.read_text())
        write(writer, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileWriter, "write", note)
        levers.apply(DesiredState(slots=(SlotDesire(limit_bytes=200 * MIB),)))
    if slot.hierarchy.kind != "v2":
        assert seen == [str(200 * MIB)], "its system calls would have failed under the old one"
    assert freeze.read_text() == "0"
    levers.apply(DesiredState(slots=(SlotDesire(paused=True, limit_bytes=60 * MIB),)))
    settle(levers, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileWriter, "write", note)
        levers.restore()
    if slot.hierarchy.kind != "v2":
        assert seen[-1] == "9223372036854771712", "at the end, too"


def test_groups_that_vanish_are_results_not_exceptions(node: FakeNode) -> None:
    levers = node.lever_set()
    state = DesiredState(
        slots=(SlotDesire(paused=True, limit_bytes=60 * MIB),), protect_from_oom=True
    )
    for folder in node.slots[0].dirs:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    results = levers.apply(state)
    assert [r.ok for r in results if r.lever == "pause:bg0"] == [False]
    settle(levers, 0)
    assert [r.ok for r in levers.poll()] == [False]
    assert not levers.slot_paused(0)
    levers.restore()


def test_a_setting_of_another_program_is_left_as_it_is(node: FakeNode) -> None:
    slot, vm = node.slots[0], node.paths.proc / "sys/vm"
    state = DesiredState(
        slots=(SlotDesire(limit_bytes=80 * MIB),),
        tuning=Tuning(swappiness=90, dirty_ratio=50, overcommit_memory=1),
    )
    levers = node.lever_set()
    levers.apply(state)
    settle(levers, 0)
    limit_file(slot).write_text(str(40 * MIB))
    (vm / "swappiness").write_text("10")
    (vm / "dirty_bytes").write_text("0")
    (vm / "dirty_ratio").write_text("33")
    errors = {r.lever: r.error for r in levers.restore() if not r.ok}
    assert set(errors) == {"limit:bg0", "vm.swappiness", "vm.dirty_bytes"}
    assert all("set by another program" in error for error in errors.values())
    assert limit_file(slot).read_text() == str(40 * MIB)
    assert (node.vm("swappiness"), node.vm("dirty_ratio")) == ("10", "33")
    assert node.vm("overcommit_memory") == "0"
    assert levers.held() == ()
    levers.apply(state)
    settle(levers, 0)
    levers.restore()
    assert limit_file(slot).read_text() == str(40 * MIB), "it is the original from now on"
    assert (node.vm("swappiness"), node.vm("dirty_ratio")) == ("10", "33")


def test_a_limit_of_another_program_is_not_changed_meanwhile(node: FakeNode) -> None:
    levers = node.lever_set()
    levers.apply(DesiredState(slots=(SlotDesire(limit_bytes=80 * MIB),)))
    settle(levers, 0)
    limit_file(node.slots[0]).write_text(str(40 * MIB))
    levers.apply(DesiredState(slots=(SlotDesire(limit_bytes=90 * MIB),)))
    settle(levers, 0)
    assert limit_file(node.slots[0]).read_text() == str(40 * MIB)
    levers.restore()


def test_a_group_frozen_by_another_program_is_not_thawed(node: FakeNode) -> None:
    assert node.slots[0].unified_dir is not None
    freeze = node.slots[0].unified_dir / "cgroup.freeze"
    freeze.write_text("1")
    levers = node.lever_set()
    assert Frozen(freeze) not in levers.originals()
    levers.apply(RELEASED)
    levers.apply(DesiredState(slots=(SlotDesire(paused=True),)))
    levers.restore()
    assert freeze.read_text() == "1"
    freeze.write_text("0")
    levers.apply(DesiredState(slots=(SlotDesire(paused=True),)))
    assert freeze.read_text() == "1"
    assert node.sent == [Frozen(freeze)]
    assert levers.held() == ("pause:bg0",)
    levers.restore()
    assert freeze.read_text() == "0"
    assert levers.held() == ()


def test_a_pause_ended_by_another_program_is_not_repeated_at_once(node: FakeNode) -> None:
    assert node.slots[0].unified_dir is not None
    freeze = node.slots[0].unified_dir / "cgroup.freeze"
    levers, state = node.lever_set(), DesiredState(slots=(SlotDesire(paused=True),))
    levers.apply(state)
    freeze.write_text("0")
    (result,) = look_at_all(levers, state)
    assert not result.ok
    assert "another program thawed it" in result.error
    assert look_at_all(levers, state) == []
    assert freeze.read_text() == "0"
    assert levers.foreign_total == 1
    (reported,) = levers.states()
    assert (reported.lever, reported.value, reported.foreign) == ("pause:bg0", "0", True)
    levers.apply(RELEASED)
    assert levers.states() == ()
    levers.apply(state)
    assert freeze.read_text() == "1", "another wish ends the stepping aside"


def test_a_paused_group_that_vanishes_is_a_failure_and_not_held(node: FakeNode) -> None:
    for folder in set(node.slots[0].dirs):
        shutil.rmtree(folder)
    lever = PauseLever(node.slots[0], Originals(node.sent.append), first_paused)
    assert [r.ok for r in lever.apply(PAUSED, 1.0)] == [False]
    assert lever.apply(RELEASED, 2.0) == ()
    assert not lever.held


def test_a_paused_group_that_leaves_the_memory_hierarchy_is_thawed(node: FakeNode) -> None:
    """As systemd removes it there when a unit's accounting is switched off."""
    slot = node.slots[0]
    assert slot.unified_dir is not None
    assert slot.memory_dir is not None
    lever = PauseLever(slot, Originals(node.sent.append), first_paused)
    lever.apply(PAUSED, 1.0)
    assert (slot.unified_dir / "cgroup.freeze").read_text() == "1"
    if slot.memory_dir != slot.unified_dir:
        shutil.rmtree(slot.memory_dir)
    lever.apply(RELEASED, 2.0)
    assert (slot.unified_dir / "cgroup.freeze").read_text() == "0"
    assert not lever.held


def test_a_setting_that_could_not_be_put_back_is_tried_again(node: FakeNode) -> None:
    levers = node.lever_set()
    levers.apply(DesiredState(tuning=Tuning(swappiness=90)))
    knob = node.paths.proc / "sys/vm/swappiness"
    knob.unlink()
    knob.mkdir()
    levers.apply(RELEASED)
    assert levers.held() == ("vm.swappiness",)
    knob.rmdir()
    knob.write_text("90")
    levers.restore()
    assert node.vm("swappiness") == "60"
    assert levers.held() == ()


def test_a_wish_that_comes_during_a_write_is_no_foreign_change(node: FakeNode) -> None:
    slot = node.slots[0]
    original = limit_file(slot).read_text()
    assert slot.memory_dir is not None
    usage = "memory.current" if slot.hierarchy.kind == "v2" else "memory.usage_in_bytes"
    (slot.memory_dir / usage).write_text(str(500 * MIB))
    levers = node.lever_set()
    for wish in range(400, 80, -20):
        levers.apply(DesiredState(slots=(SlotDesire(limit_bytes=wish * MIB),)))
        time.sleep(0.001)
    levers.apply(RELEASED)
    settle(levers, 0)
    assert levers.foreign_total == 0
    assert limit_file(slot).read_text() == original
    levers.restore()


@pytest.mark.parametrize("who", ["daemon", "init", "listed"])
def test_a_group_with_a_protected_process_is_never_paused_or_limited(
    node: FakeNode, who: str
) -> None:
    slot = node.slots[0]
    assert slot.unified_dir is not None
    pid = {"daemon": os.getpid(), "init": 1, "listed": 4_000_000}[who]
    below = slot.unified_dir / "below"
    below.mkdir()
    (below / "cgroup.procs").write_text(f"{pid}\n")
    before = tree(node.paths)
    levers = node.lever_set(exempt=frozenset({4_000_000}))
    state = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=30 * MIB),))
    results = list(levers.apply(state))
    settle(levers, 0)
    results += levers.poll()
    assert sorted(r.lever for r in results) == ["limit:bg0", "pause:bg0"]
    for result in results:
        assert not result.ok
        assert f"Process {pid} in stallward/1/bg0 is protected" in result.error
    levers.restore()
    assert tree(node.paths) == before


def process(node: FakeNode, pid: int, ticks: int, score: int, parent: int = 0) -> Path:
    folder = node.paths.proc / str(pid)
    folder.mkdir()
    fields = ["0"] * 22
    fields[1], fields[19] = str(parent), str(ticks)
    (folder / "stat").write_text(f"{pid} (app) {' '.join(fields)}\n")
    (folder / "oom_score_adj").write_text(str(score))
    return folder / "oom_score_adj"


def test_a_child_that_inherits_a_score_gets_its_parents_original(node: FakeNode) -> None:
    assert node.app.unified_dir is not None
    members = node.app.unified_dir / "cgroup.procs"
    old, own = process(node, 4_000_001, 5, 7), process(node, 4_000_002, 5, -1000)
    members.write_text("4000001\n4000002\n")
    levers = node.lever_set()
    levers.apply(DesiredState(protect_from_oom=True))
    assert (old.read_text(), own.read_text()) == ("-1000", "-1000")
    forked = process(node, 4_000_003, 1 << 40, -1000)
    members.write_text("4000001\n4000002\n4000003\n")
    levers.apply(RELEASED)
    assert [f.read_text() for f in (old, own, forked)] == ["7", "-1000", "7"]
    assert OomScore(4_000_003, 1 << 40, 7) in node.sent
    assert set(node.released) == {e for e in node.sent if isinstance(e, OomScore)}
    assert levers.held() == ()


def test_a_child_gets_what_its_own_parent_had_and_not_what_the_first_process_had(
    node: FakeNode,
) -> None:
    assert node.app.unified_dir is not None
    members = node.app.unified_dir / "cgroup.procs"
    scores = [process(node, 4_000_001, 5, 7), process(node, 4_000_002, 5, 300)]
    members.write_text("4000001\n4000002\n")
    levers = node.lever_set()
    levers.apply(DesiredState(protect_from_oom=True))
    scores.append(process(node, 4_000_003, 1 << 40, -1000, parent=4_000_002))
    members.write_text("4000001\n4000002\n4000003\n")
    levers.apply(RELEASED)
    assert [score.read_text() for score in scores] == ["7", "300", "300"]


def test_a_process_that_leaves_the_application_gets_its_score_back(node: FakeNode) -> None:
    assert node.app.unified_dir is not None
    members = node.app.unified_dir / "cgroup.procs"
    stays, leaves = process(node, 4_000_001, 5, 7), process(node, 4_000_002, 5, 8)
    members.write_text("4000001\n4000002\n")
    (oom,) = [lever for lever in node.lever_set()._every if lever.name == "oom"]
    oom.apply(DesiredState(protect_from_oom=True), 1.0)
    assert (stays.read_text(), leaves.read_text()) == ("-1000", "-1000")
    members.write_text("4000001\n")
    oom.apply(DesiredState(protect_from_oom=True), 3.0)
    assert (stays.read_text(), leaves.read_text()) == ("-1000", "8")
    assert node.released == [OomScore(4_000_002, 5, 8)]
    oom.restore(4.0)
    assert (stays.read_text(), leaves.read_text()) == ("7", "8")


def test_scores_of_processes_that_have_ended_are_forgotten(node: FakeNode) -> None:
    assert node.app.unified_dir is not None
    members = node.app.unified_dir / "cgroup.procs"
    (oom,) = [lever for lever in node.lever_set()._every if lever.name == "oom"]
    state = DesiredState(protect_from_oom=True)
    for pid in range(4_000_001, 4_000_006):
        score = process(node, pid, pid, 7)
        members.write_text(f"{pid}\n")
        oom.apply(state, float(pid))
        assert score.read_text() == "-1000"
        shutil.rmtree(score.parent)
    assert len(node.sent) == 5
    assert len(node.released) == 4, "all but the last, which the next sweep misses"
    members.write_text("")
    oom.apply(state, 5e6)
    assert set(node.released) == set(node.sent)
    forked = process(node, 4_000_006, 1 << 40, -1000)  # by the last, and missed until now
    members.write_text("4000006\n")
    assert oom.held
    oom.restore(6e6)
    assert forked.read_text() == "7"
    assert not oom.held
    assert set(node.released) == set(node.sent)


def test_scores_that_are_refused_are_forgotten_too(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _text: str) -> None:
        raise KernelFileError(path, "denied", number=errno.EACCES)

    monkeypatch.setattr("stallward.actuator.levers.process.oom_score.write_text", refuse)
    assert node.app.unified_dir is not None
    (node.app.unified_dir / "cgroup.procs").write_text("4000001\n")
    score = process(node, 4_000_001, 5, 7)
    (oom,) = [lever for lever in node.lever_set()._every if lever.name == "oom"]
    oom.apply(DesiredState(protect_from_oom=True), 1.0)
    assert node.sent == [OomScore(4_000_001, 5, 7)]
    shutil.rmtree(score.parent)
    oom.apply(DesiredState(protect_from_oom=True), 3.0)
    assert node.released == node.sent
    assert not oom.held
