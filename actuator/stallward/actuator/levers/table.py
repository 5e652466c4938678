"""All levers in one table, from which docs/reference/levers.md is made.

``python -m stallward.actuator.levers.table > docs/reference/levers.md``
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

NOT_THERE: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverInfo:
    """One row of the table."""

    name: str
    """The part before the colon of ``LeverResult.lever``, which tick records hold."""
    field: str
    """The field of the desired state."""
    unit: str
    """The unit or the meaning of the value."""
    v2: str
    """The file or action on a node with cgroup v2."""
    hybrid: str
    """The file or action with v1 controllers beside a v2 hierarchy."""
    none: str
    """The file or action without cgroups."""
    blocking: bool
    """Whether a thread makes the write, because it may block."""
    undone: str
    """How the lever is undone."""
    rights: str
    """What the daemon must be allowed to do for it, beside reading."""


_BACK: Final = "the original value is written"
_NOTHING: Final = "nothing to undo"
_GROUP: Final = "writing to the group's files"
_THREADS: Final = "CAP_SYS_NICE"
_FILE_PAGES: Final = (
    "sync_file_range(2), clear_refs or process_madvise(2) on the file pages of a victim"
)
_PAGES: Final = "CAP_SYS_NICE and CAP_SYS_PTRACE"
_NODE: Final = "root, and settings of `vm` that are not mounted read-only"

LEVERS: Final = (
    LeverInfo(
        name="pause",
        field="slots.paused",
        unit="yes or no",
        v2="cgroup.freeze",
        hybrid="cgroup.freeze of the v2 hierarchy, else freezer.state of the v1 freezer",
        none="SIGSTOP by pidfd",
        blocking=False,
        undone="thawed or continued",
        rights=f"{_GROUP}; for process trees CAP_KILL",
    ),
    LeverInfo(
        name="limit",
        field="slots.limit_bytes",
        unit="bytes",
        v2="memory.high",
        hybrid="memory.limit_in_bytes, under oom_kill_disable of memory.oom_control",
        none="process_madvise(2): paged out while paused, cold while running",
        blocking=True,
        undone=f"{_BACK}; pages of a process tree come back as they are used",
        rights=f"{_GROUP}; for process trees {_PAGES}",
    ),
    LeverInfo(
        name="hard_limit",
        field="slots.hard_limit_bytes",
        unit="bytes",
        v2="memory.max, after memory.reclaim",
        hybrid=f"{NOT_THERE} (limit is hard already)",
        none=NOT_THERE,
        blocking=True,
        undone=_BACK,
        rights=_GROUP,
    ),
    LeverInfo(
        name="reclaim",
        field="slots.reclaim_to_bytes",
        unit="bytes left in memory",
        v2="memory.reclaim, with swappiness= where the kernel takes it and a profile sets one",
        hybrid="memory.limit_in_bytes, step by step, each taken back at once",
        none=NOT_THERE,
        blocking=True,
        undone=_NOTHING,
        rights=_GROUP,
    ),
    LeverInfo(
        name="swap_max",
        field="slots.swap_max_bytes",
        unit="bytes",
        v2="memory.swap.max",
        hybrid=f"{NOT_THERE} (memory.memsw limits memory with it)",
        none=NOT_THERE,
        blocking=True,
        undone=_BACK,
        rights=_GROUP,
    ),
    LeverInfo(
        name="cpu_weight",
        field="slots.cpu_weight",
        unit="1..10000, 100 is the kernel's default",
        v2="cpu.weight",
        hybrid="cpu.shares, 10.24 times the weight",
        none="the nice value that gives about the same share",
        blocking=False,
        undone=_BACK,
        rights=f"{_GROUP}; where nice stands in for it {_THREADS}",
    ),
    LeverInfo(
        name="cpu_max",
        field="slots.cpu_max_cores",
        unit="CPU seconds per second",
        v2="cpu.max",
        hybrid="cpu.cfs_quota_us",
        none=NOT_THERE,
        blocking=False,
        undone=_BACK,
        rights=_GROUP,
    ),
    LeverInfo(
        name="io_weight",
        field="slots.io_weight",
        unit="1..10000, 100 is the kernel's default; bfq takes up to 1000",
        v2="io.weight where io.cost.qos is on, else io.bfq.weight where a disk uses bfq",
        hybrid="blkio.bfq.weight where a disk uses bfq",
        none=NOT_THERE,
        blocking=False,
        undone=_BACK,
        rights=_GROUP,
    ),
    LeverInfo(
        name="io_max",
        field="slots.io_max_bytes_per_s",
        unit="bytes per second, of reads and of writes, per disk",
        v2="io.max",
        hybrid="blkio.throttle.read_bps_device and write_bps_device",
        none=NOT_THERE,
        blocking=True,
        undone=_BACK,
        rights=_GROUP,
    ),
    LeverInfo(
        name="nice",
        field="slots.nice",
        unit="-20..19, never better than a thread had",
        v2="setpriority(2) on every thread",
        hybrid="setpriority(2) on every thread",
        none="setpriority(2) on every thread",
        blocking=True,
        undone="every thread gets its own back, those forked meanwhile their parent's",
        rights=_THREADS,
    ),
    LeverInfo(
        name="cpus",
        field="slots.cpus",
        unit="CPU numbers",
        v2="sched_setaffinity(2) on every thread",
        hybrid="sched_setaffinity(2) on every thread",
        none="sched_setaffinity(2) on every thread",
        blocking=True,
        undone="every thread gets its own back, those forked meanwhile their parent's",
        rights=_THREADS,
    ),
    LeverInfo(
        name="pages",
        field="slots.page_advice, protected_willneed",
        unit="cold, pageout or willneed, once",
        v2="process_madvise(2) on private writable pages",
        hybrid="process_madvise(2) on private writable pages",
        none="process_madvise(2) on private writable pages",
        blocking=True,
        undone=_NOTHING,
        rights=_PAGES,
    ),
    LeverInfo(
        name="file_pages",
        field="file_pages",
        unit="flush, clear, cold, pageout, mark, activate, activate-mark or willneed, at every tick",
        v2=_FILE_PAGES,
        hybrid=_FILE_PAGES,
        none=_FILE_PAGES,
        blocking=True,
        undone=_NOTHING,
        rights=f"{_PAGES}; for willneed {_GROUP}",
    ),
    LeverInfo(
        name="terminate",
        field="slots.terminated, kill_at_once",
        unit="yes or no; only with guard.allow_terminate",
        v2="SIGTERM by pidfd, 5 s later cgroup.kill; with `kill_at_once` only that",
        hybrid="SIGTERM by pidfd, 5 s later cgroup.kill; with `kill_at_once` only that",
        none="SIGTERM by pidfd, 5 s later SIGKILL; with `kill_at_once` only that",
        blocking=True,
        undone="cannot be undone",
        rights=f"CAP_KILL, and {_GROUP}",
    ),
    LeverInfo(
        name="stop, terminate",
        field="stopped, terminate, kill_at_once",
        unit="single processes, by pid and start time",
        v2="SIGSTOP, SIGTERM by pidfd; with `kill_at_once` SIGKILL",
        hybrid="SIGSTOP, SIGTERM by pidfd; with `kill_at_once` SIGKILL",
        none="SIGSTOP, SIGTERM by pidfd; with `kill_at_once` SIGKILL",
        blocking=False,
        undone="SIGCONT; an end cannot be undone",
        rights="CAP_KILL",
    ),
    LeverInfo(
        name="memory_low, memory_min",
        field="protected_low_bytes",
        unit="bytes, never less than before",
        v2="memory.low, or with protected.hard_protection memory.min",
        hybrid=f"{NOT_THERE} (the soft limit protects nothing inside a limited group)",
        none=NOT_THERE,
        blocking=False,
        undone=_BACK,
        rights=_GROUP,
    ),
    LeverInfo(
        name="thread_slice, thread_nice, thread_cpus",
        field="protected_threads",
        unit="microseconds, nice value, CPU numbers of single threads; only with "
        "guard.allow_protected_threads",
        v2="sched_setattr(2), setpriority(2), sched_setaffinity(2)",
        hybrid="sched_setattr(2), setpriority(2), sched_setaffinity(2)",
        none="sched_setattr(2), setpriority(2), sched_setaffinity(2)",
        blocking=True,
        undone="every thread gets its own back, those started meanwhile their parent's",
        rights=_THREADS,
    ),
    LeverInfo(
        name="oom",
        field="protect_from_oom",
        unit="yes or no",
        v2="oom_score_adj",
        hybrid="oom_score_adj",
        none="oom_score_adj",
        blocking=False,
        undone="every process gets its own back, those forked meanwhile their parent's",
        rights="CAP_DAC_OVERRIDE; below zero CAP_SYS_RESOURCE",
    ),
    LeverInfo(
        name="vm.swappiness",
        field="tuning.swappiness",
        unit="0..200",
        v2="vm.swappiness",
        hybrid="vm.swappiness, and memory.swappiness of the zone and its groups",
        none="vm.swappiness",
        blocking=False,
        undone=_BACK,
        rights=f"{_NODE}; on v1 also {_GROUP}",
    ),
    LeverInfo(
        name="swappiness",
        field="tuning.protected_swappiness",
        unit="0..200",
        v2=f"{NOT_THERE} (v2 has none per group)",
        hybrid="memory.swappiness",
        none=NOT_THERE,
        blocking=False,
        undone=_BACK,
        rights=_GROUP,
    ),
    LeverInfo(
        name="vm.dirty_ratio, vm.dirty_background_ratio",
        field="tuning.dirty_ratio, tuning.dirty_background_ratio",
        unit="per cent of the zone's memory",
        v2="vm.dirty_ratio; in a sandbox the equivalent vm.dirty_bytes",
        hybrid="vm.dirty_ratio; in a sandbox the equivalent vm.dirty_bytes",
        none="vm.dirty_ratio",
        blocking=False,
        undone="the one of ratio and bytes that was in force is written",
        rights=_NODE,
    ),
    LeverInfo(
        name="vm.overcommit_memory",
        field="tuning.overcommit_memory",
        unit="0, 1 or 2",
        v2="vm.overcommit_memory",
        hybrid="vm.overcommit_memory",
        none="vm.overcommit_memory",
        blocking=False,
        undone=_BACK,
        rights=_NODE,
    ),
)
"""Every lever."""

_INTRODUCTION: Final = """\
# Levers

