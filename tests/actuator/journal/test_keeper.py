"""The keeper process: it holds entries and undoes them when its owner dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from own_names import own_name

from stallward.actuator.errors import JournalError
from stallward.actuator.journal.entries import (
    FileValue,
    Frozen,
    OwnedGroup,
    Stopped,
    SwapFile,
    to_line,
)
from stallward.actuator.journal.keeper import Keeper, undo_abandoned
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import Paths

OWNER = """
import os, sys, time
from pathlib import Path
from stallward.actuator.journal.entries import FileValue
from stallward.actuator.journal.keeper import Keeper
from stallward.actuator.kernel.paths import Paths
keeper = Keeper.start(Paths(proc=Path("/proc"), cgroup=Path(sys.argv[1])), {journal})
keeper.hold(FileValue(Path(sys.argv[1]) / "memory.high", "60"))
(Path(sys.argv[1]) / "memory.high").write_text("99")
{more}
print(keeper.pid, flush=True)
time.sleep(60)
"""


def wait_gone(pid: int, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while Path(f"/proc/{pid}").exists():
        # A reparented zombie counts as gone.
        try:
            if b") Z" in Path(f"/proc/{pid}/stat").read_bytes():
                return
        except OSError:
            return
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def start_owner(folder: Path, *, journal: str = "None", more: str = "") -> tuple[int, int]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(journal=journal, more=more), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout:
        keeper_pid = int(owner.stdout.readline())
    assert (folder / "memory.high").read_text() == "99"
    owner.kill()
    owner.wait()
    return owner.pid, keeper_pid


def test_everything_is_put_back_when_the_owner_is_killed(tmp_path: Path) -> None:
    (tmp_path / "memory.high").write_text("60")
    _, keeper_pid = start_owner(tmp_path)
    wait_gone(keeper_pid)
    assert (tmp_path / "memory.high").read_text() == "60"


def test_a_forked_child_that_holds_the_socket_does_not_delay_it(tmp_path: Path) -> None:
    (tmp_path / "memory.high").write_text("60")
    fork = "os.set_inheritable(keeper._connection.fileno(), True)\n"
    fork += "child = os.fork()\nif child == 0: os.close(1); time.sleep(60); os._exit(0)\n"
    fork += "(Path(sys.argv[1]) / 'child').write_text(str(child))"
    _, keeper_pid = start_owner(tmp_path, more=fork)
    child_pid = int((tmp_path / "child").read_text())
    try:
        wait_gone(keeper_pid)
        assert (tmp_path / "memory.high").read_text() == "60"
        assert Path(f"/proc/{child_pid}").exists(), "it holds the socket still"
    finally:
        os.kill(child_pid, signal.SIGKILL)


def test_signals_meant_for_others_do_not_stop_it(tmp_path: Path) -> None:
    knob = tmp_path / "memory.high"
    knob.write_text("99")
    keeper = Keeper.start(Paths(cgroup=tmp_path))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(keeper.pid, number)
    assert os.getsid(keeper.pid) == keeper.pid
    entry = FileValue(knob, "60")
    keeper.hold(entry, Frozen(tmp_path / "gone" / "cgroup.freeze"))
    keeper.release(Frozen(tmp_path / "gone" / "cgroup.freeze"))
    assert keeper.restore() == ()
    assert knob.read_text() == "60"
    knob.write_text("61")
    assert keeper.restore() == ()  # holds nothing any more
    assert knob.read_text() == "61"
    keeper.close()
    wait_gone(keeper.pid)


def test_a_clean_close_undoes_nothing(tmp_path: Path) -> None:
    knob, folder = tmp_path / "memory.high", tmp_path / "state"
    knob.write_text("99")
    keeper = Keeper.start(Paths(cgroup=tmp_path), folder)
    keeper.hold(FileValue(knob, "60"))
    (journal,) = folder.iterdir()
    assert "memory.high" in journal.read_text()
    keeper.close()
    assert knob.read_text() == "99"
    assert list(folder.iterdir()) == []
    with pytest.raises(JournalError, match="gone"):
        keeper.hold(FileValue(knob, "60"))


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("exit 3", r"ended before it was ready \(exit status 3\)"),
        ("exec sleep 60", "not ready after"),
    ],
)
def test_a_keeper_that_does_not_come_up_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    other = tmp_path / "python"
    other.write_text(f"#!/bin/sh\n{program}\n")
    other.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(other))
    if "sleep" in program:
        monkeypatch.setattr("stallward.actuator.journal.keeper._START_S", 0.2)
    with pytest.raises(JournalError, match=why):
        Keeper.start(Paths(cgroup=tmp_path), tmp_path / "state")
    assert list((tmp_path / "state").iterdir()) == []


def test_many_entries_travel_at_once(tmp_path: Path) -> None:
    entries = tuple(
        FileValue(tmp_path / ("x" * 200) / str(i) / "cpu.max", "1") for i in range(1000)
    )
    keeper = Keeper.start(Paths(cgroup=tmp_path))
    try:
        keeper.hold(*entries)
        keeper.release(*entries)
        assert keeper.restore() == ()
    finally:
        keeper.close()


def test_a_journal_that_cannot_be_written_is_said_before_any_change(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    keeper = Keeper.start(Paths(cgroup=tmp_path), folder)
    (journal,) = folder.iterdir()
    journal.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    with pytest.raises(JournalError, match="Cannot write the journal"):
        keeper.hold(Frozen(tmp_path / "gone" / "cgroup.freeze"))
    keeper.close()
    with pytest.raises(JournalError, match="Cannot make a journal in"):
        Keeper.start(Paths(cgroup=tmp_path), folder)


def test_when_both_die_the_next_keeper_undoes_it_from_disk(tmp_path: Path) -> None:
    knob, folder = tmp_path / "memory.high", tmp_path / "state"
    knob.write_text("60")
    more = "os.kill(keeper.pid, 9)"
    _, keeper_pid = start_owner(tmp_path, journal=f"Path({str(folder)!r})", more=more)
    wait_gone(keeper_pid)
    assert knob.read_text() == "99"
    keeper = Keeper.start(Paths(cgroup=tmp_path), folder)
    assert knob.read_text() == "60"
    keeper.close()
    assert list(folder.iterdir()) == []


def test_entries_of_a_living_owner_or_keeper_are_left_alone(tmp_path: Path) -> None:
    knob, folder = tmp_path / "memory.high", tmp_path / "state"
    knob.write_text("99")
    paths = Paths(cgroup=tmp_path)
    first = Keeper.start(paths, folder)
    first.hold(FileValue(knob, "60"))
    Keeper.start(paths, folder).close()
    assert knob.read_text() == "99"
    assert first.restore() == ()
    knob.write_text("98")
    first.hold(FileValue(knob, "60"))
    os.kill(first.pid, signal.SIGKILL)
    wait_gone(first.pid)
    undo_abandoned(folder, paths)
    assert knob.read_text() == "98", "its owner lives, and may undo it"
    first.close()
    assert list(folder.iterdir()) == []


def test_the_keeper_removes_its_journal_after_undoing_it(tmp_path: Path) -> None:
    (tmp_path / "memory.high").write_text("60")
    folder = tmp_path / "state"
    _, keeper_pid = start_owner(tmp_path, journal=f"Path({str(folder)!r})")
    wait_gone(keeper_pid)
    assert (tmp_path / "memory.high").read_text() == "60"
    assert list(folder.iterdir()) == []


def test_a_change_that_cannot_be_undone_is_reported_and_stays_in_the_journal(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "state"
    (folder / "memory.high").mkdir(parents=True)
    (folder / "1.journal").write_text(to_line(FileValue(folder / "memory.high", "60")) + "\n")
    for _ in range(2):
        with pytest.raises(JournalError, match="cannot be undone") as caught:
            Keeper.start(Paths(cgroup=tmp_path), folder)
        assert "1.journal" in caught.value.next_step
    (folder / "memory.high").rmdir()
    undo_abandoned(folder, Paths(cgroup=tmp_path))
    assert list(folder.iterdir()) == []


def test_a_dead_keeper_is_an_error_not_a_hang(tmp_path: Path) -> None:
    keeper = Keeper.start(Paths(cgroup=tmp_path))
    os.kill(keeper.pid, signal.SIGKILL)
    wait_gone(keeper.pid)
    with pytest.raises(JournalError, match="gone"):
        keeper.hold(Frozen(tmp_path / "gone" / "cgroup.freeze"))
    keeper.close()


def test_a_late_answer_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    keeper = Keeper.start(Paths(cgroup=tmp_path))
    knob, refused = tmp_path / "memory.high", b"no entry\n"
    knob.write_text("99")
    os.kill(keeper.pid, signal.SIGSTOP)
    for message in (refused, f"{to_line(FileValue(knob, '60'))}\n".encode()):
        with pytest.raises(JournalError, match="did not answer"):
            keeper._ask(message, timeout_s=0.05)
    os.kill(keeper.pid, signal.SIGCONT)
    assert keeper.restore() == ()
    assert knob.read_text() == "60", "it had taken what it answered too late"
    with pytest.raises(JournalError):
        keeper._ask(refused)
    keeper.close()


def test_it_stays_small(tmp_path: Path) -> None:
    keeper = Keeper.start(Paths(cgroup=tmp_path))
    status = Path(f"/proc/{keeper.pid}/smaps_rollup").read_text()
    keeper.close()
    # Only its own: how much of the interpreter counts depends on who else runs it.
    assert int(status.split("\nAnonymous:")[1].split()[0]) < 12 * 1024


LIVE_OWNER = """
import subprocess, sys, time
from pathlib import Path
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.journal.entries import Frozen, OwnedGroup, Stopped, SwapFile
from stallward.actuator.journal.keeper import Keeper
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import start_time_ticks
name, swap = sys.argv[1:]
keeper = Keeper.start(Paths())
group = require(Paths()).group(name)
keeper.hold(OwnedGroup(name), SwapFile(Path(swap)))
group.create()
subprocess.run(["dd", "if=/dev/zero", f"of={swap}", "bs=1M", "count=8", "status=none"], check=True)
Path(swap).chmod(0o600)
subprocess.run(["mkswap", swap], check=True, stdout=subprocess.DEVNULL)
subprocess.run(["swapon", swap], check=True)
inside = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
group.add_pid(inside.pid)
keeper.hold(Frozen(group.unified_dir / "cgroup.freeze"))
(group.unified_dir / "cgroup.freeze").write_text("1")
outside = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
keeper.hold(Stopped(outside.pid, start_time_ticks(Path("/proc"), outside.pid)))
outside.send_signal(19)
print(keeper.pid, inside.pid, outside.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.live
def test_killed_owner_leaves_no_group_process_or_swap_file(tmp_path: Path) -> None:
    name = f"{own_name()}/keeper"
    swap = tmp_path / "1-ab.stallward-swap"
    with subprocess.Popen(
        [sys.executable, "-c", LIVE_OWNER, name, str(swap)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        keeper_pid, inside, outside = (int(word) for word in owner.stdout.readline().split())
        assert str(swap) in Path("/proc/swaps").read_text()
        deadline = time.monotonic() + 5.0  # a signal is delivered when its target next runs
        while b") T" not in Path(f"/proc/{outside}/stat").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        owner.kill()
    try:
        wait_gone(keeper_pid)
        wait_gone(inside)
        assert b") T" not in Path(f"/proc/{outside}/stat").read_bytes()
        assert not require(Paths()).group(name).dirs[0].parent.exists()
        assert str(swap) not in Path("/proc/swaps").read_text()
        assert not swap.exists()
    finally:
        os.kill(outside, signal.SIGKILL)


def test_entries_are_hashable_values() -> None:
    entries = {OwnedGroup("a"), OwnedGroup("a"), Stopped(1, 2), SwapFile(Path("/s"))}
    assert len(entries) == 3
