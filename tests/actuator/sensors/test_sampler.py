"""The sampler: a whole sample from files, and from real groups that come and go."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from own_names import own_name

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.latency.line_format import LineFormat
from stallward.actuator.latency.line_source import LineSource
from stallward.actuator.sensors.missing import Absence, Why, absences, broken
from stallward.actuator.sensors.readers import ReadApplication
from stallward.actuator.sensors.sampler import TURN_TICKS, Sampler
from stallward.agent.sample import GroupSample, NodeSample, PsiTotals, SlotState


def write_group(root: Path, name: str, kills: int) -> None:
    memory, unified = root / "memory" / name, root / "unified" / name
    memory.mkdir(parents=True)
    unified.mkdir(parents=True)
    (memory / "memory.stat").write_text("total_rss 5\ntotal_cache 6\ntotal_pgmajfault 7\n")
    (memory / "memory.usage_in_bytes").write_text("11\n")
    (memory / "memory.limit_in_bytes").write_text("1000\n")
    (memory / "memory.oom_control").write_text(f"oom_kill {kills}\n")
    (unified / "memory.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=3\n")
    (unified / "cpu.stat").write_text("usage_usec 9\n")
    (unified / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    (unified / "cgroup.procs").write_text("")


def test_a_sample_holds_every_signal(tmp_path: Path) -> None:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    (paths.proc / "pressure").mkdir(parents=True)
    (paths.proc / "pressure/io").write_text("full avg10=0 avg60=0 avg300=0 total=4\n")
    (paths.proc / "meminfo").write_text("MemTotal: 2 kB\n")
    (paths.proc / "vmstat").write_text("pswpin 8\n")
    for name, kills in (("z", 1), ("z/app", 2), ("z/bg", 4), ("out", 8)):
        write_group(paths.cgroup, name, kills)
    node = Hierarchy(
        kind="hybrid",
        memory_root=paths.cgroup / "memory",
        unified_root=paths.cgroup / "unified",
    )
    (paths.cgroup / "unified/z/bg/cgroup.procs").write_text("77\n78\n")
    (paths.proc / "77").mkdir()
    numbers = " ".join(str(i) for i in range(4, 53))
    (paths.proc / "77/stat").write_text(f"77 (a b) T {numbers}\n")
    (paths.proc / "77/oom_score").write_text("5\n")
    (paths.proc / "77/status").write_text("Name:\ta\nState:\tT (stopped)\nThreads:\t1\n")
    lines = tmp_path / "lines"
    sampler = Sampler(
        paths=paths,
        hierarchy=node,
        zone=node.group("z"),
        applications=[
            ReadApplication(
                target=node.group("z/app"),
                latency_source=LineSource(lines, LineFormat(latency="0")),
            )
        ],
        slots=(node.group("z/bg"), node.group("out"), node.group("gone")),
        needs_processes=True,
    )
    lines.write_text("2\n")
    states = (SlotState(paused=True), SlotState(), SlotState())
    before_s = time.monotonic()
    sample = sampler.read(5, states, "flush")
    assert before_s <= sample.time_s <= time.monotonic()
    assert (sample.sequence, sample.slot_states, sample.profile) == (5, states, "flush")
    assert sample.node == NodeSample(
        psi=PsiTotals(io_full_us=4), memory_total_bytes=2048, swap_in_pages=8
    )
    assert sample.protected == GroupSample(
        name="z/app",
        psi=PsiTotals(memory_some_us=3),
        memory_usage_bytes=11,
        memory_limit_bytes=1000,
        anon_bytes=5,
        file_bytes=6,
        major_faults=7,
        cpu_usage_us=9,
        oom_kills=2,
        frozen=True,
        io_read_bytes=0,
        io_written_bytes=0,
        run_delay_us=0,
        pss_bytes=0,
        turn_read_s=sample.time_s,
    )
    assert sample.zone.oom_kills == 1 + 2 + 4  # not those outside the zone
    assert sample.slots[2] == GroupSample(name="gone")
    assert sample.latency is not None
    assert sample.latency.mean_ms == 2000
    assert sample.processes is not None
    (process,) = sample.processes
    assert (process.pid, process.slot, process.stopped, process.oom_score) == (77, 0, True, 5)
    assert sampler.faults == ()
    sampler.close()


def two_applications(tmp_path: Path) -> Sampler:
    """A zone with the applications ``a`` and ``b``, whose targets are 1 s and 4 s, and a slot."""
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    node = Hierarchy(
        kind="hybrid",
        memory_root=paths.cgroup / "memory",
        unified_root=paths.cgroup / "unified",
    )
    return Sampler(
        paths=paths,
        hierarchy=node,
        zone=node.group("z"),
        applications=[
            ReadApplication(
                target=node.group(f"z/{name}"),
                latency_source=LineSource(tmp_path / name, LineFormat(latency="0")),
                name=name,
                slo_ms=slo_ms,
            )
            for name, slo_ms in (("a", 1000.0), ("b", 4000.0))
        ],
        slots=(node.group("z/bg"),),
        slo_ms=500.0,
        needs_processes=True,
    )


def test_several_applications_are_read_as_one_and_each(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    for name in ("z", "z/a", "z/b", "z/bg"):
        write_group(tmp_path / "cg", name, 0)
    sampler = two_applications(tmp_path)
    for name, text in (("a", "2\n"), ("b", "5\n")):
        (tmp_path / name).write_text(text)
    (tmp_path / "cg/memory/z/b/memory.usage_in_bytes").write_text("30\n")
    sample = sampler.read(0, (SlotState(),))
    first, second = sample.applications
    assert (first.name, first.slo_ms, first.group.name) == ("a", 1000.0, "z/a")
    assert (first.group.memory_usage_bytes, second.group.memory_usage_bytes) == (11, 30)
    assert first.latency is not None
    assert second.latency is not None
    assert (first.latency.mean_ms, second.latency.mean_ms) == (2000, 5000)
    assert sample.protected.memory_usage_bytes == 41
    assert sample.latency is not None
    assert sample.latency.mean_ms == 1000, "twice its target, as that of the first"
    assert sample.latency.completed == 2
    pressure = tmp_path / "cg/unified/z/b/memory.pressure"
    pressure.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1003\n")
    stalled_us = sampler.read(1, (SlotState(),)).protected.psi.memory_some_us
    assert stalled_us == (sample.protected.psi.memory_some_us or 0) + 1000, "one of them stalls"
    sampler.close()


def test_an_application_that_is_gone_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    for name in ("z", "z/b", "z/bg"):
        write_group(tmp_path / "cg", name, 0)
    sampler = two_applications(tmp_path)
    sample = sampler.read(0, (SlotState(),))
    assert sample.protected.memory_usage_bytes == 11
    absent = absences(sampler, sample, {})
    gone = {one.signal for one in absent if one.why is Why.GROUP_GONE}
    assert "protected[0].memory_usage_bytes" in gone
    assert not any(signal.startswith("protected[1]") for signal in gone)
    sampler.close()


@pytest.fixture
def small_node(tmp_path: Path) -> Iterator[Sampler]:
    """A zone ``z`` with an application and one background group with the process 77."""
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path / "cg")
    (paths.proc / "77").mkdir(parents=True)
    (paths.proc / "vmstat").write_text("pswpin 8\n")
    for name in ("z", "z/app", "z/bg"):
        write_group(paths.cgroup, name, 0)
    (paths.cgroup / "unified/z/bg/cgroup.procs").write_text("77\n")
    node = Hierarchy(
        kind="hybrid",
        memory_root=paths.cgroup / "memory",
        unified_root=paths.cgroup / "unified",
    )
    (tmp_path / "lines").write_text("")
    sampler = Sampler(
        paths=paths,
        hierarchy=node,
        zone=node.group("z"),
        applications=[
            ReadApplication(
                target=node.group("z/app"),
                latency_source=LineSource(tmp_path / "lines", LineFormat(latency="0")),
            )
        ],
        slots=(node.group("z/bg"),),
        needs_processes=True,
    )
    yield sampler
    sampler.close()


@pytest.mark.parametrize(
    ("file", "signal"),
    [
        ("proc/vmstat", "node.swap_in_pages"),
        ("cg/unified/z/memory.pressure", "zone.psi.memory_some_us"),
        ("cg/unified/z/bg/cpu.stat", "slots[0].cpu_usage_us"),
        ("cg/memory/z/app/memory.stat", "protected.anon_bytes"),
        ("cg/memory/z/bg/memory.usage_in_bytes", "slots[0].memory_usage_bytes"),
    ],
)
def test_one_malformed_file_is_one_absent_signal(
    small_node: Sampler, tmp_path: Path, file: str, signal: str
) -> None:
    def absent(sequence: int) -> dict[str, Absence]:
        reported = absences(small_node, small_node.read(sequence, (SlotState(),)))
        return {absence.signal: absence for absence in reported}

    assert signal not in absent(0)
    good = (tmp_path / file).read_text()
    (tmp_path / file).write_text("nonsense\n")
    by_signal = absent(1)
    assert [fault.split(":")[0] for fault in small_node.faults] == [str(tmp_path / file)]
    assert by_signal[signal].why is Why.MALFORMED
    assert str(tmp_path / file) in by_signal[signal].detail
    problems = broken(by_signal.values(), small_node.faults)
    assert sum(str(tmp_path / file) in line for line in problems) == 1
    assert "protected.memory_usage_bytes" not in by_signal, "the others are read"
    (tmp_path / file).write_text(good)
    assert signal not in absent(2)
    assert small_node.faults == ()


def test_one_bad_field_is_absent_with_its_reason_and_the_others_are_read(
    small_node: Sampler, tmp_path: Path
) -> None:
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal: 2000 kB\nMemAvailable: 900 kB\n"
        "SwapTotal: 500 kB\nSwapFree: 18446744073709346016 kB\n"
    )
    pressure = tmp_path / "cg/unified/z/app/memory.pressure"
    pressure.write_text(pressure.read_text() + "full avg10=0.00 total=-1\n")
    sample = small_node.read(0, (SlotState(),))
    assert sample.node.memory_total_bytes == 2000 * 1024
    assert sample.node.memory_available_bytes == 900 * 1024
    assert sample.node.swap_total_bytes == 500 * 1024
    assert sample.node.swap_free_bytes is None
    assert sample.protected.psi.memory_some_us == 3
    by_signal = {absence.signal: absence for absence in absences(small_node, sample)}
    assert by_signal["node.swap_free_bytes"].why is Why.MALFORMED
    assert "SwapFree" in by_signal["node.swap_free_bytes"].detail
    assert by_signal["node.dirty_bytes"].why is Why.NOT_IN_FILE, "it is simply not there"
    assert by_signal["protected.psi.memory_full_us"].why is Why.MALFORMED
    assert len(small_node.faults) == 2


def test_a_malformed_process_and_a_broken_latency_file_are_absent(
    small_node: Sampler, tmp_path: Path
) -> None:
    (tmp_path / "proc/77/task").mkdir()
    for name in ("oom_score", "status"):
        (tmp_path / "proc/77" / name).write_text("5\n")
    (tmp_path / "proc/77/stat").write_text("nonsense")
    (tmp_path / "lines").unlink()
    (tmp_path / "lines").mkdir()
    small_node.read(0, (SlotState(),))  # notices that the file has gone
    sample = small_node.read(1, (SlotState(),))
    assert (sample.latency, sample.processes) == (None, ())
    assert len(small_node.faults) == 2
    assert "proc/77/stat" in small_node.faults[0]
    assert "neither a file nor a FIFO" in small_node.faults[1]
    by_signal = {absence.signal: absence for absence in absences(small_node, sample)}
    assert by_signal["latency"].why is Why.UNREADABLE
    assert by_signal["slots[0].run_delay_us"].why is Why.MALFORMED


@pytest.mark.parametrize(
    "file",
    [
        "memory/z/app/memory.usage_in_bytes",
        "unified/z/app/memory.pressure",
        "memory/z/memory.limit_in_bytes",
        "unified/z/bg/cgroup.events",
    ],
)
def test_without_an_essential_signal_there_is_no_sample(
    small_node: Sampler, tmp_path: Path, file: str
) -> None:
    (tmp_path / "cg" / file).write_text("nonsense\n")
    with pytest.raises(SensorError, match=file):
        small_node.read(0, (SlotState(),))


def bump(root: Path, name: str, value: int) -> None:
    """Give every file of a group that changes from tick to tick a new value."""
    for file in ("memory.stat", "memory.usage_in_bytes", "memory.limit_in_bytes"):
        key = "total_rss " if file == "memory.stat" else ""
        (root / "memory" / name / file).write_text(f"{key}{value}\n")
    for resource in ("memory", "io", "cpu"):
        line = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={value}\n"
        (root / "unified" / name / f"{resource}.pressure").write_text(line)
    (root / "unified" / name / "cpu.stat").write_text(f"usage_usec {value}\n")


def test_inputs_of_a_policy_are_read_every_tick_and_other_signals_in_turn(
    small_node: Sampler, tmp_path: Path
) -> None:
    cgroup, pressure = tmp_path / "cg", tmp_path / "proc/pressure"
    pressure.mkdir()
    ages: dict[str, list[int]] = {}

    def note(part: str, seen: PsiTotals | GroupSample, now: int) -> None:
        names = ("memory_some_us", "io_some_us", "cpu_some_us", "cpu_usage_us", "anon_bytes",
                 "memory_usage_bytes", "memory_limit_bytes")  # fmt: skip
        for name in names:
            value = getattr(seen, name, None)
            if value is not None:
                ages.setdefault(f"{part}.{name}", []).append(now - value)

    for tick in range(1, 41):
        for name in ("z", "z/app", "z/bg"):
            bump(cgroup, name, tick)
        for resource in ("memory", "io", "cpu"):
            line = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={tick}\n"
            (pressure / resource).write_text(line)
        sample = small_node.read(tick, (SlotState(),))
        parts = {"zone": sample.zone, "protected": sample.protected, "slot": sample.slots[0]}
        for part, group in parts.items():
            note(part, group, tick)
            note(part, group.psi, tick)
        note("node", sample.node.psi, tick)
    seen_late = {name for name, series in ages.items() if max(series) > 0}
    assert seen_late == {
        *("zone.cpu_usage_us", "protected.cpu_usage_us", "protected.cpu_some_us"),
        *("protected.memory_limit_bytes", "slot.memory_limit_bytes", "slot.cpu_some_us"),
        *("node.io_some_us", "node.cpu_some_us"),
    }
    assert max(max(series) for series in ages.values()) == TURN_TICKS - 1


def test_a_node_with_nothing_is_a_sample_of_nothing(tmp_path: Path) -> None:
    node = Hierarchy()
    sampler = Sampler(
        paths=Paths(proc=tmp_path, cgroup=tmp_path),
        hierarchy=node,
        zone=node.group("/"),
        applications=[ReadApplication(target=node.group("app"))],
        slots=(),
    )
    sample = sampler.read(0, ())
    assert sample.node == NodeSample()
    assert sample.protected == GroupSample(name="app")
    assert (sample.latency, sample.processes) == (None, None)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def lacking_node(small_node: Sampler, tmp_path: Path) -> Sampler:
    """A node with a group gone and a file gone, which reads neither latencies nor processes."""
    memory = tmp_path / "cg/memory/z"
    (memory / "memory.oom_control").unlink()
    shutil.rmtree(memory / "bg")
    shutil.rmtree(tmp_path / "cg/unified/z/bg")
    small_node.needs_processes = False
    app = replace(small_node.applications[0], latency_source=None)
    small_node.applications = (app,)
    return small_node


def absent_signals(
    sampler: Sampler, known: Mapping[str, tuple[Why, str]] | None = None
) -> dict[str, Absence]:
    sample = sampler.read(0, (SlotState(),))
    return {absence.signal: absence for absence in absences(sampler, sample, known or {})}


@pytest.mark.parametrize(
    ("signal", "why"),
    [
        ("node.psi.memory_some_us", Why.NOT_THERE),
        ("node.psi.cpu_full_us", Why.NOT_ON_THIS_NODE),
        ("node.swap_out_pages", Why.NOT_IN_FILE),
        ("zone.oom_kills", Why.NOT_THERE),
        ("zone.high_events", Why.NOT_ON_THIS_NODE),
        ("zone.run_delay_us", Why.NOT_ON_THIS_NODE),
        ("protected.pss_bytes", Why.OFF),
        ("protected.page_cache_hits", Why.OFF),
        ("latency", Why.OFF),
        ("processes", Why.OFF),
    ],
)
def test_an_absent_signal_has_its_reason(lacking_node: Sampler, signal: str, why: Why) -> None:
    assert absent_signals(lacking_node)[signal].why is why


def test_the_reason_names_the_file_or_group_that_is_missing(
    lacking_node: Sampler, tmp_path: Path
) -> None:
    absent = absent_signals(lacking_node)
    assert absent["node.memory_total_bytes"].detail == str(tmp_path / "proc/meminfo")
    assert absent["slots[0].memory_usage_bytes"] == Absence(
        signal="slots[0].memory_usage_bytes", why=Why.GROUP_GONE, detail="z/bg"
    )


def test_a_signal_that_was_read_or_that_may_be_unset_is_not_absent(lacking_node: Sampler) -> None:
    absent = absent_signals(lacking_node)
    assert "protected.memory_usage_bytes" not in absent
    assert not [name for name in absent if name.endswith("memory_limit_bytes")]


def test_only_what_should_be_there_counts_as_broken(lacking_node: Sampler) -> None:
    text = "\n".join(broken(absent_signals(lacking_node).values()))
    assert "zone.oom_kills: there is no such file (" in text
    assert "zone.high_events" not in text, "this node has no such signal"


def test_a_reason_that_is_known_beforehand_is_given(lacking_node: Sampler) -> None:
    known = {"page_cache_hits": (Why.NOT_ALLOWED, "no CAP_BPF")}
    absent = absent_signals(lacking_node, known)
    assert absent["protected.page_cache_hits"].detail == "no CAP_BPF"


@pytest.fixture
def real_group() -> Iterator[Cgroup]:
    """A background group beside an application, both empty."""
    zone = require(Paths()).group(f"{own_name()}-sampler")
    groups = zone.child("app"), zone.child("bg")
    try:
        for group in groups:
            group.create()
        yield groups[1]
    finally:
        zone.kill()
        zone.remove()


@pytest.fixture
def real_sampler(real_group: Cgroup) -> Iterator[Sampler]:
    zone = require(Paths()).group(str(Path(real_group.name).parent))
    sampler = Sampler(
        paths=Paths(),
        hierarchy=real_group.hierarchy,
        zone=zone,
        applications=[ReadApplication(target=zone.child("app"))],
        slots=(real_group,),
        needs_processes=True,
    )
    yield sampler
    sampler.close()


@pytest.mark.live
def test_real_groups_are_read(real_sampler: Sampler) -> None:
    sample = real_sampler.read(0, (SlotState(),))
    for group in (sample.zone, sample.protected, sample.slots[0]):
        assert group.memory_usage_bytes is not None
        assert group.psi.memory_full_us is not None
        assert group.refault_file_pages is not None
        assert group.cpu_usage_us is not None
        assert group.frozen is False
        assert group.memory_limit_bytes is None
    assert sample.node.refault_file_pages is not None
    assert sample.node.allocation_stalls is not None


@pytest.mark.live
def test_a_real_process_is_listed(real_sampler: Sampler, real_group: Cgroup) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            real_group.add_pid(process.pid)
            sample = real_sampler.read(0, (SlotState(),))
        finally:
            process.kill()
    assert sample.processes is not None
    assert [p.pid for p in sample.processes] == [process.pid]


@pytest.mark.live
def test_a_real_group_that_was_removed_is_picked_up_again(
    real_sampler: Sampler, real_group: Cgroup
) -> None:
    assert real_sampler.read(0, (SlotState(),)).slots[0].memory_usage_bytes is not None
    real_group.remove()
    assert real_sampler.read(1, (SlotState(),)).slots[0] == GroupSample(name=real_group.name)
    real_group.create()
    assert real_sampler.read(2, (SlotState(),)).slots[0].memory_usage_bytes is not None


@pytest.mark.live
def test_reading_real_groups_takes_little_processor_time_and_no_more_files(
    real_sampler: Sampler,
) -> None:
    open_before = open_files()
    real_sampler.read(0, (SlotState(),))
    files = open_files()
    assert files - open_before < 60
    costs_s = []
    for sequence in range(1, 121):
        began_s = time.thread_time()
        real_sampler.read(sequence, (SlotState(),))
        costs_s.append(time.thread_time() - began_s)
    assert open_files() == files
    # About 0.3 ms; processor time, so that it matters little what else runs.
    assert statistics.median(costs_s) < 0.003
