"""Process trees: who is in one, with real processes and with a made-up /proc."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stallward.actuator.errors import KernelFileError, NodeError
from stallward.actuator.kernel import process_roots
from stallward.actuator.kernel.process_roots import RootFinder, _ref, user_id
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.kernel.process_table import ProcessTable, parse_seen, start_time_ticks
from stallward.actuator.kernel.process_trees import Forest, ProcessTree

PROC = Path("/proc")

# Forks a child that forks another; each prints its pid and waits.
FAMILY = """
import os, signal
for _ in range(2):
    print(os.getpid(), flush=True)
    if os.fork():
        break
else:
    print(os.getpid(), flush=True)
signal.pause()
"""
# The classical daemon: fork, setsid, fork; the daemon prints its pid and waits for its parent's
# end, so that it is an orphan when it says so.
DOUBLE_FORK = """
import os, signal, sys, time
time.sleep(float(sys.argv[1]))
if os.fork() == 0:
    if sys.argv[2] == "session":
        os.setsid()
    else:
        os.setpgid(0, 0)
    time.sleep(float(sys.argv[1]))
    middle = os.getpid()
    if os.fork() == 0:
        while os.getppid() == middle:
            time.sleep(0.005)
        print(os.getpid(), flush=True)
        signal.pause()
    os._exit(0)
