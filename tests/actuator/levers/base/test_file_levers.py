"""Every lever that is a file, on files of our own: both kinds of node, and what can go wrong."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallward.actuator.journal.entries import FileValue, JournalEntry, KeyedValue
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.lever_set import LeverOptions, LeverSet
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import MIB, RELEASED, DesiredState, SlotDesire, Tuning

DISK = "254:0"
UNLIMITED = "rbps=max wbps=max"
V2_FILES = {
    "memory.high": "max",
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.low": "0",
    "memory.min": "0",
    "memory.current": str(50 * MIB),
    "memory.reclaim": "",
    "cpu.weight": "100",
    "cpu.max": "max 100000",
    "io.max": "",
    "io.bfq.weight": "default 100",
    "cgroup.freeze": "0",
    "cgroup.events": "populated 1\nfrozen 0",
    "cgroup.procs": "",
}
V1_FILES = {
    "memory": {
        "memory.limit_in_bytes": "9223372036854771712",
        "memory.usage_in_bytes": str(50 * MIB),
        "memory.swappiness": "60",
        "cgroup.procs": "",
    },
    "cpu": {"cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
    "blkio": {
        "blkio.bfq.weight": "100",
        "blkio.throttle.read_bps_device": "",
        "blkio.throttle.write_bps_device": "",
    },
    "unified": {
        "cgroup.freeze": "0",
        "cgroup.events": "populated 1\nfrozen 0",
        "cgroup.procs": "",
    },
}
VM = {
    "swappiness": "60",
    "overcommit_memory": "0",
    "dirty_ratio": "20",
    "dirty_bytes": "0",
    "dirty_background_ratio": "10",
    "dirty_background_bytes": "0",
}


@dataclass
class FakeNode:
    """A node of either kind, in a folder."""

    top: Path
    kind: str
    sent: list[JournalEntry] = field(default_factory=list)
    released: list[JournalEntry] = field(default_factory=list)
    options: LeverOptions = field(default_factory=LeverOptions)

    def __post_init__(self) -> None:
        self.paths = Paths(proc=self.top / "proc", cgroup=self.top / "cg", sys=self.top / "sys")
        vm = self.paths.proc / "sys/vm"
        vm.mkdir(parents=True)
        for name, value in VM.items():
            (vm / name).write_text(value)
        disk = self.paths.sys / "block/vda"
        (disk / "queue").mkdir(parents=True)
        (disk / "device").mkdir()
        (disk / "dev").write_text(DISK)
        (disk / "queue/scheduler").write_text("none [bfq]")
        (self.paths.sys / "block/loop0").mkdir()
        root = self.paths.cgroup
        if self.kind == "v2":
            self.hierarchy = Hierarchy(kind="v2", memory_root=root, unified_root=root)
        else:
            self.hierarchy = Hierarchy(
                kind="hybrid",
                memory_root=root / "memory",
                unified_root=root / "unified",
                controllers_v1=(("cpu", root / "cpu"), ("blkio", root / "blkio")),
            )
        self.zone = self.hierarchy.group("stallward/1")
        self.app, self.slot = self.zone.child("app"), self.zone.child("bg0")
        for group in (self.zone, self.app, self.slot):
            self.make(group)
        self.levers = self.new_levers()

    def make(self, group: Cgroup) -> None:
        files = {"": V2_FILES} if self.kind == "v2" else V1_FILES
        for controller, named in files.items():
            folder = self.paths.cgroup / controller / group.name
            folder.mkdir(parents=True, exist_ok=True)
            for name, value in named.items():
                (folder / name).write_text(value)

    def new_levers(self) -> LeverSet:
        return LeverSet(
            self.paths,
            self.hierarchy,
            self.zone,
            (self.app,),
            (self.slot,),
            100 * MIB,
            self.sent.append,
            lambda *entries: self.released.extend(entries),
            options=self.options,
        )

    def file(self, name: str, group: Cgroup | None = None) -> Path:
        controllers = [""] if self.kind == "v2" else list(V1_FILES)
        name_of_group = (group or self.slot).name
        candidates = [self.paths.cgroup / c / name_of_group / name for c in controllers]
        return next(path for path in candidates if path.exists() or path.is_symlink())

    def apply(self, state: DesiredState) -> list[LeverResult]:
        """Apply and wait for the threads."""
        results = list(self.levers.apply(state))
        self.settle()
        return results + list(self.levers.poll())

    def settle(self) -> None:
        workers = [getattr(lever, "_worker", None) for lever in self.levers._every]
        assert all(w.wait(time.monotonic() + 5) for w in workers if w is not None)

    def tree(self) -> dict[str, str]:
        roots = (self.paths.cgroup, self.paths.proc)
        files = (p for root in roots for p in root.rglob("*") if p.is_file())
        return {str(p): p.read_text() for p in files}


@pytest.fixture(params=["v2", "hybrid"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path, request.param)


def one(**wish: object) -> DesiredState:
    return DesiredState(slots=(replace(SlotDesire(), **wish),))  # type: ignore[arg-type]


CASES = [
    ("v2", one(limit_bytes=60 * MIB), "memory.high", str(60 * MIB)),
    ("v2", one(hard_limit_bytes=70 * MIB), "memory.max", str(70 * MIB)),
    ("v2", one(swap_max_bytes=0), "memory.swap.max", "0"),
    ("v2", one(cpu_weight=25), "cpu.weight", "25"),
    ("v2", one(cpu_max_cores=0.5), "cpu.max", "50000 100000"),
    ("v2", one(cpu_max_cores=1e-9), "cpu.max", "1000 100000"),
    ("v2", one(io_weight=5000), "io.bfq.weight", "default 1000"),
    ("v2", one(io_max_bytes_per_s=MIB), "io.max", f"{DISK} rbps={MIB} wbps={MIB}"),
    ("hybrid", one(limit_bytes=60 * MIB), "memory.limit_in_bytes", str(60 * MIB)),
    ("hybrid", one(cpu_weight=25), "cpu.shares", "256"),
    ("hybrid", one(cpu_max_cores=1.5), "cpu.cfs_quota_us", "150000"),
    ("hybrid", one(io_weight=50), "blkio.bfq.weight", "50"),
    ("hybrid", one(io_max_bytes_per_s=7), "blkio.throttle.read_bps_device", f"{DISK} 7"),
    ("hybrid", one(io_max_bytes_per_s=7), "blkio.throttle.write_bps_device", f"{DISK} 7"),
]
BY_FILE = [f"{kind}-{name}" for kind, _, name, _ in CASES]


@pytest.mark.parametrize(("kind", "state", "name", "content"), CASES, ids=BY_FILE)
def test_a_lever_writes_its_file_and_puts_it_back(
    tmp_path: Path, kind: str, state: DesiredState, name: str, content: str
) -> None:
    node = FakeNode(tmp_path, kind)
    before = node.tree()
    planned = node.levers.plan(state)
    assert name in {Path(plan.target).name for plan in planned}
    assert node.tree() == before, "a plan changes nothing"
    results = node.apply(state)
    assert [r.ok for r in results] == [True], results
    assert node.file(name).read_text() == content
    assert node.sent == [], "all of it was known before"
    written = {str(p.target) for p in planned}
    changed = {path for path, text in node.tree().items() if text != before[path]}
    assert changed == written
    assert node.apply(state) == []
    assert node.levers.plan(state) == ()
    assert all(r.ok for r in node.levers.restore())
    after = node.tree()
    for path in changed:
        keyed = Path(path).name in {"io.max", "blkio.throttle.read_bps_device"}
        keyed = keyed or path.endswith("write_bps_device")
        unlimited = f"{DISK} {UNLIMITED if kind == 'v2' else '0'}"
        assert after[path] == (unlimited if keyed else before[path])
    assert node.levers.held() == ()


def test_memory_low_protects_the_application_on_v2_only(node: FakeNode) -> None:
    (result,) = node.apply(DesiredState(protected_low_bytes=30 * MIB))
    assert result.ok == (node.kind == "v2")
    if node.kind == "v2":
        assert node.file("memory.low", node.app).read_text() == str(30 * MIB)
        node.levers.restore()
        assert node.file("memory.low", node.app).read_text() == "0"


def test_hard_protection_sets_memory_min_alone(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "v2", options=LeverOptions(hard_protection=(True,)))
    (result,) = node.apply(DesiredState(protected_low_bytes=30 * MIB))
    assert (result.lever, result.ok) == ("memory_min:app", True)
    assert node.file("memory.min", node.app).read_text() == str(30 * MIB)
    assert node.file("memory.low", node.app).read_text() == "0"
    node.levers.restore()
    assert node.file("memory.min", node.app).read_text() == "0"


@pytest.mark.parametrize(
    ("before", "during"), [(str(50 * MIB), str(50 * MIB)), ("max", "max"), ("4096", str(30 * MIB))]
)
def test_the_application_keeps_what_the_operator_guaranteed_it(
    tmp_path: Path, before: str, during: str
) -> None:
    node = FakeNode(tmp_path, "v2")
    low = node.file("memory.low", node.app)
    low.write_text(before)
    node.apply(DesiredState(protected_low_bytes=30 * MIB))
    assert low.read_text() == during
    assert node.apply(DesiredState(protected_low_bytes=30 * MIB)) == []
    node.levers.restore()
    assert low.read_text() == before


@pytest.mark.parametrize(
    ("kind", "wish", "reason"),
    [
        ("hybrid", one(hard_limit_bytes=60 * MIB), "hard already"),
        ("hybrid", one(swap_max_bytes=1), "v1 has no limit of swap alone"),
        ("hybrid", DesiredState(protected_low_bytes=1), "v1 has no memory.low"),
    ],
)
def test_a_lever_that_a_kind_of_node_lacks_is_refused_once(
    tmp_path: Path, kind: str, wish: DesiredState, reason: str
) -> None:
    node = FakeNode(tmp_path, kind)
    (result,) = node.apply(wish)
    assert not result.ok
    assert reason in result.error
    assert node.apply(wish) == []
    assert any(reason in text for text in node.levers.missing())
    assert node.apply(RELEASED) == []


def test_what_a_node_lacks_is_said_once_however_often_the_wish_changes(tmp_path: Path) -> None:
    """``partition`` asks for another memory.low at every tick, and v1 has none."""
    node = FakeNode(tmp_path, "hybrid")
    wishes = [DesiredState(protected_low_bytes=size * MIB) for size in (30, 31, 32)]
    assert [len(node.apply(wish)) for wish in wishes] == [1, 0, 0]
    assert node.apply(RELEASED) == []
    assert len(node.apply(wishes[0])) == 1, "it is wanted for the first time again"


def test_a_group_outside_a_v1_hierarchy_has_no_levers_there(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "hybrid")
    for controller in ("cpu", "blkio"):
        shutil.rmtree(node.paths.cgroup / controller / node.slot.name)
    node.levers = node.new_levers()
    missing = [text for text in node.levers.missing() if "is not in the v1" in text]
    assert {text.partition(":")[0] for text in missing} == {
        "cpu_weight",
        "cpu_max",
        "io_weight",
        "io_max",
    }


def test_a_disk_without_bfq_knows_no_weights(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "hybrid")
    (node.paths.sys / "block/vda/queue/scheduler").write_text("[mq-deadline] bfq")
    node.levers = node.new_levers()
    assert any("no disk uses the bfq scheduler" in text for text in node.levers.missing())
    (result,) = node.apply(one(io_weight=10))
    assert not result.ok


def test_a_group_is_never_given_more_than_it_had(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "v2")
    node.file("cpu.max").write_text("20000 100000")
    node.file("io.max").write_text(f"{DISK} rbps=1000 wbps=max riops=9 wiops=max")
    node.file("memory.swap.max").write_text(str(10 * MIB))
    node.levers = node.new_levers()
    node.apply(one(cpu_max_cores=1.0, io_max_bytes_per_s=5000, swap_max_bytes=20 * MIB))
    assert node.file("cpu.max").read_text() == "20000 100000"
    assert node.file("io.max").read_text() == f"{DISK} rbps=1000 wbps=5000"
    assert node.file("memory.swap.max").read_text() == str(10 * MIB)
    node.levers.restore()
    assert node.file("io.max").read_text() == f"{DISK} rbps=1000 wbps=max"


def test_a_dry_run_says_everything_and_changes_nothing(node: FakeNode) -> None:
    node.options = LeverOptions(dry_run=True)
    node.levers = node.new_levers()
    state = replace(
        one(paused=True, limit_bytes=60 * MIB, cpu_weight=10, nice=5, cpus=(0,), terminated=False),
        tuning=Tuning(swappiness=90, dirty_ratio=50),
        protect_from_oom=True,
    )
    before = node.tree()
    results = node.levers.apply(state)
    assert all(r.dry_run and r.ok for r in results)
    assert {r.lever for r in results} >= {
        "pause:bg0",
        "limit:bg0",
        "cpu_weight:bg0",
        "nice:bg0",
        "cpus:bg0",
        "vm.swappiness",
        "vm.dirty_bytes",
        "oom",
    }
    assert node.levers.apply(state) == ()
    node.levers.restore()
    assert node.tree() == before
    assert node.sent == []
    assert node.levers.states() == ()
    assert not node.levers.anything_held()


def test_a_value_counts_as_set_when_it_is_read_back(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "v2")
    node.file("cpu.weight").unlink()
    # A file of the kernel that takes the value but reads back as something else.
    (tmp_path / "cg" / node.slot.name / "cpu.weight").symlink_to("/proc/self/comm")
    comm = Path("/proc/self/comm").read_text().strip()
    node.levers = node.new_levers()
    try:
        (result,) = node.apply(one(cpu_weight=77))
        assert result.ok, "it reads back as written"
        (state,) = node.levers.states()
        assert (state.lever, state.value) == ("cpu_weight:bg0", "77")
        node.levers.restore()
        assert Path("/proc/self/comm").read_text().strip() == comm
    finally:
        Path("/proc/self/comm").write_text(comm)


def test_a_value_that_the_kernel_changed_is_reported_held_and_put_back(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "v2")
    folder = tmp_path / "cg" / node.app.name
    comm = Path("/proc/self/comm").read_text().strip()
    (folder / "memory.low").unlink()
    (folder / "memory.low").symlink_to("/proc/self/comm")  # cuts everything to 15 characters
    node.levers = node.new_levers()
    try:
        state = DesiredState(slots=(SlotDesire(),), protected_low_bytes=12345678901234567)
        (result,) = node.apply(state)
        assert not result.ok
        assert "instead of" in result.error
        assert node.apply(state) == [], "not tried again and again"
        (held,) = node.levers.states()
        assert held.value == Path("/proc/self/comm").read_text().strip()
        node.levers.restore()
        assert Path("/proc/self/comm").read_text().strip() == comm
    finally:
        Path("/proc/self/comm").write_text(comm)


def test_a_refused_value_is_no_change_and_is_tried_again_later(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "v2")
    folder = tmp_path / "cg" / node.slot.name
    (folder / "cpu.weight").unlink()
    (folder / "cpu.weight").symlink_to("/proc/self/oom_score_adj")  # EINVAL above 1000
    node.levers = node.new_levers()
    (result,) = node.apply(one(cpu_weight=9999))
    assert "Invalid argument" in result.error
    assert node.levers.held() == ()
    assert node.apply(one(cpu_weight=9999)) == []
    node.levers.restore()


def test_a_write_that_blocks_holds_up_neither_a_tick_nor_restoring(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallward.actuator.levers.lever_set.RESTORE_S", 0.5)
    name = "memory.high" if node.kind == "v2" else "memory.limit_in_bytes"
    path = node.file(name)
    path.unlink()
    os.mkfifo(path)  # opening it waits for a reader
    state = replace(one(limit_bytes=60 * MIB, cpu_weight=50), tuning=Tuning(swappiness=90))
    ended = threading.Event()

    def open_for_reading() -> None:
        while not ended.wait(0.01):
            fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            os.close(fd)

    helper = threading.Thread(target=open_for_reading)
    try:
        started = time.monotonic()
        node.levers.apply(state)
        assert not node.levers.slot_limit_settled(0)
        while not any(
            f.f_code.co_filename.endswith("kernel/files.py")
            for f in sys._current_frames().values()
        ):
            time.sleep(0.001)
        limit = node.levers._levers.slots[0].limit
        (pending,) = limit.poll(time.monotonic() + 60)
        assert not pending.ok
        assert "pending" in pending.error
        assert list(limit.poll(time.monotonic() + 61)) == [], "said once"
        node.levers.restore()
        assert time.monotonic() - started < 10
        assert node.levers.held() == ("limit:bg0",)
        cpu = "cpu.weight" if node.kind == "v2" else "cpu.shares"
        assert node.file(cpu).read_text() in {"100", "1024"}
        assert (node.paths.proc / "sys/vm/swappiness").read_text() == "60"
    finally:
        helper.start()
        time.sleep(0.1)
        ended.set()
        helper.join()


def test_a_foreign_change_is_counted_and_left_alone_until_another_wish(node: FakeNode) -> None:
    name, ours = ("cpu.weight", "50") if node.kind == "v2" else ("cpu.shares", "512")
    node.apply(one(cpu_weight=50))
    node.file(name).write_text("77")
    results = [r for _ in range(20) for r in node.levers.apply(one(cpu_weight=50))]
    assert [(r.lever, r.ok) for r in results] == [("cpu_weight:bg0", False)]
    assert "set by another program" in results[0].error
    assert node.levers.foreign_total == 1
    (state,) = node.levers.states()
    assert (state.value, state.foreign) == ("77", True)
    original = FileValue(node.file(name), "100" if node.kind == "v2" else "1024")
    assert original in node.released, "after a crash too it is not ours to undo"
    assert node.file(name).read_text() == "77"
    node.apply(one(cpu_weight=60))
    assert node.file(name).read_text() != "77", ours
    assert FileValue(node.file(name), "77") in node.sent
    node.levers.restore()
    assert node.file(name).read_text() == "77"
    assert node.levers.states() == ()


def test_a_foreign_value_is_taken_over_again_after_the_wait(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "v2", options=LeverOptions(aside_s=0.01))
    node.apply(one(cpu_weight=50))
    node.file("cpu.weight").write_text("77")
    for _ in range(20):
        node.levers.apply(one(cpu_weight=50))
    time.sleep(0.02)
    node.apply(one(cpu_weight=50))
    assert node.file("cpu.weight").read_text() == "50"
    node.levers.restore()
    assert node.file("cpu.weight").read_text() == "77"


@pytest.mark.slow
def test_a_group_made_anew_is_no_foreign_change(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "v2")
    state = one(cpu_weight=50, limit_bytes=60 * MIB)
    node.apply(state)
    old = node.paths.cgroup / node.slot.name
    old.rename(tmp_path / "gone")  # keeps its inode numbers from being used again
    for _ in range(10):
        node.apply(state)
    node.make(node.slot)
    deadline = time.monotonic() + 5
    while node.file("cpu.weight").read_text() != "50" or (
        node.file("memory.high").read_text() != str(60 * MIB)
    ):
        node.apply(state)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert node.levers.foreign_total == 0
    node.levers.restore()
    assert node.file("cpu.weight").read_text() == "100"


def test_the_journal_alone_undoes_keyed_values(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "v2")
    originals = node.levers.originals()
    assert KeyedValue(node.file("io.max"), DISK, UNLIMITED) in originals
    node.apply(one(io_max_bytes_per_s=5, cpu_max_cores=0.1))
    assert restore(originals, node.paths) == ()
    assert node.file("io.max").read_text() == f"{DISK} {UNLIMITED}"
    assert node.file("cpu.max").read_text() == "max 100000"
    node.levers.restore()


def test_a_limit_of_operations_that_another_program_sets_stays_and_ours_of_bytes_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FakeNode(tmp_path, "v2")

    def write(path: Path, text: str) -> None:
        """As the kernel does: what is not named stays as it is."""
        words = dict(word.split("=") for word in f"{UNLIMITED} riops=max wiops=max".split())
        for line in (path.read_text(), text):
            words |= dict(word.split("=") for word in line.split()[1:])
        path.write_text(f"{DISK} {' '.join(map('='.join, words.items()))}")

    monkeypatch.setattr("stallward.actuator.levers.base.held_setting.write_text", write)
    state = one(io_max_bytes_per_s=MIB)
    node.apply(state)
    write(node.file("io.max"), f"{DISK} wiops=500")
    assert [result for _ in range(20) for result in node.levers.apply(state)] == []
    node.levers.restore()
    assert node.file("io.max").read_text() == f"{DISK} {UNLIMITED} riops=max wiops=500"


def test_a_calm_tick_reads_no_more_than_one_lever(node: FakeNode) -> None:
    state = one(cpu_weight=50, cpu_max_cores=0.5)
    node.apply(state)
    node.apply(state)
    assert {lever.name for lever in node.levers._active} == {"cpu_weight:bg0", "cpu_max:bg0"}
    node.apply(RELEASED)
    node.apply(RELEASED)
    assert node.levers._active == ()
    node.levers.restore()


# ------------------------------------------------------------------ whatever happens

WISHES = st.builds(
    SlotDesire,
    paused=st.booleans(),
    limit_bytes=st.sampled_from([None, 60 * MIB, 80 * MIB]),
    hard_limit_bytes=st.sampled_from([None, 64 * MIB]),
    swap_max_bytes=st.sampled_from([None, 8 * MIB]),
    cpu_weight=st.sampled_from([None, 20, 30]),
    cpu_max_cores=st.sampled_from([None, 0.2, 0.3]),
    io_weight=st.sampled_from([None, 40]),
    io_max_bytes_per_s=st.sampled_from([None, 4096, 8192]),
)
STATES = st.builds(
    DesiredState,
    slots=st.tuples(WISHES),
    tuning=st.builds(Tuning, swappiness=st.sampled_from([None, 90, 95])),
    protected_low_bytes=st.sampled_from([None, 4 * MIB]),
)
FOREIGN = {
    "v2": {
        "memory.high": "33554432",
        "memory.max": "34603008",
        "cpu.weight": "77",
        "cpu.max": "7000 100000",
        "io.max": f"{DISK} rbps=3 wbps=3",
    },
    "hybrid": {
        "memory.limit_in_bytes": "33554432",
        "cpu.shares": "77",
        "cpu.cfs_quota_us": "7000",
        "blkio.throttle.read_bps_device": f"{DISK} 3",
    },
}
STEPS = st.lists(
    st.one_of(
        STATES,
        st.tuples(st.just("foreign"), st.integers(0, 4)),
        st.tuples(st.just("break"), st.integers(0, 4)),
        st.tuples(st.just("mend"), st.integers(0, 4)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("kind", ["v2", "hybrid"])
@settings(
    max_examples=min(60, settings().max_examples),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_restoring_leaves_the_originals_and_what_others_have_set(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    steps: list[DesiredState | tuple[str, int]],
) -> None:
    node = FakeNode(tmp_path_factory.mktemp("node"), kind)
    names = list(FOREIGN[kind])
    wanted = {path: text for path, text in node.tree().items() if "reclaim" not in path}
    broken: dict[Path, Path] = {}

    def mend() -> None:
        for path, aside in broken.items():
            path.rmdir()
            aside.rename(path)
        broken.clear()

    for step in steps:
        if isinstance(step, DesiredState):
            node.apply(step)
            continue
        action, number = step
        path = node.file(names[number % len(names)])
        if action == "mend":
            mend()
        elif path in broken:
            continue
        elif action == "break" and "io" not in path.name:
            # Neither to be read nor written; what was in it comes back later.
            broken[path] = path.rename(node.top / f"{number}-{path.name}")
            path.mkdir()
        elif action == "foreign":
            path.write_text(FOREIGN[kind][path.name])
            wanted[str(path)] = FOREIGN[kind][path.name]
    mend()
    node.levers.restore()
    left = node.tree()
    unlimited = {f"{DISK} {UNLIMITED}", f"{DISK} 0"}
    for name, text in wanted.items():
        assert left[name] == text or (text == "" and left[name] in unlimited), name
    node.levers.restore()
    assert node.levers.held() == ()
