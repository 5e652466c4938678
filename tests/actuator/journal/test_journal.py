"""Entries on lines and on disk, and undoing them on files of our own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.errors import JournalError
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import (
    FileValue,
    Frozen,
    GroupThreads,
    JournalEntry,
    KeyedValue,
    Noted,
    OomScore,
    OwnedGroup,
    Stopped,
    SwapFile,
    ThreadValue,
    ZramDevice,
    from_line,
    seal,
    to_line,
)
from stallward.actuator.journal.kept_files import KeptFiles
from stallward.actuator.journal.own_entries import SWAP_SUFFIX, Owner
from stallward.actuator.journal.restore import is_swap, restore
from stallward.actuator.kernel.memory.compressed_swap import zswap_dir
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import start_time_ticks

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
FILES = TEXTS.map(lambda t: Path("/") / t)
INTS = st.integers(-(2**40), 2**40)
PIDS = st.integers(1, 2**31 - 1)
TICKS = st.integers(0, 2**40)
ENTRIES: st.SearchStrategy[JournalEntry] = st.one_of(
    st.builds(FileValue, FILES, TEXTS),
    st.builds(KeyedValue, FILES, TEXTS, TEXTS),
    st.builds(Frozen, FILES),
    st.builds(Stopped, PIDS, TICKS),
    st.builds(OomScore, PIDS, TICKS, INTS),
    st.builds(ThreadValue, TEXTS, PIDS, TICKS, TEXTS),
    st.builds(GroupThreads, TEXTS, FILES, TEXTS, TEXTS),
    st.builds(OwnedGroup, TEXTS),
    st.builds(SwapFile, FILES),
    st.builds(ZramDevice, FILES),
    st.builds(Noted, st.builds(FileValue, FILES, TEXTS) | st.builds(Frozen, FILES), PIDS),
)


@given(ENTRIES, st.sampled_from(["hold", "release"]))
def test_every_entry_survives_its_line(entry: JournalEntry, operation: str) -> None:
    line = to_line(entry, "release" if operation == "release" else "hold")
    assert "\n" not in line
    assert from_line(line) == (operation, entry)


@given(ENTRIES, st.data())
def test_a_torn_or_changed_line_is_recognised(entry: JournalEntry, data: st.DataObject) -> None:
    line = to_line(entry)
    cut = data.draw(st.integers(0, len(line) - 1))
    with pytest.raises(JournalError):
        from_line(line[:cut])
    other = line[:cut] + ("#" if line[cut] != "#" else "+") + line[cut + 1 :]
    with pytest.raises(JournalError):
        from_line(other)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"op": "hold"},
        {"op": "hold", "kind": "nonsense"},
        {"op": "hold", "kind": ["frozen"], "path": "/a"},
        {"op": "keep", "kind": "frozen", "path": "/a"},
        {"op": "hold", "kind": "frozen", "path": 3},
        {"op": "hold", "kind": "frozen", "path": "/a", "more": 1},
        {"op": "hold", "kind": "stopped", "pid": True, "start_time_ticks": 2},
        {"op": "hold", "kind": "stopped", "pid": "1", "start_time_ticks": 2},
    ],
)
def test_sealed_lines_of_another_version_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(JournalError):
        from_line(seal(fields))


@pytest.mark.parametrize("line", ["", "null", "3", "[]", "{}", '{"crc": null}', "[" * 100_000])
def test_junk_is_refused(line: str) -> None:
    with pytest.raises(JournalError):
        from_line(line)


@pytest.fixture
def node(tmp_path: Path) -> Paths:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path, sys=tmp_path / "sys")
    boot = paths.proc / "sys/kernel/random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("boot-1\n")
    return paths


FIRST = FileValue(Path("/a"), "1")
SECOND = Stopped(12, 34)


def test_the_disk_journal_keeps_what_is_held(tmp_path: Path, node: Paths) -> None:
    path = tmp_path / "new" / "journal"
    assert Journal(path, node).load() == ()
    journal = Journal(path, node)
    journal.append((FIRST, SECOND))
    journal.append((FIRST,), "release")
    journal.close()
    journal.append((OwnedGroup("stallward/1"),))
    assert Journal(path, node).load() == (SECOND, OwnedGroup("stallward/1"))
    assert path.stat().st_mode & 0o777 == 0o600
    journal.clear()
    assert not path.exists()
    journal.clear()


def test_a_torn_last_line_costs_only_itself(tmp_path: Path, node: Paths) -> None:
    path = tmp_path / "journal"
    Journal(path, node).append((FIRST, SECOND))
    path.write_bytes(path.read_bytes()[:-9])
    journal = Journal(path, node)
    assert journal.load() == (FIRST,)
    assert journal.torn == 1
    journal.append((OwnedGroup("stallward/2"),))
    assert Journal(path, node).load() == (FIRST, OwnedGroup("stallward/2"))


def test_after_a_reboot_only_swap_files_are_left_to_undo(tmp_path: Path, node: Paths) -> None:
    path = tmp_path / "journal"
    Journal(path, node).append((FIRST, SwapFile(Path("/swap")), SECOND))
    (node.proc / "sys/kernel/random/boot_id").write_text("boot-2\n")
    assert Journal(path, node).load() == (SwapFile(Path("/swap")),)
    Journal(path, node).append((SECOND,))
    assert Journal(path, node).load() == (SwapFile(Path("/swap")), SECOND)


def test_a_journal_that_cannot_be_written_is_an_error(tmp_path: Path, node: Paths) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="Cannot write"):
        Journal(tmp_path / "file" / "journal", node).append((FIRST,))
    with pytest.raises(JournalError, match="Cannot read"):
        Journal(tmp_path, node).load()


def test_files_get_their_first_value_back(tmp_path: Path, node: Paths) -> None:
    knob, freeze = tmp_path / "memory.high", tmp_path / "cgroup.freeze"
    knob.write_text("99")
    freeze.write_text("1")
    entries = (FileValue(knob, "60"), FileValue(knob, "99"), Frozen(freeze))
    for _ in range(2):
        assert restore(entries, node) == ()
        assert knob.read_text() == "60"
        assert freeze.read_text() == "0"


def test_a_setting_that_has_vanished_is_no_problem(tmp_path: Path, node: Paths) -> None:
    entries = (
        FileValue(tmp_path / "gone" / "memory.high", "1"),
        Frozen(tmp_path / "gone" / "cgroup.freeze"),
        Stopped(4_000_000, 1),
        OomScore(4_000_000, 1, 0),
        KeyedValue(tmp_path / "gone" / "io.max", "8:0", "rbps=max"),
        ThreadValue("nice", 4_000_000, 1, "0"),
        GroupThreads("nice", tmp_path / "gone", "5", "0"),
        OwnedGroup("stallward/gone"),
        SwapFile(tmp_path / f"gone{SWAP_SUFFIX}"),
    )
    (node.proc / "self").mkdir()
    (node.proc / "self/mounts").write_text(
        "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    )
    for name in ("memory", "unified"):
        (node.cgroup / name).mkdir(parents=True)
    assert restore(entries, node, Owner.SANDBOX) == ()


def test_problems_are_said_and_the_rest_is_undone(tmp_path: Path, node: Paths) -> None:
    knob = tmp_path / "memory.high"
    knob.write_text("2")
    stuck = tmp_path / "cgroup.freeze"
    stuck.mkdir()
    problems = restore(
        (Frozen(stuck), OwnedGroup("../evil"), OwnedGroup("user.slice"), FileValue(knob, "1")),
        node,
        Owner.SANDBOX,
    )
    assert knob.read_text() == "1"
    assert len(problems) == 3
    assert str(stuck) in str(problems[0])
    assert "not one of ours" in str(problems[2])


def test_keys_of_one_file_are_put_back_one_by_one(tmp_path: Path, node: Paths) -> None:
    fifo = tmp_path / "io.max"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    first, second = KeyedValue(fifo, "8:0", "rbps=max"), KeyedValue(fifo, "8:16", "rbps=7")
    assert restore((first, second, KeyedValue(fifo, "8:0", "rbps=9")), node) == ()
    assert os.read(reader, 100) == b"8:0 rbps=max8:16 rbps=7"
    os.close(reader)


def test_a_v1_freezer_is_thawed_by_its_word(tmp_path: Path, node: Paths) -> None:
    state = tmp_path / "freezer.state"
    state.write_text("FROZEN")
    assert restore((Frozen(state),), node) == ()
    assert state.read_text() == "THAWED"


def test_threads_get_back_what_they_had_and_so_do_their_children(tmp_path: Path) -> None:
    code = "import os,time,sys; os.setpriority(os.PRIO_PROCESS, 0, 5); os.fork(); print(flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"\n"
            child = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text())
            (tmp_path / "cgroup.procs").write_text(f"{parent.pid}\n")
            (tmp_path / "below").mkdir()
            (tmp_path / "below/cgroup.procs").write_text(f"{child}\n")
            ticks = start_time_ticks(Path("/proc"), child)
            start_of_parent = start_time_ticks(Path("/proc"), parent.pid)
            assert ticks is not None
            assert start_of_parent is not None
            entries = (
                ThreadValue("cpus", parent.pid, start_of_parent, "99999"),
                ThreadValue("nice", child, ticks, "3"),
                ThreadValue("nice", parent.pid, start_of_parent - 1, "9"),
                GroupThreads("nice", tmp_path, "5", "1"),
            )
            (problem,) = restore(entries, Paths(cgroup=tmp_path.parent))
            assert "cannot set 99999" in str(problem), "and the others are undone"
            assert os.getpriority(os.PRIO_PROCESS, parent.pid) == 1
            assert os.getpriority(os.PRIO_PROCESS, child) == 3, "an exception from its group"
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_a_swap_file_of_ours_is_deleted(tmp_path: Path, node: Paths) -> None:
    swap = tmp_path / f"1{SWAP_SUFFIX}"
    swap.write_text("x")
    assert restore((SwapFile(swap),), node, Owner.SANDBOX) == ()
    assert not swap.exists()


def test_a_zram_device_of_ours_is_removed_by_its_number(node: Paths) -> None:
    control = node.sys / "class/zram-control"
    control.mkdir(parents=True)
    (control / "hot_remove").write_text("")
    entry = ZramDevice(Path("/dev/zram17"))
    assert restore((entry,), node, Owner.SANDBOX) == ()
    assert (control / "hot_remove").read_text() == "", "a device that is gone is no other one"
    (node.sys / "block/zram17").mkdir(parents=True)
    assert restore((entry,), node, Owner.SANDBOX) == ()
    assert (control / "hot_remove").read_text() == "17"


def test_the_settings_of_zswap_are_put_back(node: Paths) -> None:
    zswap = zswap_dir(node)
    zswap.mkdir(parents=True)
    entries = []
    for name, before, now in (("enabled", "N", "Y"), ("compressor", "lzo", "zstd")):
        (zswap / name).write_text(now)
        entries.append(FileValue(zswap / name, before))
    assert restore(entries, node, Owner.SANDBOX) == ()
    assert [(zswap / name).read_text() for name in ("enabled", "compressor")] == ["N", "lzo"]


def test_a_swap_file_is_found_under_the_name_the_kernel_gives_it(tmp_path: Path) -> None:
    real = tmp_path / "My Cache"
    real.mkdir()
    link = tmp_path / "cache"
    link.symlink_to(real)
    (real / "1.swap").write_text("")
    shown = str(real / "1.swap").replace(" ", "\\040")
    table = f"Filename\tType\tSize\tUsed\tPriority\n{shown} file\t8188\t0\t-2\n"
    assert is_swap(real / "1.swap", table)
    assert is_swap(link / "1.swap", table)
    assert not is_swap(real / "2.swap", table)


def test_a_process_that_enters_an_owned_group_late_is_killed_too(
    tmp_path: Path, node: Paths
) -> None:
    (node.proc / "self").mkdir()
    (node.proc / "self/mounts").write_text(
        "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    )
    folders = [node.cgroup / name / "stallward/1" for name in ("memory", "unified")]
    for folder in folders:
        folder.mkdir(parents=True)
    members = folders[0] / "cgroup.procs"
    members.write_text("")
    with subprocess.Popen(["sleep", "60"]) as late:

        def enter() -> None:
            time.sleep(0.2)
            members.write_text(str(late.pid))
            if late.wait(10) is not None:  # as the kernel does it: the dead leave the group
                members.unlink()

        entering = threading.Thread(target=enter)
        entering.start()
        try:
            assert restore((OwnedGroup("stallward/1"),), node, Owner.SANDBOX) == ()
        finally:
            late.kill()
            entering.join()
    assert not any(folder.exists() for folder in folders)


def test_only_the_very_process_is_continued() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        proc = Path("/proc")
        ticks = start_time_ticks(proc, process.pid)
        assert ticks is not None
        process.send_signal(signal.SIGSTOP)
        stat = proc / str(process.pid) / "stat"
        while b") T" not in stat.read_bytes():
            pass
        assert restore((Stopped(process.pid, ticks + 1),), Paths()) == ()
        assert b") T" in stat.read_bytes()
        assert restore((Stopped(process.pid, ticks),), Paths()) == ()
        assert b") T" not in stat.read_bytes()
        process.kill()


def test_only_the_very_process_gets_its_oom_score_back() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        ticks = start_time_ticks(Path("/proc"), process.pid)
        assert ticks is not None
        file = Path(f"/proc/{process.pid}/oom_score_adj")
        file.write_text("500")
        assert restore((OomScore(process.pid, ticks + 1, 700),), Paths()) == ()
        assert file.read_text() == "500\n"
        assert restore((OomScore(process.pid, ticks, 600),), Paths()) == ()
        assert file.read_text() == "600\n"
        process.kill()


FORKING = """
import os, sys
for line in sys.stdin:
    child = os.fork()
    if not child:
        continue
    os.write(1, b"%d\\n" % child)  # at once: both write to the same pipe
    os.waitpid(child, 0)