os.wait()
signal.pause()
"""


class Programs:
    """Starts programs and ends them with everything they have started."""

    def __init__(self) -> None:
        self.pids: set[int] = set()
        self._started: list[subprocess.Popen[str]] = []

    def start(self, source: str, *arguments: str, pids: int = 0) -> tuple[int, ...]:
        """Run a source; returns its pid and those that it prints, which are as many as given."""
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", source, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        assert process.stdout is not None
        printed = [int(process.stdout.readline()) for _ in range(pids)]
        self.pids |= {process.pid, *printed}
        return (process.pid, *printed)

    def read_pid(self) -> int:
        """The next pid that the last program prints."""
        stdout = self._started[-1].stdout
        assert stdout is not None
        pid = int(stdout.readline())
        self.pids.add(pid)
        return pid

    def end(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def programs() -> Iterator[Programs]:
    started = Programs()
    try:
        yield started
    finally:
        started.end()


def forest_of(*wanted: ProcessesConfig | None, **rest: object) -> Forest:
    names = [f"tree{i}" for i in range(len(wanted))]
    return Forest(PROC, wanted, names, **rest)  # type: ignore[arg-type]


def tree(forest: Forest, place: int) -> ProcessTree:
    tree = forest.trees[place]
    assert tree is not None
    return tree


def wait_for(condition: Callable[[], object], timeout_s: float = 5.0) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


def refreshed(forest: Forest, place: int) -> set[int]:
    forest.refresh()
    return set(tree(forest, place).pids())


def test_a_tree_is_its_root_with_all_descendants(programs: Programs) -> None:
    first, *others = programs.start(FAMILY, pids=3)
    forest = forest_of(None, ProcessesConfig(pids=(first,)))
    assert set(tree(forest, 1).pids()) == {first, *others}
    assert forest.trees[0] is None
    os.kill(others[-1], signal.SIGKILL)
    assert wait_for(lambda: others[-1] not in refreshed(forest, 1))
    os.kill(first, signal.SIGKILL)
    assert wait_for(lambda: refreshed(forest, 1) == {others[1]}), "an orphan stays a member"


@pytest.mark.parametrize("by", ["session", "group"])
def test_a_double_fork_does_not_lead_out_of_a_tree(programs: Programs, by: str) -> None:
    (root,) = programs.start(DOUBLE_FORK, "0.3", by)
    forest = forest_of(None, ProcessesConfig(pids=(root,)))
    assert wait_for(lambda: len(refreshed(forest, 1)) == 2), "the one in the middle is seen"
    daemon = programs.read_pid()
    # Nobody has looked since: its parent is gone, only its session or group tells.
    assert PROC.joinpath(str(daemon)).exists()
    forest.refresh()
    assert daemon in tree(forest, 1).pids()


def test_a_pid_file_is_followed(programs: Programs, tmp_path: Path) -> None:
    path = tmp_path / "app.pid"
    forest = forest_of(None, ProcessesConfig(pidfile=path))
    assert tree(forest, 1).pids() == ()
    first, *_ = programs.start(FAMILY, pids=3)
    path.write_text(f"{first}\n")
    assert wait_for(lambda: len(refreshed(forest, 1)) == 3)
    second, *_ = programs.start(FAMILY, pids=3)
    path.write_text(f"{second}")
    assert wait_for(lambda: len(refreshed(forest, 1)) == 6), "and who was seen stays"
    forest.close()


def test_a_command_is_found_also_when_it_starts_later(programs: Programs) -> None:
    mark = f"marked-{os.getpid()}"
    first, *_ = programs.start(FAMILY, mark, pids=3)
    me = pwd.getpwuid(os.geteuid()).pw_name
    forest = forest_of(
        None,
        ProcessesConfig(command=f"python.* {mark}", user=me),
        ProcessesConfig(command=f"python.* {mark}", user=str(os.geteuid() + 1)),
    )
    assert len(tree(forest, 1).pids()) == 3
    source = f"import os, sys; os.execl(sys.executable, 'python', '-c', {FAMILY!r}, '{mark}')"
    second, *_ = programs.start(source, pids=3)
    assert wait_for(lambda: len(refreshed(forest, 1)) == 6)
    assert {first, second} <= set(tree(forest, 1).pids())
    assert tree(forest, 2).pids() == (), "another user's"
    forest.close()


def test_the_protected_application_is_in_no_other_tree(programs: Programs) -> None:
    outer, middle, inner = programs.start(FAMILY, pids=3)[1:]
    app = ProcessesConfig(pids=(middle,))
    forest = forest_of(app, ProcessesConfig(pids=(outer,)))
    assert set(tree(forest, 0).pids()) == {middle, inner}
    assert set(tree(forest, 1).pids()) == {outer}
    within = forest_of(ProcessesConfig(pids=(outer,)), app)
    assert tree(within, 1).pids() == (), "also when it is what the other descends from"


def test_a_process_is_in_the_tree_of_the_nearest_root(programs: Programs) -> None:
    outer, middle, inner = programs.start(FAMILY, pids=3)[1:]
    for one, other in ((0, 1), (1, 0)):
        wanted = [ProcessesConfig(pids=(outer,)), ProcessesConfig(pids=(middle,))]
        forest = forest_of(None, wanted[one], wanted[other])
        assert set(tree(forest, 1 + one).pids()) == {outer}
        assert set(tree(forest, 1 + other).pids()) == {middle, inner}


def test_exempt_processes_and_this_daemon_are_in_no_tree(programs: Programs) -> None:
    outer, middle, inner = programs.start(FAMILY, pids=3)[1:]
    forest = forest_of(
        None, ProcessesConfig(pids=(outer, 1, 2)), exempt=lambda: frozenset({inner})
    )
    assert set(tree(forest, 1).pids()) == {outer, middle}
    mine = forest_of(None, ProcessesConfig(pids=(os.getpid(),)))
    assert tree(mine, 1).pids() == ()
    parent = forest_of(None, ProcessesConfig(pids=(os.getppid(),)))
    assert tree(parent, 1).pids() == ()
    if os.getppid() != 1:
        assert "a parent of this daemon" in parent.faults[0]


def test_pids_of_a_time_after_the_daemons_start_are_strangers(programs: Programs) -> None:
    (root,) = programs.start("import signal; signal.pause()")
    ticks = start_time_ticks(PROC, root)
    assert ticks is not None
    wanted = ProcessesConfig(pids=(root,))
    assert tree(forest_of(None, wanted, before_ticks=ticks), 1).pids() == (root,)
    assert tree(forest_of(None, wanted, before_ticks=ticks - 1), 1).pids() == ()


def test_an_unknown_user_is_refused() -> None:
    assert user_id("0") == 0
    with pytest.raises(NodeError, match="no user 'nobody-at-all'"):
        RootFinder(PROC, [ProcessesConfig(command="x", user="nobody-at-all")])


def make_process(
    proc: Path, pid: int, start: int, *, parent: int = 1, session: int = 1, state: str = "S"
) -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    rest = f"{parent} {session} {session} 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0"
    (folder / "stat").write_text(f"{pid} (a ) (b) {state} {rest} 0 0\n")
    (folder / "cmdline").write_bytes(b"program\0")


def remove_process(proc: Path, pid: int) -> None:
    for file in (proc / str(pid)).iterdir():
        file.unlink()
    (proc / str(pid)).rmdir()


def test_a_pid_that_is_used_again_is_a_stranger(tmp_path: Path) -> None:
    for pid, start, parent in ((1, 1, 0), (100, 50, 1), (101, 60, 100)):
        make_process(tmp_path, pid, start, parent=parent)
    forest = Forest(tmp_path, [None, ProcessesConfig(pids=(100,))], ["app", "bg"])
    assert tree(forest, 1).pids() == (100, 101)
    make_process(tmp_path, 101, 999)  # within one look: the pid was never missing
    forest.refresh()
    assert tree(forest, 1).pids() == (100,)
    make_process(tmp_path, 101, 1200, parent=100)
    forest.refresh()
    assert tree(forest, 1).pids() == (100, 101)


@pytest.mark.parametrize(("parent", "session"), [(101, 1), (1, 101)])
def test_kin_of_a_process_with_a_members_pid_is_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parent: int, session: int
) -> None:
    """Parent, session and group are pids, and a pid says nothing without the start time."""
    for pid, start, father in ((1, 1, 0), (100, 50, 1), (101, 60, 100)):
        make_process(tmp_path, pid, start, parent=father)
    forest = Forest(tmp_path, [None, ProcessesConfig(pids=(100,))], ["app", "bg"])
    monkeypatch.setattr(ProcessTable, "_recheck", lambda _table: [])  # it is not its turn
    make_process(tmp_path, 101, 999)
    make_process(tmp_path, 102, 1000, parent=parent, session=session)
    forest.refresh()
    assert tree(forest, 1).pids() == (100,)


def test_children_of_a_process_with_a_descendants_pid_stay_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, start, father in ((1, 1, 0), (200, 50, 1), (201, 60, 200)):
        make_process(tmp_path, pid, start, parent=father)
    path = tmp_path / "x.pid"
    forest = Forest(tmp_path, [None, ProcessesConfig(pidfile=path)], ["app", "bg"])
    forest.close()
    monkeypatch.setattr(ProcessTable, "_recheck", lambda _table: [])
    make_process(tmp_path, 202, 1000, parent=201)
    forest.refresh()
    make_process(tmp_path, 201, 999)
    path.write_text("200\n")
    forest._finder.look()
    forest.refresh()
    assert tree(forest, 1).pids() == (200,)


def found_by_command(proc: Path, tree: int, user: str | None = None) -> tuple[list[int], str]:
    """The pids of a tree that is given by command line, and the faults."""
    wanted: list[ProcessesConfig | None] = [None, None]
    wanted[tree] = ProcessesConfig(command="^app ", user=user)
    finder = RootFinder(proc, wanted)
    finder.offer(ref for pid in range(100, 110) if (ref := _ref(proc, pid)) is not None)
    finder.look()
    return [root.ref.pid for root in finder.found()], " ".join(finder.faults)


def make_named(proc: Path, pid: int, users: str) -> None:
    make_process(proc, pid, pid)
    (proc / str(pid) / "cmdline").write_bytes(b"app\0serve\0")
    (proc / str(pid) / "status").write_text(f"Name:\tapp\nUid:\t{users}\n")


ROOT_RUNS, SETUID = "0 0 0 0", "1001 0 0 0"
USER, OTHER_USER = "1000 1000 1000 1000", "1001 1001 1001 1001"


@pytest.mark.parametrize(
    ("running", "protected", "fault"),
    [
        ([USER], [100], ""),
        ([USER, USER], [100, 101], ""),
        ([USER, OTHER_USER, USER], [100, 102], "process 101 of user 1001"),
        ([ROOT_RUNS, USER], [100, 101], ""),
        ([USER, ROOT_RUNS], [100, 101], ""),
        ([USER, SETUID], [100], "process 101 of user 1001"),
        (["", USER], [101], ""),
    ],
)
def test_a_name_alone_does_not_make_a_program_the_protected_application(
    tmp_path: Path, running: list[str], protected: list[int], fault: str
) -> None:
    """Any user can name a program so; the first is taken for the application's user."""
    for pid, users in enumerate(running, 100):
        make_named(tmp_path, pid, users)
    pids, faults = found_by_command(tmp_path, 0)
    assert pids == protected
    assert fault in faults
    assert bool(faults) == bool(fault)
    assert len(found_by_command(tmp_path, 1)[0]) == len(running), "background work is whose it is"


