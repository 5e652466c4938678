"""Which entries can be in a journal of ours: only what a lever moves, or a sandbox makes.

A journal says what is written to which file, as root. Whoever restores therefore does not take its
word for it: an entry that no lever or sandbox of this program can have noted is refused, and the
others are undone. A lever cannot note one either, so that nothing is changed that would not be put
back.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final

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
)
from stallward.actuator.kernel.memory.compressed_swap import ZRAM, zswap_dir
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.scheduling import CPUS, NICE, SLICE

SWAP_SUFFIX: Final = ".stallward-swap"
"""How the name of a sandbox's swap file ends."""
GROUP_FILES: Final = frozenset({
    "blkio.bfq.weight",
    "cpu.cfs_quota_us",
    "cpu.max",
    "cpu.shares",
    "cpu.weight",
    "memory.high",
    "memory.limit_in_bytes",
    "memory.low",
    "memory.max",
    "memory.min",
    "memory.oom_control",
    "memory.swap.max",
    "memory.swappiness",
})  # fmt: skip
"""The files of a group with one value that levers write."""
KEYED_FILES: Final = frozenset({
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "io.bfq.weight",
    "io.max",
    "io.weight",
})  # fmt: skip
"""The files of a group with one value for each key that levers write."""
FREEZERS: Final = frozenset({"cgroup.freeze", "freezer.state"})
NODE_FILES: Final = frozenset({
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_ratio",
    "overcommit_memory",
    "swappiness",
})  # fmt: skip
"""The files of /proc/sys/vm that levers write."""
ZSWAP_FILES: Final = frozenset({"compressor", "enabled", "max_pool_percent"})
"""The settings of zswap that a sandbox writes."""
_FIRST_PID: Final = 2
"""No lever touches the first process, on which all others hang."""
_OOM_SCORES: Final = range(-1000, 1001)
_NICE_VALUES: Final = frozenset(map(str, range(-20, 20)))


class Owner(Enum):
    """Whose journal it is."""

    DAEMON = "daemon"
    """A daemon's, whose levers move settings and never make or remove anything."""
    SANDBOX = "sandbox"
    """A sandbox's, which also has groups, a folder and swap of its own, and may switch zswap on."""


def refusal(entry: JournalEntry, paths: Paths, owner: Owner) -> str:
    """Why an entry cannot be one of ours; empty if it can.

    Args:
        entry: The entry.
        paths: The kernel's files.
        owner: Whose journal it is in.
    """
    match entry:
        case Noted(entry=inner):
            return refusal(inner, paths, owner)
        case FileValue(path=path):
            ours = _in_group(path, paths, GROUP_FILES) or _in_node(path, paths)
            ours = ours or (owner is Owner.SANDBOX and _in_zswap(path, paths))
        case KeyedValue(path=path):
            ours = _in_group(path, paths, KEYED_FILES)
        case Frozen(path=path):
            ours = _in_group(path, paths, FREEZERS)
        case GroupThreads(what=what, folder=path, value=value, written=written):
            ours = _is_below(path, paths.cgroup) and _is_value(what, value)
            ours = ours and _is_value(what, written)
        case Stopped(pid=pid):
            ours = pid >= _FIRST_PID
        case OomScore(pid=pid, value=value):
            ours = pid >= _FIRST_PID and value in _OOM_SCORES
        case ThreadValue(tid=tid, what=what, value=value):
            ours = tid >= _FIRST_PID and _is_value(what, value)
        case SwapFile(path=path):
            ours = owner is Owner.SANDBOX and path.name.endswith(SWAP_SUFFIX)
        case ZramDevice(path=path):
            ours = owner is Owner.SANDBOX and ZRAM.fullmatch(str(path)) is not None
        case OwnedGroup() | OwnedFolder():  # their names are checked where they are removed
            ours = owner is Owner.SANDBOX
    if ours:
        return ""
    return (
        f"The journal names {_target(entry)!r:.300}, which no {owner.value} changes; left alone."
    )


def _target(entry: JournalEntry) -> str:
    """What an entry would change, as it is shown to people."""
    for name in ("path", "folder", "name"):
        if value := getattr(entry, name, None):
            return str(value)
    return f"process {getattr(entry, 'pid', getattr(entry, 'tid', 0))}"


def _in_group(path: Path, paths: Paths, names: frozenset[str]) -> bool:
    return path.name in names and _is_below(path, paths.cgroup)


def _in_node(path: Path, paths: Paths) -> bool:
    return path.name in NODE_FILES and path.parent == paths.proc / "sys" / "vm"


def _in_zswap(path: Path, paths: Paths) -> bool:
    return path.name in ZSWAP_FILES and path.parent == zswap_dir(paths)


def _is_below(path: Path, root: Path) -> bool:
    return path.is_relative_to(root) and ".." not in path.relative_to(root).parts and path != root


def _is_value(what: str, value: str) -> bool:
    """Whether a thread's setting can have a value."""
    if what == NICE:
        return value in _NICE_VALUES
    if what == SLICE:
        return value.isascii() and value.isdigit() and len(value) < 7
    cpus = value.split(",")
    return what == CPUS and all(cpu.isascii() and cpu.isdigit() and len(cpu) < 6 for cpu in cpus)