"""


def test_what_a_process_has_started_since_gets_its_oom_score_back() -> None:
    """The journal names only what ran at the last sweep."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        files = [Path(f"/proc/{process.pid}/oom_score_adj")]
        files[0].write_text("800")
        process.stdin.write(b"\n\n")
        process.stdin.flush()
        pids = [int(process.stdout.readline()) for _ in range(2)]  # a child, and a child of that
        files += [Path(f"/proc/{pid}/oom_score_adj") for pid in pids]
        assert [file.read_text() for file in files] == ["800\n"] * 3
        ticks = start_time_ticks(Path("/proc"), process.pid)
        assert ticks is not None
        assert restore((OomScore(process.pid, ticks, 600),), Paths()) == ()
        assert [file.read_text() for file in files] == ["600\n"] * 3
        process.stdin.close()


def test_what_runs_again_does_not_run_under_a_hard_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze, soft, hard = (
        tmp_path / name for name in ("cgroup.freeze", "memory.high", "memory.limit_in_bytes")
    )
    for path in (freeze, soft, hard):
        path.write_text("1")
    order: list[str] = []
    write = KeptFiles.write

    def note(kept: KeptFiles, path: Path, value: str) -> None:
        order.append(path.name)
        write(kept, path, value)

    monkeypatch.setattr(KeptFiles, "write", note)
    entries = (Frozen(freeze), FileValue(soft, "max"), FileValue(hard, "-1"))
    assert restore(entries, Paths(cgroup=tmp_path)) == ()
    assert order == ["memory.limit_in_bytes", "cgroup.freeze", "memory.high"]