def test_a_command_line_that_was_made_for_a_pattern_takes_no_time(tmp_path: Path) -> None:
    """Python's own engine takes seconds for each of these, and holds its lock meanwhile."""
    for pid in range(100, 105):
        make_process(tmp_path, pid, pid)
        (tmp_path / str(pid) / "cmdline").write_bytes(b"java\0-jar\0spark\0" * 5000)
    pattern = r"java .*-jar .*spark.*\.jar"
    finder = RootFinder(tmp_path, [None, ProcessesConfig(command=pattern)])
    finder.offer(ref for pid in range(100, 105) if (ref := _ref(tmp_path, pid)) is not None)
    begin_s = time.process_time()
    finder.look()
    assert time.process_time() - begin_s < 0.25
    assert finder.found() == []
    (tmp_path / "103" / "cmdline").write_bytes(b"java\0-jar\0spark-3.jar\0")
    finder.look()
    assert [root.ref.pid for root in finder.found()] == [103]


def test_one_pass_looks_at_a_bounded_number_of_processes_and_the_next_ones_at_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_roots, "YOUNG_PER_PASS", 3)
    for pid in range(100, 108):
        make_named(tmp_path, pid, ROOT_RUNS)
    finder = RootFinder(tmp_path, [ProcessesConfig(command="^app ")])
    finder.offer(ref for pid in range(100, 108) if (ref := _ref(tmp_path, pid)) is not None)
    found = []
    for _ in range(3):
        finder.look()
        found.append([root.ref.pid for root in finder.found()])
    assert found == [[100, 101, 102], [103, 104, 105], [106, 107]]


