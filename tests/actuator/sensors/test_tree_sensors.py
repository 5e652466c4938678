"""Reading process trees and the whole machine as a zone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.kernel.process_trees import Forest
from stallward.actuator.sensors.files.meminfo import MemoryInfo
from stallward.actuator.sensors.node_reader import machine_zone
from stallward.actuator.sensors.processes.tree_process import parse_used
from stallward.actuator.sensors.tree_reader import READ_PER_SAMPLE, TreeReader
from stallward.agent.observation.encoder import ObservationEncoder
from stallward.agent.observation.raw import NODE, to_raw
from stallward.agent.sample import GroupSample, NodeSample, PsiTotals, Sample

P = Path("/proc/7/file")
KIB = 1024


class FakeProcesses:
    """A made-up /proc; the test sets what each process holds and uses."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc

    def write(
        self,
        pid: int,
        *,
        start: int,
        parent: int = 100,
        state: str = "S",
        ticks: int = 0,
        faults: int = 0,
        anon_kib: int = 0,
        swap_kib: int = 0,
        delay_ns: int = 0,
        read: int = 0,
    ) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        fields = f"{parent} 1 1 0 -1 0 0 0 {faults} 0 {ticks} 0 0 0 20 0 1 0 {start} 0 0"
        (folder / "stat").write_text(f"{pid} (x) {state} {fields} 0 0\n")
        (folder / "status").write_text(
            f"Name:\tx\nState:\t{state} (is)\n"
            f"VmRSS:\t9 kB\nRssAnon:\t{anon_kib} kB\nRssFile:\t8 kB\n"
            f"RssShmem:\t4 kB\nVmSwap:\t{swap_kib} kB\nThreads:\t1\n"
        )
        (folder / "schedstat").write_text(f"1 {delay_ns} 3\n")
        (folder / "io").write_text(f"rchar: 1\nread_bytes: {read}\nwrite_bytes: 5\n")

    def remove(self, pid: int) -> None:
        for file in (self.proc / str(pid)).iterdir():
            file.unlink()
        (self.proc / str(pid)).rmdir()


class Setting:
    """A tree whose root is process 100."""

    def __init__(self, proc: Path) -> None:
        self.processes = FakeProcesses(proc)
        self.processes.write(100, start=50, ticks=1000, anon_kib=100)
        self.forest = Forest(proc, [ProcessesConfig(pids=(100,))], ["batch"])
        tree = self.forest.trees[0]
        assert tree is not None
        self.reader = TreeReader(proc, tree)

    def read(self) -> GroupSample:
        self.forest.refresh()
        return self.reader.read(0.0)


