"""Signals of processes: their files, sums that never fall, and the round robin."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from own_names import own_name

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.cgroups import Hierarchy, Walk
from stallward.actuator.kernel.files import OpenFile
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base.lever import ExemptProcesses
from stallward.actuator.sensors.files.cpu import IoBytes, parse_io_stat
from stallward.actuator.sensors.files.process_files import (
    ProcessStatus,
    parse_process_io,
    parse_pss,
    parse_schedstat,
    parse_status,
)
from stallward.actuator.sensors.processes.group_processes import GroupProcesses
from stallward.actuator.sensors.processes.members import GroupMembers, parse_pids
from stallward.actuator.sensors.processes.round_robin import ASKED, UNASKED, PssReader, RoundRobin
from stallward.actuator.sensors.processes.tracked_process import EndedError, TrackedProcess
from stallward.actuator.sensors.readers import ReadApplication
from stallward.actuator.sensors.sampler import PROTECTED_SLOT, Sampler
from stallward.agent.sample import SlotState

P = Path("/the/file")
HUGE = 2**64 - 1
STATUS = (
    b"Name:\ta\\nVmSwap: 9 kB\nState:\tS (sleeping)\nVmRSS:\t      30 kB\n"
    b"RssAnon:\t      10 kB\nRssFile:\t      15 kB\nRssShmem:\t       5 kB\n"
    b"VmSwap:\t       7 kB\nThreads:\t3\n"
)


def test_status() -> None:
    whole = ProcessStatus(
        state=b"S",
        threads=3,
        rss_bytes=30 << 10,
        anon_bytes=15 << 10,
        file_bytes=15 << 10,
        swap_bytes=7 << 10,
    )
    assert parse_status(STATUS, P) == whole
    swapped_lines = STATUS.replace(b"RssFile:\t      15 kB\n", b"") + b"RssFile:\t 15 kB\n"
    assert parse_status(swapped_lines, P) == whole
    thread = b"Name:\tkworker\nState:\tI (idle)\nThreads:\t1\n"
    assert parse_status(thread, P) == ProcessStatus(state=b"I", threads=1)


@pytest.mark.parametrize(
    ("parse", "contents"),
    [
        (
            parse_status,
            [
                b"",
                STATUS[:-1],
                STATUS.replace(b"Threads:\t3\n", b""),
                STATUS.replace(b"State:\tS (sleeping)\n", b"State:\t\n"),
                STATUS.replace(b"30 kB", b"30 MB"),
                STATUS.replace(b"30 kB", b"-3 kB"),
                STATUS.replace(b"      30 kB", b"%d kB" % HUGE),
                STATUS.replace(b"7 kB", b"kB"),
            ],
        ),
        (parse_schedstat, [b"", b"1 2\n", b"1 2 3", b"1 -2 3\n", b"1 2 3 4\n", b"1 x 3\n"]),
        (
            parse_process_io,
            [b"", b"rchar: 1\n", b"rchar: 1\nread_bytes: 1\nwrite_bytes: 2", b"\nread_bytes: x\n"],
        ),
        (parse_pss, [b"\nPss: 3 kB", b"\nPss: 3\n", b"\nPss: x kB\n"]),
        (parse_io_stat, [b"8:0 rbytes=1", b"8:0 rbytes\n", b"8 rbytes=1\n", b"8:0 rbytes=-1\n"]),
        (parse_io_stat, [b"\n", b"8:0 rbytes=%d\n8:16 rbytes=1\n" % HUGE]),
        (parse_pids, [b"1", b"-1\n", b"1 x\n", b"1" * 11 + b"\n"]),
    ],
)
def test_malformed_files(parse: Callable[[bytes, Path], object], contents: list[bytes]) -> None:
    for content in contents:
        with pytest.raises(SensorError, match="/the/file"):
            parse(content, P)


def test_valid_files() -> None:
    assert parse_schedstat(b"5 7999 3\n", P) == 7
    io = b"rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n"
    assert parse_process_io(io, P) == IoBytes(read_bytes=4096, written_bytes=8192)
    assert parse_pss(b"0-f ---p 0 0:0 0 [rollup]\nRss: 9 kB\nPss: 3 kB\n", P) == 3 << 10
    assert parse_pss(b"", P) is None, "a kernel thread"
    both = b"8:0 rbytes=1 wbytes=2 rios=9\n8:16 rbytes=10 wbytes=20 dbytes=7\n7:0\n"
    assert parse_io_stat(both, P) == IoBytes(read_bytes=11, written_bytes=22)
    assert parse_io_stat(b"", P) == IoBytes(read_bytes=0, written_bytes=0)
    assert parse_pids(b"7\n0\n12\n", P) == {7, 12}


class FakeMembers:
    """The members of a group, as the test has set them."""

    fault = None

    def __init__(self, *pids: int) -> None:
        self.now = frozenset(pids)

    def pids(self) -> frozenset[int]:
        return self.now

    def close(self) -> None:
        pass


def make_process(proc: Path, pid: int, *, started: int = 22, delay_us: int = 0) -> None:
    folder = proc / str(pid)
    (folder / "task").mkdir(parents=True, exist_ok=True)
    numbers = " ".join(str(i) for i in range(4, 53)).replace(" 22 ", f" {started} ")
    (folder / "stat").write_text(f"{pid} (a) S {numbers}\n")
    (folder / "status").write_bytes(STATUS.replace(b"Threads:\t3", b"Threads:\t1"))
    (folder / "oom_score").write_text("5\n")
    set_delay(proc, pid, delay_us)


def set_delay(proc: Path, pid: int, delay_us: int) -> None:
    (proc / str(pid) / "schedstat").write_text(f"1 {delay_us * 1000} 3\n")
    io = f"rchar: 0\nread_bytes: {delay_us * 10}\nwrite_bytes: {delay_us * 100}\n"
    (proc / str(pid) / "io").write_text(io)


def turn(group: GroupProcesses) -> tuple[int | None, int | None, int | None]:
    group.look(8)
    for process in tuple(group.tracked.values()):
        group.take_turn(process, 1.0, None)
    return group.sums


def test_sums_never_fall_when_processes_end(tmp_path: Path) -> None:
    make_process(tmp_path, 10, delay_us=5)
    make_process(tmp_path, 11, delay_us=7)
    members = FakeMembers(10, 11)
    group = GroupProcesses(members, 0, tmp_path)
    group.look(8)
    assert group.sums == (None, None, None), "nothing was read yet"
    assert turn(group) == (12, 120, 1200)
    set_delay(tmp_path, 10, 6)
    assert turn(group) == (13, 130, 1300)
    members.now = frozenset({11})
    assert turn(group) == (13, 130, 1300)
    set_delay(tmp_path, 11, 8)
    assert turn(group) == (14, 140, 1400)
    members.now = frozenset()
    assert turn(group) == (14, 140, 1400)
    group.close()


def test_a_process_that_came_from_another_group_counts_from_then_on(tmp_path: Path) -> None:
    make_process(tmp_path, 10, delay_us=5)
    make_process(tmp_path, 11, started=22, delay_us=1000)
    make_process(tmp_path, 12, started=1 << 50, delay_us=100)
    members = FakeMembers(10)
    group = GroupProcesses(members, 0, tmp_path)
    assert turn(group)[0] == 5
    members.now = frozenset({10, 11, 12})
    assert turn(group)[0] == 105, "the newly started one counts whole, the old one not yet"
    set_delay(tmp_path, 11, 1001)
    assert turn(group)[0] == 106
    group.close()


def test_one_unreadable_process_makes_the_sum_absent_not_smaller(tmp_path: Path) -> None:
    make_process(tmp_path, 10, delay_us=5)
    make_process(tmp_path, 11, delay_us=7)
    group = GroupProcesses(FakeMembers(10, 11), 0, tmp_path)
    assert turn(group)[0] == 12
    (tmp_path / "11/status").write_text("nonsense")
    assert turn(group) == (None, None, None)
    assert "11/status" in str(group.tracked[11].fault)
    make_process(tmp_path, 11, delay_us=9)
    assert turn(group)[0] == 14
    group.close()


@pytest.mark.parametrize(
    ("file", "content", "sums"),
    [
        ("io", "rchar: 0\nread_bytes: -1\nwrite_bytes: 700\n", (12, None, 1200)),
        ("io", "rchar: 0\n", (12, None, None)),
        ("schedstat", "1 x 3\n", (None, 120, 1200)),
        ("status", STATUS.replace(b"Threads:\t3", b"Threads:\tx").decode(), (None, 120, 1200)),
        ("status", STATUS.replace(b"30 kB", b"-3 kB").decode(), (12, 120, 1200)),
    ],
)
def test_a_file_of_a_process_that_is_malformed_takes_no_other_along(
    tmp_path: Path, file: str, content: str, sums: tuple[int | None, ...]
) -> None:
    make_process(tmp_path, 10, delay_us=5)
    make_process(tmp_path, 11, delay_us=7)
    group = GroupProcesses(FakeMembers(10, 11), 0, tmp_path)
    assert turn(group) == (12, 120, 1200)
    (tmp_path / "11" / file).write_text(content)
    assert turn(group) == sums
    assert turn(group) == sums
    process = group.tracked[11]
    assert f"11/{file}" in str(process.fault)
    assert process.sample is not None
    assert process.sample.swap_bytes == 7 << 10
    make_process(tmp_path, 11, delay_us=8)
    assert turn(group) == (13, 130, 1300), "nothing was lost"
    assert process.fault is None
    group.close()


def test_a_counter_of_a_newcomer_that_becomes_known_late_is_no_growth(tmp_path: Path) -> None:
    make_process(tmp_path, 10, delay_us=5)
    make_process(tmp_path, 11, started=22, delay_us=1000)
    (tmp_path / "11/io").write_text("rchar: 0\n")
    members = FakeMembers(10)
    group = GroupProcesses(members, 0, tmp_path)
    assert turn(group) == (5, 50, 500)
    members.now = frozenset({10, 11})
    assert turn(group) == (5, None, None)
    set_delay(tmp_path, 11, 1000)
    assert turn(group) == (5, 50, 500)
    set_delay(tmp_path, 11, 1001)
    assert turn(group) == (6, 60, 600)
    group.close()


@pytest.mark.parametrize("own", ["0 0 0\n", "12 3 4\n", None])
def test_zeros_are_no_run_delay_where_the_kernel_counts_none(
    tmp_path: Path, own: str | None
) -> None:
    make_process(tmp_path, 10, delay_us=5)
    (tmp_path / "10/schedstat").write_text("0 0 0\n")
    if own is not None:
        (tmp_path / "self").mkdir()
        (tmp_path / "self/schedstat").write_text(own)
    group = GroupProcesses(FakeMembers(10), 0, tmp_path)
    expected = None if own == "0 0 0\n" else 0  # else it has not run yet
    assert turn(group) == (expected, 50, 500)
    assert group.tracked[10].fault is None
    group.close()


def test_the_status_of_a_process_in_thousands_of_groups_is_read_whole(tmp_path: Path) -> None:
    make_process(tmp_path, 10)
    groups = "Groups:\t" + " ".join(map(str, range(100_000, 104_000)))
    status = STATUS.decode().replace("VmRSS:", f"{groups}\nVmRSS:", 1)
    assert len(status) > 16_384
    (tmp_path / "10/status").write_text(status)
    process = TrackedProcess(tmp_path, 10, 0, keep=False)
    process.read(1.0)
    assert process.fault is None
    assert process.sample is not None
    assert process.sample.rss_bytes == 30 << 10


def test_files_that_could_not_be_read_are_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_process(tmp_path, 10)
    process = TrackedProcess(tmp_path, 10, 0, keep=True)
    process.read(1.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", lambda *_: os.read(-1, 1))
        process.read(2.0)
    assert process.fault is not None
    opened = (tmp_path / "10/status").stat().st_ino
    (tmp_path / "10/status").rename(tmp_path / "10/old")
    (tmp_path / "10/status").write_bytes(STATUS)
    assert (tmp_path / "10/status").stat().st_ino != opened
    process.read(3.0)
    assert process.fault is None
    assert os.fstat(process._fds[0]).st_ino == (tmp_path / "10/status").stat().st_ino
    process.close()


def test_another_process_with_the_same_pid_is_not_taken_for_the_first(tmp_path: Path) -> None:
    make_process(tmp_path, 10, started=22)
    process = TrackedProcess(tmp_path, 10, 0, keep=False)
    process.read(1.0)
    make_process(tmp_path, 10, started=23)
    with pytest.raises(EndedError):
        process.read(2.0)


SPIN = """
import sys, threading, time
def spin():
    end = time.monotonic() + 1
    while time.monotonic() < end: sum(range(1000)); time.sleep(0.001)
