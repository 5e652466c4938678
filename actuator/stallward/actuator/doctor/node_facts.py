"""Facts about a node that change what memory means there, or what the daemon may do.

Each is a finding only where it applies: the cache of ZFS (zfs-kstat(5), arcstats), swap on a volume
of ZFS, SELinux and AppArmor (their files in /proc and /sys), groups below a slot that have limits
of their own, and groups above an application of which no memory is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.doctor.finding import Finding
from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import Walk
from stallward.actuator.kernel.files import read_bytes, read_text
from stallward.actuator.kernel.hierarchies import detect, unescape
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.sensors.files.memcg import parse_limit_v1

_MIB: Final = 1 << 20
_LEAST_ARC_BYTES: Final = 64 * _MIB
"""A smaller cache of ZFS changes nothing."""
_ZVOL: Final = re.compile(r"/dev/(?:zd[0-9]+|zvol/.+)(?:p[0-9]+)?")
_CONFINED: Final = re.compile(r"(.+) \((?:enforce|kill|prompt)\)")
"""A profile of AppArmor that refuses; ``complain`` only tells."""
_UNCONFINED: Final = frozenset({"unconfined_t", "unconfined_service_t", "spc_t", "kernel_t"})
"""The domains of SELinux that may do what root may."""
_OWN_LIMITS: Final = ("memory.max", "memory.high", "memory.limit_in_bytes")
MOST_GROUPS: Final = 500
"""How many groups below a slot are looked at."""


def node_facts(paths: Paths) -> Iterable[Finding]:
    """The findings on the node as a whole.

    Args:
        paths: The kernel's files.
    """
    for name, (why, next_step) in {
        "ZFS": _zfs_cache(paths),
        "swap on ZFS": _zvol_swap(paths),
        "SELinux": _selinux(paths),
        "AppArmor": _app_armor(paths),
    }.items():
        if why:
            area = "node" if "ZFS" in name else "safety"
            yield Finding(area=area, name=name, state="degraded", why=why, next_step=next_step)


def groups_below(config: DaemonConfig) -> Iterable[Finding]:
    """The findings on groups inside of slots, whose own limits a slot's does not widen.

    Args:
        config: The configuration.
    """
    hierarchy = detect(config.node.paths)
    for slot in config.background:
        folder = None if slot.group is None else hierarchy.group(slot.group).memory_dir
        limited = [] if folder is None else [*_limited_below(folder)]
        if not limited or folder is None:
            continue
        first, name, limit = limited[0]
        groups = (
            "1 group has a limit of its own"
            if len(limited) == 1
            else f"{len(limited)} groups have limits of their own"
        )
        yield Finding(
            area="configuration",
            name=f"groups below {slot.name}",
            state="degraded",
            why=f"{groups} ({first.relative_to(folder)}: {name} is {limit}): what the "
            "slot is given beyond that stays unused, and at its own limit a group may be killed",
            next_step="Lift them (systemd: MemoryMax=, MemoryHigh=), or make these groups the slots.",
        )


def nothing_kept(config: DaemonConfig) -> Iterable[Finding]:
    """The findings on applications of which the kernel keeps nothing, whatever is guaranteed.

    It keeps no more of a group than of each one above, up to the one in which memory runs out
    (Documentation/admin-guide/cgroup-v2.rst, memory.low).

    Args:
        config: The configuration.
    """
    hierarchy = detect(config.node.paths)
    root, zone = hierarchy.memory_root, config.node.zone.strip("/")
    if hierarchy.kind != "v2" or root is None:
        return
    top = root / zone if _limit(root / zone / "memory.max") else root
    for one in config.applications:
        file, key = ("memory.min", "Min") if one.hard_protection else ("memory.low", "Low")
        above = [] if one.group is None else [*(root / one.group.strip("/")).parents]
        between = takewhile(lambda path: path != top, above)
        empty = [path for path in between if text_of(path / file) == "0"]
        if empty:
            name = str(empty[-1].relative_to(root))
            yield Finding(
                area="configuration",
                name=f"{file} of {one.group}",
                state="degraded",
                why=f"{file} of {name}, above it, is 0: where memory runs out outside of that "
                "group, the kernel keeps nothing of what the application is guaranteed",
                next_step=f"Give {name} as much (systemctl set-property {name.rpartition('/')[2]} "
                f"Memory{key}=), or let the application run in a slice of its own that has it.",
            )


def _zfs_cache(paths: Paths) -> tuple[str, str]:
    """What the cache of ZFS (ARC) holds: the kernel counts it as used, and not as page cache."""
    for line in text_of(paths.proc / "spl/kstat/zfs/arcstats").splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "size" and words[2].isdigit():
            size_bytes = int(words[2])
            if size_bytes < _LEAST_ARC_BYTES:
                break
            why = (
                f"its cache (ARC) holds {size_bytes // _MIB} MiB, which the kernel counts as used "
                "memory and not as page cache: more can become free than is seen, and reads of "
                "its files are no page cache of a group"
            )
            return why, "Bound it by zfs_arc_max (/sys/module/zfs/parameters), below what is free."
    return "", ""


def _zvol_swap(paths: Paths) -> tuple[str, str]:
    """Which swap is on a volume of ZFS."""
    lines = text_of(paths.proc / "swaps").splitlines()[1:]
    devices = [unescape(line.split()[0]) for line in lines if line.split()]
    on_zfs = [device for device in devices if _ZVOL.fullmatch(device)]
    if not on_zfs:
        return "", ""
    why = (
        f"{', '.join(on_zfs)} is a volume of ZFS, which needs memory to write what is to be "
        "swapped out: under pressure the machine can hang"
    )
    return why, "Swap on a partition, on a file of another file system, or on zram."


def _selinux(paths: Paths) -> tuple[str, str]:
    """Whether SELinux enforces a policy on this process."""
    if text_of(paths.sys / "fs/selinux/enforce") != "1":
        return "", ""
    context = _label(paths, "attr/current").split(":")
    domain = context[2] if len(context) > 2 else ""
    if domain in _UNCONFINED:
        return "", ""
    why = f"it enforces{f', and this process runs in the domain {domain}' if domain else ''}"
    return (
        f"{why}: what it refuses looks like a missing right",
        "`ausearch -m avc -ts recent` names what it refused: allow that (audit2allow), or run the "
        "container with the label disabled (--security-opt label=disable).",
    )


def _app_armor(paths: Paths) -> tuple[str, str]:
    """Which profile of AppArmor confines this process."""
    label = _label(paths, "attr/apparmor/current") or _label(paths, "attr/current")
    confined = _CONFINED.fullmatch(label)
    if confined is None:
        return "", ""
    return (
        f"the profile {confined[1]} confines this process: what it refuses looks like a missing right",
        '`dmesg | grep apparmor="DENIED"` names what it refused: allow that in the profile, or run '
        "without one (docker: --security-opt apparmor=unconfined; Kubernetes: appArmorProfile).",
    )


def _label(paths: Paths, name: str) -> str:
    return text_of(paths.proc / "self" / name).rstrip("\0\n")


def _limited_below(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Each group below one that has a limit, with the file and what is in it."""
    for path in Walk(folder, most=MOST_GROUPS):
        if path == folder:
            continue
        for name in _OWN_LIMITS:
            limit = _limit(path / name)
            if limit:
                yield path, name, limit
                break


def _limit(path: Path) -> str:
    """The limit in a file; empty without one."""
    try:
        content = read_bytes(path)
        if content is None or content == b"max\n":
            return ""
        limit = parse_limit_v1(content, path)
    except KernelFileError:
        return ""
    return "" if limit is None else str(limit)


def text_of(path: Path) -> str:
    """What is in a file; empty where there is none, or it cannot be read."""
    try:
        return read_text(path) or ""
    except KernelFileError:
        return ""