What the daemon can change on a node, and how it is undone. The daemon looks for each lever when it
starts; `stallward ctl status` lists those that are missing, and why.

All levers have this in common:

- **Saved first.** Before a setting is changed for the first time, the guardian has its original in
  the journal.
- **Read back.** The daemon reports and holds what the kernel took. Another value is a failure;
  rounding to pages is allowed.
- **Never waiting.** A write that may block is done by a thread of its own. One that takes longer
  than 2 s is reported as pending, and does not keep the other levers from being restored.
- **Never more than before.** A limit is not raised above the group's own.
- **Foreign changes are respected.** The daemon reads every held setting again in turn. A setting
  that something else has changed is left alone until the controller wants another value or
  `control.foreign_wait_s` has passed, and restoring keeps the foreign value
  ([pods](../explanation/pod-limits.md)). A group that was removed and made again does not count.
- **Restored** on stop, on a lapsed lease and after a crash.
- **Dry run.** With `control.dry_run = true` nothing is changed, and `applied` in the tick record
  says what would have been done.
- **By hand.** `stallward ctl apply` has an option for each, and its `--help` gives the units.

## What each lever changes

The column *thread* says whether the lever is written by a thread of its own, because the write may
block.

"""
_RIGHTS: Final = """
## What rights each lever needs