def test_a_daemon_starts_though_a_command_line_cannot_be_read_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_roots, "FIRST_PASS_S", 0.05)
    make_process(tmp_path, 1, 1)
    make_named(tmp_path, 100, ROOT_RUNS)
    (tmp_path / "100" / "cmdline").unlink()
    os.mkfifo(tmp_path / "100" / "cmdline")  # opening it waits for a writer
    forest = Forest(tmp_path, [None, ProcessesConfig(command="^app ")], ["app", "bg"])
    assert tree(forest, 1).pids() == ()
    forest.close()
    os.close(os.open(tmp_path / "100" / "cmdline", os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.parametrize(
    ("user", "protected"), [("1000", [101, 104]), ("1001", [102, 103]), ("0", [100])]
)
def test_a_user_is_told_by_all_that_a_process_runs_as(
    tmp_path: Path, user: str, protected: list[int]
) -> None:
    """The owner of /proc/PID is root for a process that has made itself unreadable."""
    for pid, users in enumerate([ROOT_RUNS, USER, OTHER_USER, SETUID, "0 1000 0 1000"], 100):
        make_named(tmp_path, pid, users)
    assert found_by_command(tmp_path, 0, user) == (protected, "")


def test_the_pid_of_an_ended_leader_names_its_session_only_while_that_lives(
    tmp_path: Path,
) -> None:
    for pid, start, parent, session in ((1, 1, 0, 0), (100, 50, 1, 1), (101, 60, 100, 101)):
        make_process(tmp_path, pid, start, parent=parent, session=session)
    forest = Forest(tmp_path, [None, ProcessesConfig(pids=(100,))], ["app", "bg"])
    remove_process(tmp_path, 101)
    make_process(tmp_path, 102, 70, parent=1, session=101)
    forest.refresh()
    assert tree(forest, 1).pids() == (100, 102), "forked by the leader right before its end"
    make_process(tmp_path, 103, 80, parent=1, session=101)
    forest.refresh()
    assert 103 in tree(forest, 1).pids(), "the session lives on"
    for pid in (102, 103):
        remove_process(tmp_path, pid)
    forest.refresh()
    make_process(tmp_path, 101, 900, parent=1, session=101)  # the kernel uses the pid again
    make_process(tmp_path, 105, 910, parent=1, session=101)
    forest.refresh()
    assert tree(forest, 1).pids() == (100,)


def test_many_new_processes_are_taken_in_over_several_looks(tmp_path: Path) -> None:
    make_process(tmp_path, 100, 50)
    forest = Forest(tmp_path, [None, ProcessesConfig(pids=(100,))], ["app", "bg"])
    for pid in range(200, 500):
        make_process(tmp_path, pid, pid, parent=pid - 1 if pid > 200 else 100)
    forest.refresh()
    # How many depends on the order of the folder: a child is taken in after its parent.
    assert len(tree(forest, 1).pids()) < 300
    forest.refresh()
    assert len(tree(forest, 1).pids()) == 301


@pytest.mark.parametrize(
    "content",
    [b"", b"1 (x) S", b"1 (x) S a 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0 1 0 7 0 0 0", b"\xff" * 300],
)
def test_a_malformed_stat_is_an_error_with_its_path(content: bytes) -> None:
    with pytest.raises(KernelFileError, match=re.escape("/proc/1/stat")):
        parse_seen(content, Path("/proc/1/stat"), 1)


def test_an_unreadable_process_does_not_hide_the_others(tmp_path: Path) -> None:
    make_process(tmp_path, 100, 50)
    make_process(tmp_path, 101, 60, parent=100)
    (tmp_path / "102").mkdir()
    (tmp_path / "102" / "stat").write_bytes(b"garbage")
    forest = Forest(tmp_path, [None, ProcessesConfig(pids=(100, 102))], ["app", "bg"])
    assert tree(forest, 1).pids() == (100, 101)
    assert forest.faults == ()


def test_a_proc_that_cannot_be_listed_is_a_fault(tmp_path: Path) -> None:
    forest = Forest(tmp_path / "no", [None, ProcessesConfig(pids=(100,))], ["app", "bg"])
    assert "cannot list processes" in forest.faults[0]