def test_a_tree_is_the_sum_of_its_processes(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.processes.write(101, start=60, anon_kib=50, swap_kib=7)
    sample = setting.read()
    assert sample.name == "batch"
    assert sample.anon_bytes == (100 + 4 + 50 + 4) * KIB, "shared memory needs swap too"
    assert sample.file_bytes == 16 * KIB
    assert sample.memory_usage_bytes == (158 + 16) * KIB
    assert sample.swap_bytes == 7 * KIB
    assert sample.psi == PsiTotals()
    assert sample.frozen is False
    assert "psi: a process tree has none of its own" in setting.reader.absent[0]
    assert setting.reader.faults == ()


def test_counters_count_from_the_first_read_and_only_grow(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    first = setting.read()
    assert first.cpu_usage_us == 0, "its use before the first read is not growth"
    setting.processes.write(100, start=50, ticks=1005, faults=3, delay_ns=9000, read=4096)
    setting.processes.write(101, start=70, ticks=20, faults=2)
    second = setting.read()
    assert second.cpu_usage_us == (5 + 20) * 10_000, "a new one has used it all in this tree"
    assert second.major_faults == 5
    assert second.run_delay_us == 9
    assert second.io_read_bytes == 4096
    setting.processes.remove(101)
    third = setting.read()
    assert third.cpu_usage_us == second.cpu_usage_us, "what has ended stays counted"
    assert third.major_faults == 5
    setting.processes.write(101, start=900, ticks=1)  # the pid is used again
    fourth = setting.read()
    assert fourth.cpu_usage_us is not None
    assert third.cpu_usage_us is not None
    assert fourth.cpu_usage_us - third.cpu_usage_us == 10_000


def test_a_process_that_joins_late_counts_from_then_on(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.processes.write(200, start=40, parent=1, ticks=9999)
    setting.read()
    setting.forest.trees[0].members[200] = setting.forest._table.seen[200]  # type: ignore[union-attr]
    assert setting.read().cpu_usage_us == 0
    setting.processes.write(200, start=40, parent=1, ticks=10_000)
    assert setting.read().cpu_usage_us == 10_000


def test_a_large_tree_is_read_in_turn(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    for pid in range(101, 160):
        setting.processes.write(pid, start=60, anon_kib=1)
    samples = [setting.read() for _ in range(6)]
    sizes = [sample.memory_usage_bytes or 0 for sample in samples]
    assert sizes[0] < sizes[1] < sizes[2] < sizes[3] == sizes[5]
    assert sizes[0] <= READ_PER_SAMPLE * 113 * KIB
    for pid in range(101, 160):
        setting.processes.write(pid, start=60, anon_kib=2)
    for _ in range(60 // READ_PER_SAMPLE + 1):
        grown = setting.read()
    assert grown.memory_usage_bytes == sizes[5] + 59 * KIB


def test_an_empty_tree_is_absent_and_says_so(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.read()
    setting.processes.remove(100)
    assert setting.read() == GroupSample(name="batch")
    assert any("no process of it is there" in reason for reason in setting.reader.absent)


def test_a_tree_is_frozen_when_every_process_stands_still(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.processes.write(101, start=60, state="T")
    assert setting.read().frozen is False
    setting.processes.write(100, start=50, state="T")
    assert setting.read().frozen is True
    setting.processes.write(100, start=50, state="Z")
    assert setting.read().frozen is True, "a zombie runs no more"


def test_one_malformed_process_is_a_fault_and_hides_no_other(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.processes.write(101, start=60, anon_kib=10)
    assert setting.read().anon_bytes == (100 + 4 + 10 + 4) * KIB
    (tmp_path / "101" / "status").write_text(
        "Name:\tx\nState:\tS\nRssAnon:\tmany kB\nThreads:\t1\n"
    )
    sample = setting.read()
    assert sample.anon_bytes is not None
    assert "101/status" in setting.reader.faults[0]
    (tmp_path / "101" / "io").unlink()
    setting.processes.write(101, start=60)
    (tmp_path / "101" / "io").unlink()
    assert setting.read().io_read_bytes == 0
    assert setting.reader.faults == ()


@pytest.mark.parametrize(
    ("file", "content", "absent"),
    [
        ("io", "rchar: 1\nread_bytes: -1\nwrite_bytes: 5\n", {"io_read_bytes"}),
        ("schedstat", "1 x 3\n", {"run_delay_us"}),
        (
            "status",
            "Name:\tx\nState:\tS\nRssAnon:\t9 kB\nRssFile:\t8 MB\nThreads:\t1\n",
            {"file_bytes", "memory_usage_bytes"},
        ),
    ],
)
def test_a_file_of_a_member_that_is_malformed_takes_no_other_along(
    tmp_path: Path, file: str, content: str, absent: set[str]
) -> None:
    setting = Setting(tmp_path)
    (tmp_path / "100" / file).write_text(content)
    sample = setting.read()
    names = {"anon_bytes", "file_bytes", "memory_usage_bytes", "cpu_usage_us", "major_faults"}
    names |= {"io_read_bytes", "io_written_bytes", "run_delay_us"}
    assert {name for name in names if getattr(sample, name) is None} == absent
    assert f"100/{file}" in setting.reader.faults[0]


def test_a_tree_has_no_run_delay_where_the_kernel_counts_none(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    (tmp_path / "self").mkdir()
    for pid in ("self", "100"):
        (tmp_path / pid / "schedstat").write_text("0 0 0\n")
    assert setting.read().run_delay_us is None
    assert any("counts no waiting for a CPU" in reason for reason in setting.reader.absent)


def test_a_size_that_is_malformed_later_keeps_its_last_value(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    before = setting.read()
    status = (tmp_path / "100/status").read_text()
    (tmp_path / "100/status").write_text(status.replace("8 kB", "8 MB").replace("100 kB", "90 kB"))
    sample = setting.read()
    assert sample.file_bytes == before.file_bytes
    assert sample.anon_bytes == 94 * KIB
    assert "100/status" in setting.reader.faults[0]


def test_a_process_of_a_real_machine_is_read() -> None:
    program = [sys.executable, "-S", "-c", "print(flush=True); input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # until then it may hold no memory yet
        forest = Forest(Path("/proc"), [ProcessesConfig(pids=(child.pid,))], ["batch"])
        tree = forest.trees[0]
        assert tree is not None
        reader = TreeReader(Path("/proc"), tree)
        sample = reader.read(0.0)
        child.kill()
    assert sample.memory_usage_bytes is not None
    assert 1 << 18 < sample.memory_usage_bytes < 1 << 33
    assert sample.cpu_usage_us == 0
    assert sample.major_faults == 0
    assert reader.faults == ()


@pytest.mark.parametrize("content", [b"7 (x) S 1", b"7 (x) S " + b"x " * 18 + b"5 0 0"])
def test_malformed_files_are_errors_with_their_path(content: bytes) -> None:
    with pytest.raises(SensorError, match="/proc/7/file"):
        parse_used(content, P)


def test_a_process_without_memory_of_its_own_counts_as_zero(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.processes.write(101, start=60)
    (tmp_path / "101" / "status").write_text("Name:\tx\nState:\tS (sleeping)\nThreads:\t1\n")
    sample = setting.read()
    assert sample.memory_usage_bytes == (100 + 4 + 8) * KIB
    assert sample.swap_bytes == 0
    assert setting.reader.faults == ()


INFO = MemoryInfo(
    total_bytes=1000,
    free_bytes=100,
    available_bytes=300,
    cached_bytes=500,
    buffer_bytes=20,
    shared_bytes=50,
    inactive_file_bytes=200,
    anon_pages_bytes=250,
    swap_total_bytes=80,
    swap_free_bytes=60,
)
NODE_SAMPLE = NodeSample(
    psi=PsiTotals(memory_some_us=7, memory_full_us=3), major_faults=4, memory_total_bytes=1000
)


def test_the_machine_is_a_zone_of_its_own_memory() -> None:
    zone = machine_zone(GroupSample(name=""), NODE_SAMPLE, INFO)
    assert zone.memory_usage_bytes == 900
    assert zone.memory_limit_bytes is None
    assert zone.file_bytes == 470
    assert zone.anon_bytes == 300
    assert zone.inactive_file_bytes == 200
    assert zone.swap_bytes == 20
    assert zone.major_faults == 4
    assert zone.psi.memory_some_us == 7
    known = GroupSample(name="", psi=PsiTotals(memory_some_us=5), memory_usage_bytes=1)
    kept = machine_zone(known, NODE_SAMPLE, INFO)
    assert (kept.memory_usage_bytes, kept.psi.memory_some_us) == (1, 5), (
        "what a root has goes first"
    )
    assert kept.psi.memory_full_us == 3
    empty = machine_zone(GroupSample(name=""), NodeSample(), MemoryInfo())
    assert empty == GroupSample(name="")


def sample_of(protected: GroupSample, time_s: float = 1.0, some_us: int = 7) -> Sample:
    zone = machine_zone(
        GroupSample(name=""), NodeSample(psi=PsiTotals(memory_some_us=some_us)), INFO
    )
    return Sample(sequence=0, time_s=time_s, node=NODE_SAMPLE, zone=zone, protected=protected)


def test_the_zones_stall_stands_for_that_of_a_tree() -> None:
    tree = GroupSample(name="app", memory_usage_bytes=10)
    column = NODE["protected_psi_memory_some_us"]
    assert to_raw(sample_of(tree)).node[column] == 7
    group = GroupSample(name="app", memory_usage_bytes=10, psi=PsiTotals(memory_some_us=2))
    assert to_raw(sample_of(group)).node[column] == 2
    gone = GroupSample(name="app")
    assert np.isnan(to_raw(sample_of(gone)).node[column]), "nobody is there to stall"


def test_a_policy_sees_finite_numbers_of_a_node_without_groups() -> None:
    encoder = ObservationEncoder(slo_ms=10.0)
    tree = GroupSample(name="app", memory_usage_bytes=10, file_bytes=4)
    encoder.encode(to_raw(sample_of(tree, 1.0, 0)))
    seen = encoder.encode(to_raw(sample_of(tree, 1.1, 50_000)))
    assert np.isfinite(seen).all()
    blind = sample_of(GroupSample(name="app"))
    assert np.isfinite(encoder.encode(to_raw(blind))).all()
