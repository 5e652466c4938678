"""What undoes a change is open before the change is made: no descriptor is left, and it works."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import (
    FileValue,
    Frozen,
    JournalEntry,
    KeyedValue,
    Stopped,
    to_line,
)
from stallward.actuator.journal.kept_files import KeptFiles
from stallward.actuator.journal.restore import Cause, restore
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import start_time_ticks

PROC = Path("/proc")


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open nothing, as one that has reached its limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files() -> int:
    """How many files this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def file(folder: Path, name: str, value: str) -> Path:
    path = folder / name
    path.write_text(value)
    return path


def entries_in(folder: Path) -> tuple[JournalEntry, ...]:
    """A frozen group with two limits, all of them changed."""
    return (
        Frozen(file(folder, "cgroup.freeze", "1")),
        FileValue(file(folder, "memory.high", "1048576"), "max"),
        KeyedValue(file(folder, "io.max", "8:0 rbps=1"), "8:0", "rbps=max"),
    )


def test_what_is_kept_is_undone_without_any_descriptor(tmp_path: Path) -> None:
    entries, kept, paths = entries_in(tmp_path), KeptFiles(), Paths(cgroup=tmp_path)
    for entry in entries:
        kept.keep(entry, PROC)
    with no_descriptor_left():
        left = restore(entries, paths, kept=kept)
    kept.close()
    assert left == ()
    values = [(tmp_path / name).read_text() for name in ("cgroup.freeze", "memory.high", "io.max")]
    assert values == ["0", "max", "8:0 rbps=max"]


def test_what_is_not_kept_fails_for_now_and_is_named(tmp_path: Path) -> None:
    entries = entries_in(tmp_path)
    with no_descriptor_left():
        left = restore(entries, Paths(cgroup=tmp_path))
    assert [(one.entries, one.cause) for one in left] == [((e,), Cause.FAILED) for e in entries]
    assert "Too many open files" in str(left[0])
    assert (tmp_path / "cgroup.freeze").read_text() == "1"
    assert restore(entries, Paths(cgroup=tmp_path)) == ()


@pytest.mark.parametrize("kept", [True, False])
def test_a_stopped_process_is_continued_or_named_never_forgotten(kept: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            ticks = start_time_ticks(PROC, process.pid)
            assert ticks is not None
            entry, files = Stopped(process.pid, ticks), KeptFiles()
            if kept:
                files.keep(entry, PROC)
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            with no_descriptor_left():
                left = restore((entry,), Paths(), kept=files)
            files.close()
            assert [one.cause for one in left] == ([] if kept else [Cause.FAILED])
            assert restore((entry,), Paths()) == ()
            os.waitid(os.P_PID, process.pid, os.WCONTINUED)
        finally:
            process.kill()


def test_a_group_that_was_made_anew_is_undone_by_its_name(tmp_path: Path) -> None:
    entry = Frozen(file(tmp_path, "cgroup.freeze", "1"))
    kept = KeptFiles()
    reader, writer = os.pipe()
    os.close(reader)
    kept.keep(entry, PROC)
    (held,) = kept._kept.values()
    os.dup2(writer, held.fd)  # as the file of a removed group, it cannot be written any more
    os.close(writer)
    previous = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        assert restore((entry,), Paths(cgroup=tmp_path), kept=kept) == ()
    finally:
        signal.signal(signal.SIGPIPE, previous)
        kept.close()
    assert entry.path.read_text() == "0"


def test_one_file_of_several_entries_is_closed_with_the_last(tmp_path: Path) -> None:
    path = file(tmp_path, "io.max", "")
    kept = KeptFiles()
    before = open_files()
    first, second = KeyedValue(path, "8:0", "rbps=max"), KeyedValue(path, "8:16", "rbps=max")
    for entry in (first, second):
        kept.keep(entry, PROC)
    assert open_files() == before + 1
    kept.drop(first)
    assert open_files() == before + 1
    kept.drop(second)
    assert open_files() == before


def test_a_change_that_could_not_be_undone_is_refused(tmp_path: Path) -> None:
    paths = Paths(proc=tmp_path / "proc", cgroup=tmp_path)
    boot = paths.proc / "sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("this-boot\n")
    held = HeldJournal(Journal(tmp_path / "journal", paths), paths)
    answers: list[bytes] = []
    entry = Frozen(file(tmp_path, "cgroup.freeze", "0"))
    with no_descriptor_left():
        held.take(to_line(entry).encode(), answers.append)
    held.close()  # the thread that answers has ended
    assert answers[0].startswith(b"!No descriptor is left to undo")
    assert held.entries == ()


def test_what_is_gone_needs_no_descriptor(tmp_path: Path) -> None:
    kept = KeptFiles()
    kept.keep(Frozen(tmp_path / "gone/cgroup.freeze"), PROC)
    kept.keep(Stopped(4_000_000, 1), PROC)
    assert not kept._kept
