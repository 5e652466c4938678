"""A journal is undone only where a lever, or a sandbox, can have noted what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.actuator.guardian.held_journal import HeldJournal
from stallward.actuator.guardian.restore_command import RestoreOptions, main
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import (
    FileValue,
    Frozen,
    GroupThreads,
    JournalEntry,
    KeyedValue,
    Noted,
    OomScore,
    OwnedFolder,
    OwnedGroup,
    Stopped,
    SwapFile,
    ThreadValue,
    ZramDevice,
    to_line,
)
from stallward.actuator.journal.own_entries import Owner, refusal
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.lever_set import LeverSet

CGROUP, PROC = Path("/sys/fs/cgroup"), Path("/proc")
FOREIGN: tuple[JournalEntry, ...] = (
    FileValue(Path("/etc/passwd"), "root::0:0::/:/bin/sh"),
    FileValue(CGROUP / "a/../../../../etc/memory.high", "1"),
    FileValue(CGROUP / "a/cgroup.procs", "1"),
    FileValue(CGROUP / "a/cgroup.kill", "1"),
    FileValue(PROC / "sys/kernel/core_pattern", "|/tmp/x"),
    FileValue(PROC / "sys/vm/drop_caches", "3"),
    FileValue(PROC / "sys/vm/../kernel/swappiness", "1"),
    FileValue(Path("/tmp/memory.high"), "1"),
    FileValue(Path("/sys/fs/cgroup2/memory.high"), "1"),
    KeyedValue(Path("/etc/cron.d/io.max"), "* * * * * root", "sh"),
    KeyedValue(CGROUP / "a/cgroup.subtree_control", "-memory", ""),
    Frozen(Path("/tmp/cgroup.freeze")),
    Frozen(CGROUP / "a/cgroup.kill"),
    Noted(FileValue(Path("/etc/shadow"), ""), 3),
    Stopped(1, 1),
    OomScore(1, 1, -1000),
    OomScore(4711, 1, 4000),
    ThreadValue("nice", 1, 1, "0"),
    ThreadValue("nice", 4711, 1, "-99"),
    ThreadValue("cpus", 4711, 1, "0-3"),
    ThreadValue("uid", 4711, 1, "0"),
    GroupThreads("nice", Path("/tmp"), "5", "0"),
    GroupThreads("nice", CGROUP / "a", "5", "nonsense"),
)
OWN_THINGS: tuple[JournalEntry, ...] = (
    OwnedGroup("stallward/1"),
    OwnedFolder(Path("/tmp/stallward-1")),
    SwapFile(Path("/var/cache/1.stallward-swap")),
    ZramDevice(Path("/dev/zram3")),
    FileValue(Path("/sys/module/zswap/parameters/enabled"), "N"),
)
OURS: tuple[JournalEntry, ...] = (
    FileValue(CGROUP / "memory/a b/memory.limit_in_bytes", "9223372036854771712"),
    FileValue(CGROUP / r"a\x2db.service/memory.high", "max"),
    FileValue(PROC / "sys/vm/dirty_bytes", "0"),
    KeyedValue(CGROUP / "a/io.max", "8:0", "rbps=max"),
    Frozen(CGROUP / "freezer/a/freezer.state"),
    Stopped(4711, 1),
    OomScore(4711, 1, -1000),
    ThreadValue("nice", 4711, 1, "-20"),
    ThreadValue("cpus", 4711, 1, "0,2,127"),
    GroupThreads("cpus", CGROUP / "a", "0", "0,1"),
    Noted(FileValue(PROC / "sys/vm/swappiness", "60"), 3),
)


@pytest.mark.parametrize("entry", FOREIGN, ids=str)
@pytest.mark.parametrize("owner", Owner)
def test_what_no_lever_can_have_noted_is_refused_by_name(
    entry: JournalEntry, owner: Owner
) -> None:
    inner = entry.entry if isinstance(entry, Noted) else entry
    target = getattr(inner, "path", getattr(inner, "folder", ""))
    why = refusal(entry, Paths(), owner)
    assert str(target) in why
    assert "left alone" in why


@pytest.mark.parametrize("entry", OURS, ids=str)
@pytest.mark.parametrize("owner", Owner)
def test_what_levers_note_is_undone(entry: JournalEntry, owner: Owner) -> None:
    assert refusal(entry, Paths(), owner) == ""


@pytest.mark.parametrize("entry", OWN_THINGS, ids=str)
def test_only_a_sandbox_has_things_of_its_own(entry: JournalEntry) -> None:
    assert refusal(entry, Paths(), Owner.SANDBOX) == ""
    assert refusal(entry, Paths(), Owner.DAEMON)


def test_a_sandbox_deletes_no_file_but_its_swap() -> None:
    assert refusal(SwapFile(Path("/etc/passwd")), Paths(), Owner.SANDBOX)


@pytest.mark.parametrize("path", ["/dev/sda", "/dev/zram", "/dev/zram1/../sda", "/tmp/zram1"])
def test_a_sandbox_removes_no_device_but_zram(path: str) -> None:
    assert refusal(ZramDevice(Path(path)), Paths(), Owner.SANDBOX)


@pytest.mark.parametrize("path", ["zswap/parameters/../../x", "kvm/parameters/enabled"])
def test_a_sandbox_writes_no_parameters_but_those_of_zswap(path: str) -> None:
    assert refusal(FileValue(Path("/sys/module", path), "1"), Paths(), Owner.SANDBOX)


def test_roots_that_the_configuration_writes_with_dots_are_the_same() -> None:
    paths = Paths(cgroup=Path("/mnt/../cg"))
    assert refusal(Frozen(paths.cgroup / "a/cgroup.freeze"), paths, Owner.DAEMON) == ""


def node(folder: Path) -> Paths:
    paths = Paths(proc=folder / "proc", cgroup=folder / "cgroup", sys=folder / "sys")
    boot = paths.proc / "sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("one")
    return paths


def spoilt(folder: Path, paths: Paths) -> tuple[Path, Path, Path]:
    """A journal with a foreign entry between two of ours; returns it and what would be written."""
    victim, limit = folder / "victim", paths.cgroup / "a/memory.high"
    limit.parent.mkdir(parents=True)
    for path in (victim, limit):
        path.write_text("90")
    journal = Journal(folder / "journal", paths)
    foreign = FileValue(victim, "60")
    journal.append((Stopped(4_000_000, 1), foreign, FileValue(limit, "60")))
    journal.close()
    return journal.path, victim, limit


def test_the_rest_of_a_spoilt_journal_is_undone(tmp_path: Path) -> None:
    paths = node(tmp_path)
    journal, victim, limit = spoilt(tmp_path, paths)
    (problem,) = restore(Journal(journal, paths).load(), paths)
    assert (
        str(problem) == f"The journal names {str(victim)!r}, which no daemon changes; left alone."
    )
    assert (victim.read_text(), limit.read_text()) == ("90", "60")


def test_the_restore_command_says_what_it_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = node(tmp_path)
    journal, victim, limit = spoilt(tmp_path, paths)
    assert main(RestoreOptions(config=tmp_path, journal=journal, paths=paths)) == 1
    printed = capsys.readouterr()
    assert f"stallward restore: The journal names {str(victim)!r}" in printed.err
    assert f"{limit} = 60" in printed.out
    assert f"{victim} = 60" not in printed.out, "what was refused is not called undone"
    assert (victim.read_text(), limit.read_text()) == ("90", "60")
    assert journal.exists()


def test_a_guardian_does_not_hold_what_it_would_not_undo(tmp_path: Path) -> None:
    paths = node(tmp_path)
    held = HeldJournal(Journal(tmp_path / "journal", paths), paths)
    answers: list[bytes] = []
    held.take(to_line(FileValue(tmp_path / "victim", "60")).encode(), answers.append)
    held.close()
    assert answers[0].startswith(b"!The journal names")
    assert held.entries == ()


@pytest.mark.parametrize("kind", ["v2", "hybrid"])
def test_every_original_of_every_lever_is_one_that_is_undone(tmp_path: Path, kind: str) -> None:
    paths = node(tmp_path)
    v1 = [paths.cgroup / name for name in ("memory", "cpu", "blkio", "freezer")]
    hierarchy = Hierarchy(kind="v2", memory_root=paths.cgroup, unified_root=paths.cgroup)
    if kind == "hybrid":
        hierarchy = Hierarchy(
            kind="hybrid",
            memory_root=v1[0],
            unified_root=paths.cgroup / "unified",
            controllers_v1=tuple((root.name, root) for root in v1[1:]),
        )
    fill(paths, hierarchy)
    zone = hierarchy.group("zone")
    levers = LeverSet(
        paths, hierarchy, zone, (zone.child("app"),), (zone.child("bg"),), 1 << 30, lambda *_: None
    )
    noted = levers.originals()
    assert len(noted) > 10
    assert [refusal(entry, paths, Owner.DAEMON) for entry in noted] == [""] * len(noted)


def fill(paths: Paths, hierarchy: Hierarchy) -> None:
    """Make the files of all groups and of the node."""
    names = "memory.high memory.max memory.low memory.min memory.swap.max cpu.weight cpu.max "
    names += "cpu.shares cpu.cfs_quota_us cpu.cfs_period_us io.weight io.bfq.weight io.max "
    names += "cgroup.freeze blkio.bfq.weight blkio.throttle.read_bps_device "
    names += "blkio.throttle.write_bps_device "
    names += "memory.limit_in_bytes memory.swappiness memory.reclaim"
    roots = (*hierarchy.roots, *hierarchy.further_roots)
    for root in roots:
        for group in ("zone", "zone/app", "zone/bg"):
            folder = root / group
            folder.mkdir(parents=True, exist_ok=True)
            for name in names.split():
                (folder / name).write_text("100")
    vm = paths.proc / "sys/vm"
    vm.mkdir(parents=True)
    for name in ("swappiness", "overcommit_memory", "dirty_ratio", "dirty_bytes"):
        (vm / name).write_text("60")
    for name in ("dirty_background_ratio", "dirty_background_bytes"):
        (vm / name).write_text("60")
    disk = paths.sys / "block/sda"
    (disk / "device").mkdir(parents=True)
    (disk / "dev").write_text("8:0")
    (disk / "queue").mkdir()
    (disk / "queue/scheduler").write_text("[bfq] none")