threads = [threading.Thread(target=spin) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_real_process_counts_all_its_threads_also_ended_ones() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            process = TrackedProcess(Path("/proc"), child.pid, 0, keep=True)
            most, threads = 0, 1
            while True:
                process.read(1.0)
                threads = max(threads, process.threads)
                assert process.sample is not None
                assert process.sample.run_delay_us is not None
                assert process.sample.run_delay_us >= most, "it never falls"
                most = process.sample.run_delay_us
                if threads == 5 and process.threads == 1:
                    break
        finally:
            child.kill()
    assert process.sample.rss_bytes is not None
    assert process.sample.rss_bytes > 1_000_000
    with pytest.raises(EndedError):
        process.read(2.0)
    process.close()


def turns_of(tmp_path: Path, counts: tuple[int, ...]) -> RoundRobin:
    groups = []
    pid = 100
    for slot, count in enumerate(counts, PROTECTED_SLOT):
        pids = range(pid, pid + count)
        for one in pids:
            make_process(tmp_path, one)
        groups.append(GroupProcesses(FakeMembers(*pids), slot, tmp_path))
        pid += count
    return RoundRobin(groups, 2, PssReader(tmp_path))


@pytest.fixture
def many(tmp_path: Path) -> Iterator[RoundRobin]:
    turns = turns_of(tmp_path, (5, 20, 100))
    yield turns
    turns.close()


def read_at(turns: RoundRobin, time_s: float) -> int:
    return sum(sample.read_s == time_s for sample in turns.samples())


def test_the_work_of_a_tick_is_bounded_and_every_process_gets_a_turn(many: RoundRobin) -> None:
    many.look(many.groups)
    rounds = 0
    while len(many.samples()) < 125:
        rounds += 1
        many.take(float(rounds), asked=False)
        assert read_at(many, float(rounds)) <= UNASKED
        assert rounds < 200
    assert [sample.slot for sample in many.samples()[:6]] == [-1] * 5 + [0]
    for group in many.groups:
        assert group.sums[0] == 0


def test_more_are_read_when_the_controller_needs_processes(many: RoundRobin) -> None:
    many.look(many.groups)
    many.take(1.0, asked=True)
    assert UNASKED < read_at(many, 1.0) <= ASKED
    first = {sample.pid for sample in many.samples()}
    assert {100, 101, 102, 103, 104} <= first, "the application's processes come first"
    for tick in range(2, 20):
        many.take(float(tick), asked=True)
    ages = {19.0 - (sample.read_s or 0) for sample in many.samples() if sample.slot == -1}
    assert max(ages) <= 3, "and more often"


def test_a_few_processes_rest_between_turns_but_new_ones_do_not_wait(tmp_path: Path) -> None:
    listed = FakeMembers(10, 11, 12)
    for pid in (10, 11, 12, 13):
        make_process(tmp_path, pid)
    group = GroupProcesses(listed, 0, tmp_path)
    far = GroupProcesses(FakeMembers(), 1, tmp_path)
    turns = RoundRobin([group, far], 1, PssReader(tmp_path))
    reads = []
    for tick in range(1, 43):
        turns.look(turns.groups)
        turns.take(float(tick), asked=False)
        reads.append(read_at(turns, float(tick)))
    assert reads[:2] == [2, 2], "nothing is known before each had its turn"
    assert sum(reads[2:]) == 12, "then each once in ten ticks"
    listed.now = frozenset((10, 11, 12, 13))
    turns.look(turns.groups)
    turns.take(50.0, asked=False)
    assert {sample.pid for sample in turns.samples() if sample.read_s == 50.0} >= {13}
    turns.close()


def test_one_turn_a_tick_goes_to_near_and_far_groups_alike(tmp_path: Path) -> None:
    turns = turns_of(tmp_path, (2, 2, 6))
    turns.look(turns.groups)
    for tick in range(1, 41):
        turns.take(float(tick), asked=False)
    ages_s = [40.0 - (sample.read_s or 0.0) for sample in turns.samples()]
    assert len(ages_s) == 10
    assert max(ages_s) <= 12
    turns.close()


def test_a_few_processes_are_read_every_tick(tmp_path: Path) -> None:
    turns = turns_of(tmp_path, (3, 4, 5))
    for tick in range(1, 4):
        turns.look(turns.groups)
        turns.take(float(tick), asked=True)
        assert read_at(turns, float(tick)) == 12
    turns.close()


def test_proportional_sizes_are_absent_until_every_process_was_read(tmp_path: Path) -> None:
    make_process(tmp_path, 10)
    make_process(tmp_path, 11)
    pss = PssReader(tmp_path)
    group = GroupProcesses(FakeMembers(10, 11), 0, tmp_path)
    turns = RoundRobin([group], 1, pss)
    turn(group)
    processes = list(group.tracked.values())
    pss._wanted = processes  # without its thread
    (tmp_path / "10/smaps_rollup").write_text("rollup\nPss: 3 kB\n")
    pss.read_next(0)
    pss.read_next(1)
    assert turns.pss_bytes(group) is None
    (tmp_path / "11/smaps_rollup").write_text("rollup\nPss: 4 kB\n")
    pss.read_next(1)
    assert turns.pss_bytes(group) == 7 << 10
    make_process(tmp_path, 11, started=99)  # another one by that pid
    pss._sizes.clear()
    pss.read_next(1)
    assert turns.pss_bytes(group) is None
    turns.close()


def test_members_follow_groups_that_come_and_go(tmp_path: Path) -> None:
    node = Hierarchy(kind="v2", memory_root=tmp_path, unified_root=tmp_path)
    (tmp_path / "g/sub").mkdir(parents=True)
    (tmp_path / "g/cgroup.stat").write_text("nr_descendants 1\n")
    (tmp_path / "g/cgroup.procs").write_text("5\n")
    (tmp_path / "g/sub/cgroup.procs").write_text("6\n")
    members = GroupMembers(node.group("g"))
    first = members.pids()
    assert first == {5, 6}
    assert members.pids() is first, "nothing has changed"
    (tmp_path / "g/new").mkdir()
    (tmp_path / "g/new/cgroup.procs").write_text("7\n")
    (tmp_path / "g/cgroup.stat").write_text("nr_descendants 2\n")
    assert members.pids() == {5, 6, 7}
    (tmp_path / "g/cgroup.procs").write_text("nonsense\n")
    with pytest.raises(SensorError, match="not a list"):
        members.pids()
    members.close()


def many_groups(root: Path, count: int) -> GroupMembers:
    """The members of a group with many below it, each of which lists one process."""
    for number in range(count):
        (root / f"g/c{number:04}").mkdir(parents=True)
        (root / f"g/c{number:04}/cgroup.procs").write_text(f"{1000 + number}\n")
    (root / "g/cgroup.procs").write_text("5\n")
    (root / "g/cgroup.stat").write_text(f"nr_descendants {count}\nnr_dying_descendants 0\n")
    node = Hierarchy(kind="v2", memory_root=root, unified_root=root)
    return GroupMembers(node.group("g"))


def work_of(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many groups a call walks and how many files it reads, together."""
    done = 0
    step, read = Walk.__next__, OpenFile.read

    def counted_step(walk: Walk) -> Path:
        nonlocal done
        done += 1
        return step(walk)

    def counted_read(file: OpenFile) -> bytes | None:
        nonlocal done
        done += 1
        return read(file)

    with monkeypatch.context() as patch:
        patch.setattr(Walk, "__next__", counted_step)
        patch.setattr(OpenFile, "read", counted_read)
        call()
    return done


def test_many_groups_are_walked_and_read_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their owner can make as many as he likes: no tick does more for it than its share."""
    members = many_groups(tmp_path, 400)
    most, listed = 0, [0]
    while len(members.pids()) < 401:
        most = max(most, work_of(members.pids, monkeypatch))
        listed.append(len(members.pids()))
        assert listed[-1] > listed[-2], "it goes on"
    assert most <= 100
    assert members.fault is None
    for _ in range(10):
        assert work_of(members.pids, monkeypatch) <= 66, "nothing is walked again"
    (tmp_path / "g/c0333/cgroup.procs").write_text("77\n")
    shutil.rmtree(tmp_path / "g/c0111")
    for _ in range(40):
        last = members.pids()
    assert last == {5, 77, *(set(range(1000, 1400)) - {1111, 1333})}
    members.close()


def test_groups_that_are_just_being_removed_start_no_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = many_groups(tmp_path, 20)
    assert len(members.pids()) == 21
    for dying in range(5):
        stat = f"nr_descendants 20\nnr_dying_descendants {dying}\n"
        (tmp_path / "g/cgroup.stat").write_text(stat)
        assert work_of(members.pids, monkeypatch) == 22, "only the lists are read"
    members.close()


def test_of_too_many_groups_the_further_ones_are_left_out_and_the_group_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallward.actuator.sensors.processes.members.MOST_GROUPS", 10)
    members = many_groups(tmp_path, 15)
    group = GroupProcesses(members, 0, tmp_path)
    group.look(0)
    assert len(members.pids()) == 10, "the others count"
    assert 5 in members.pids()
    assert group.fault is not None
    assert group.fault.path == tmp_path / "g"
    assert "more than 10 groups are below" in str(group.fault)
    for number in range(5, 15):
        shutil.rmtree(tmp_path / f"g/c{number:04}")
    (tmp_path / "g/cgroup.stat").write_text("nr_descendants 5\n")
    for _ in range(3):
        group.look(0)
    assert group.fault is None
    assert members.pids() == {5, *range(1000, 1005)}
    group.close()


@pytest.mark.live
def test_a_thousand_nested_groups_end_nothing_and_the_slot_is_named() -> None:
    node = require(Paths())
    slot = node.group(f"{own_name()}-nested")
    slot.create()
    try:
        for top in slot.dirs:
            deep = str(top)
            for _ in range(1300):
                deep += "/a"
                os.mkdir(deep)  # noqa: PTH102 - a Path of it takes long
        members = GroupMembers(slot)
        for _ in range(10):
            assert members.pids() == frozenset()
        assert members.fault is not None
        assert slot.name in str(members.fault)
        assert not ExemptProcesses().within(slot)
        members.close()
    finally:
        slot.remove(timeout_s=30.0)


@pytest.mark.live
def test_real_processes_have_the_slot_of_their_group() -> None:
    node = require(Paths())
    zone = node.group(f"{own_name()}-processes")
    app, bg = zone.child("app"), zone.child("bg")
    app.create()
    bg.create()
    sampler = Sampler(
        paths=Paths(),
        hierarchy=node,
        zone=zone,
        applications=[ReadApplication(target=app)],
        slots=(bg,),
        needs_processes=True,
    )
    try:
        with subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen(["sleep", "60"]) as two:
            try:
                app.add_pid(one.pid)
                bg.add_pid(two.pid)
                sample = sampler.read(0, (SlotState(),))
                by_pid = {p.pid: p for p in sample.processes or ()}
                assert by_pid[one.pid].slot == PROTECTED_SLOT
                assert by_pid[two.pid].slot == 0
                assert by_pid[two.pid].anon_bytes is not None
                for sequence in range(1, 30):
                    sample = sampler.read(sequence, (SlotState(),))
                for group in (sample.protected, sample.slots[0]):
                    assert group.run_delay_us is not None
                    assert group.io_read_bytes is not None
            finally:
                one.kill()
                two.kill()
    finally:
        sampler.close()
        zone.kill()
        zone.remove()
