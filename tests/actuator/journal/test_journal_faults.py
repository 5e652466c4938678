"""A journal that is torn, damaged, taken away, full, read-only, or not to be trusted."""

from __future__ import annotations

import os
import queue
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallward.actuator.errors import JournalError
from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import (
    FileValue,
    Frozen,
    JournalEntry,
    OomScore,
    Stopped,
    seal,
    to_line,
)
from stallward.actuator.kernel.paths import Paths

HELD: tuple[JournalEntry, ...] = (
    FileValue(Path("/proc/sys/vm/swappiness"), "60"),
    Frozen(Path("/sys/fs/cgroup/a b/cgroup.freeze")),
    Stopped(12, 34),
    OomScore(12, 34, -1000),
    FileValue(Path("/x"), "ä\n\u2028"),
)


def paths_in(folder: Path, boot: str = "boot-1") -> Paths:
    paths = Paths(proc=folder / "proc", cgroup=folder)
    (paths.proc / "sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (paths.proc / "sys/kernel/random/boot_id").write_text(boot)
    return paths


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Journal, bytes]:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder / "journal", paths_in(folder))
    for entry in HELD:
        journal.append((entry,))
    journal.close()
    return journal, journal.path.read_bytes()


@settings(deadline=None, max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_a_journal_cut_anywhere_keeps_every_whole_line(
    written: tuple[Journal, bytes], data: st.DataObject
) -> None:
    journal, content = written
    cut = data.draw(st.integers(0, len(content)))
    journal.path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n") - 1  # less the line that names the boot
    loaded = journal.load()
    # The last line counts without its newline too, if nothing else of it is missing.
    assert loaded in {HELD[: max(whole, 0)], HELD[: whole + 1]}
    assert journal.unreadable == ()
    again = Journal(journal.path, paths_in(journal.path.parent))
    again.append((Frozen(Path("/after")),))
    again.close()
    assert again.load() == (*loaded, Frozen(Path("/after")))


@settings(deadline=None, max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_a_flipped_byte_costs_at_most_the_lines_it_touches(
    written: tuple[Journal, bytes], data: st.DataObject
) -> None:
    journal, content = written
    at = data.draw(st.integers(0, len(content) - 1))
    bits = data.draw(st.integers(1, 255))
    changed = bytearray(content)
    changed[at] ^= bits
    journal.path.write_bytes(bytes(changed))
    loaded = journal.load()
    line = content[:at].count(b"\n") - 1
    touched = {line, line + 1} if content[at : at + 1] == b"\n" else {line}
    expected = tuple(entry for number, entry in enumerate(HELD) if number not in touched)
    assert set(loaded) <= set(HELD), "nothing is invented"
    assert set(expected) <= set(loaded)


def test_lines_of_another_version_are_kept_and_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    knob = tmp_path / "memory.high"
    knob.write_text("90")
    newer = seal({"op": "hold", "kind": "quantum", "path": "/q"})
    lines = (to_line(FileValue(knob, "60")), newer, "{damaged}", '{"torn": ')
    path = tmp_path / "journal"
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    held = HeldJournal(Journal(path, paths_in(tmp_path)), paths_in(tmp_path))
    assert held.recover() == (FileValue(knob, "60"),)
    held.close()
    assert knob.read_text() == "60"
    assert not path.exists()
    assert (tmp_path / "journal.unreadable").read_text().splitlines() == [newer, "{damaged}"]
    assert "2 lines of" in capfd.readouterr().err


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_journal_that_others_may_write_is_not_trusted(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "journal"
    path.write_text(to_line(FileValue(tmp_path / "memory.high", "60")))
    path.chmod(mode)
    with pytest.raises(JournalError, match="others may have written it"):
        Journal(path, paths_in(tmp_path)).load()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_journal_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text("")
    os.chown(path, 65534, 65534)
    with pytest.raises(JournalError, match="its owner is 65534"):
        Journal(path, paths_in(tmp_path)).load()


@pytest.mark.parametrize("kind", ["fifo", "link", "folder"])
def test_a_journal_must_be_a_regular_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "journal"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        path.mkdir()
    journal = Journal(path, paths_in(tmp_path))
    with pytest.raises(JournalError, match="Cannot read"):
        journal.load()
    if kind != "fifo":
        with pytest.raises(JournalError, match="Cannot write"):
            journal.append((HELD[0],))


def test_a_journal_that_is_taken_away_is_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    journal = Journal(folder / "journal", paths_in(tmp_path))
    journal.append(HELD[:2])
    journal.path.unlink()
    folder.rmdir()
    journal.append(HELD[2:3])
    assert journal.load() == HELD[:3]
    journal.path.rename(folder / "old")
    journal.append((HELD[2],), "release")
    assert journal.load() == HELD[:2]
    journal.close()
    journal.path.unlink()
    journal.append(HELD[3:4])
    assert journal.load() == (*HELD[:2], HELD[3])


def test_a_claimed_journal_that_is_taken_away_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.touch(0o600)
    journal = Journal(path, paths_in(tmp_path), claimed=True)
    journal.append(HELD[:1])
    path.unlink()
    with pytest.raises(JournalError, match="taken away"):
        journal.append(HELD[1:2])
    journal.close()


def test_an_entry_held_twice_is_released_by_one_release(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", paths_in(tmp_path))
    journal.append(HELD[:1])
    journal.append(HELD[:1])
    journal.append(HELD[:1], "release")
    assert journal.load() == ()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            return filler


def remount(disk: Path, how: str) -> None:
    """Make the mount read-only or writable again, even while files on it are open."""
    subprocess.run(["mount", "-o", f"remount,bind,{how}", str(disk)], check=True)


def asked(held: HeldJournal, entry: JournalEntry, operation: str = "hold") -> bytes:
    """The guardian's answer to one message of the loop."""
    answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    line = to_line(entry, "release" if operation == "release" else "hold")
    held.take(line.encode(), answers.put)
    return answers.get(timeout=30.0)


def test_on_a_full_disk_no_new_entry_is_held_and_older_ones_stay(
    small_disk: Path, tmp_path: Path
) -> None:
    paths = paths_in(tmp_path)
    journal = Journal(small_disk / "journal", paths)
    held = HeldJournal(journal, paths)
    assert asked(held, HELD[2]) == b"ok"
    filler = fill(small_disk)
    many = [FileValue(tmp_path / ("y" * 200) / "memory.high", str(number)) for number in range(40)]
    answers = [asked(held, entry) for entry in many]
    refused = [e for e, answer in zip(many, answers, strict=True) if answer != b"ok"]
    assert refused, "the last page is full too"
    assert b"No space left" in answers[-1]
    assert not set(refused) & set(held.entries), "what is not on disk must not be changed"
    assert set(journal.load()) == set(held.entries)
    assert journal.torn == 0
    assert journal.unreadable == ()
    filler.unlink()
    assert asked(held, HELD[3]) == b"ok"
    assert held.problem == ""
    assert set(Journal(journal.path, paths).load()) == set(held.entries)
    held.close()


def test_held_entries_are_restored_while_the_disk_is_full(
    small_disk: Path, tmp_path: Path
) -> None:
    paths, knob = paths_in(tmp_path), tmp_path / "memory.high"
    held = HeldJournal(Journal(small_disk / "journal", paths), paths)
    assert asked(held, FileValue(knob, "60")) == b"ok"
    fill(small_disk)
    knob.write_text("90")
    assert held.restore() == ()
    assert knob.read_text() == "60"
    held.close()
    assert Journal(small_disk / "journal", paths).load() == ()


def test_a_journal_on_a_read_only_disk_is_undone(small_disk: Path, tmp_path: Path) -> None:
    paths, knob = paths_in(tmp_path), tmp_path / "memory.high"
    dead = Journal(small_disk / "journal", paths)
    dead.append((FileValue(knob, "60"),))
    dead.close()
    knob.write_text("90")
    remount(small_disk, "ro")
    restarted = HeldJournal(Journal(small_disk / "journal", paths), paths)
    assert restarted.recover() == (FileValue(knob, "60"),)
    assert knob.read_text() == "60"
    assert b"Read-only file system" in asked(restarted, HELD[2])
    assert "Read-only file system" in restarted.problem
    remount(small_disk, "rw")
    assert asked(restarted, HELD[2]) == b"ok"
    assert Journal(small_disk / "journal", paths).load() == (HELD[2],), "the old one is undone"
    restarted.close()


def test_only_if_asked_to_is_memory_enough(small_disk: Path, tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    remount(small_disk, "ro")
    held = HeldJournal(Journal(small_disk / "journal", paths), paths, memory_only=True)
    assert asked(held, HELD[2]) == b"ok"
    assert held.entries == (HELD[2],)
    assert "Read-only file system" in held.problem
    held.close()