The files of a group are root's, or those of the user whom it is delegated to; others need
CAP_DAC_OVERRIDE to write them. For processes of the daemon's own user no capability is needed. A
lever whose right is refused is missing, or says so at its first use. The [systemd
unit](restoring.md#systemd) grants all of these, and the chart in `deploy/chart` all but the
settings of `vm`, which no container may write.

"""
_OTHER_RIGHTS: Final = """
Beside its levers the daemon uses CAP_SYS_NICE to run before the background, CAP_SYS_RESOURCE for
PSI triggers of half a second, CAP_SYS_PTRACE for the proportional sizes of other users' processes,
CAP_IPC_LOCK or a RLIMIT_MEMLOCK without a bound to stay in memory, and for page-cache hits by eBPF
CAP_BPF, CAP_PERFMON and CAP_DAC_READ_SEARCH.
"""
_NOTES: Final = """
## Notes

- A hard limit is never written below what the group uses: memory is reclaimed first, and what
  cannot be reclaimed is reported. So lowering a hard limit kills nothing; growing into it does,
  and the [guard](guard.md#what-a-program-notices-of-a-limit) keeps it away from what grows.
- v1 CPU and disk levers need the group in the hierarchy of that controller. Where the group is not
  in it, the lever is missing.
- The nice value orders threads of the same CPU group, and needs CAP_SYS_NICE to be undone. It is
  used in place of the CPU weight where the CPU controller is off for a group: each step of 1 is a
  factor of 1.25. Where the kernel groups threads by session (`kernel.sched_autogroup_enabled` is 1,
  as in most distributions) it orders only those of one session, so services need a CPU weight:
  `CPUWeight=` of their unit turns the controller on.
- A thread's timeslice needs Linux 6.12. Nothing replaces it, because a nice value would change the
  thread's share.
- Disk weights act only where the disk's scheduler (or iocost) knows them. Elsewhere the lever is
  missing, even if the files exist.
- Paging out (`limit` on a process tree, `pages` with pageout) takes anonymous pages only as far as
  there is swap. So a limit on a process tree reports what stays resident. Unchanged file pages are
  dropped in any case.
- `file_pages` needs no undoing, because pages come back as they are used. It acts on background
  processes only, but for `willneed` and the three that use pages, which the application's may have.
  `mark`, `activate` and `activate-mark` use the pages in memory once, twice or three times: the
  reader touches those that cachestat(2) counts, without reading ahead, outside a group that is
  paused. `clear` takes all file pages of the victim (clear_refs(5)). Counting the pages of a file
  needs Linux 6.5, and CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN, which the systemd unit does not
  grant: only experiments use it.
- `file_pages` comes with `stallward[papers]`. The daemon loads it where `control.controller` is one
  that needs it (`ws-*`), or where `control.levers` names it, and `stallward ctl status` lists it. As
  root it refuses a lever whose file others can write.
- A file that is read in is charged to the group of the process that asks. So a small process of the
  daemon, the *reader*, is moved into the victim's memory group for each request and back. A request
  takes 6 ms longer for that (14 in one of ten, 80 the first time), and the reader 9 MiB of the
  daemon's own group. With cgroup v2 it does not enter a group that is paused, and its waiting
  counts as the group's stall. In a cgroup namespace of its own the daemon cannot find the groups.
  Ranges are 128 KiB long at most, because the kernel reads no more than the disk's readahead.
- Pages in swap are charged to the group that they were swapped out of. So `pages` asks from
  outside, and its `willneed` leaves out mappings of files.
- The first rate limit of a disk makes the kernel empty its queue, which may take a while: a thread
  waits for it. Loop devices, zram and device mappings are not limited; the disks below them are.
"""


def render() -> str:
    """The page docs/reference/levers.md."""
    what = [
        (f"`{row.name}`", f"`{row.field}`", row.unit, "yes" if row.blocking else "no", row.undone)
        for row in LEVERS
    ]
    where = [(f"`{row.name}`", row.v2, row.hybrid, row.none) for row in LEVERS]
    rights = [(f"`{row.name}`", row.rights) for row in LEVERS]
    return (
        _INTRODUCTION
        + _table(("lever", "field of the desired state", "unit", "thread", "undone"), what)
        + "\n## Where each lever acts\n\n"
        + _table(("lever", "cgroup v2", "hybrid", "no cgroups"), where)
        + _RIGHTS
        + _table(("lever", "rights"), rights)
        + _OTHER_RIGHTS
        + _NOTES
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render(), end="")  # noqa: T201 - the program's output
