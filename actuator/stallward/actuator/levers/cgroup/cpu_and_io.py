"""The levers on the CPU and the disks of a slot, and on the application's protected memory.

Each uses the v1 file where its v1 controller is mounted, else the v2 file. Where a group is not
in the v1 hierarchy of a controller, the lever is missing and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import read_text, why_unreadable
from stallward.actuator.kernel.memory.limit_writes import LARGEST_PAGE_BYTES
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base.file_lever import FileSpec
from stallward.actuator.levers.base.held_setting import (
    KeyedFile,
    PlainFile,
    ProtectionFile,
    QuotaFile,
)
from stallward.agent.desired import DesiredState, SlotDesire

DesireOf = Callable[[DesiredState], SlotDesire]
Check = Callable[[], None]

_V1_SHARES_PER_WEIGHT: Final = 10.24
"""A cpu.weight of 100 equals cpu.shares of 1024."""
_LEAST_QUOTA_US: Final = 1000
_MOST_BFQ_WEIGHT: Final = 1000
_UNLIMITED_IO: Final = "rbps=max wbps=max"
"""Limits of operations, in the same line of io.max, are left to others."""


def cpu_weight(group: Cgroup, desire_of: DesireOf, check: Check) -> FileSpec:
    """The lever on cpu.weight, or on v1 cpu.shares scaled to it.

    Where it is missing, nothing is asked of it: nice values stand in for it.
    """
    v1 = group.v1_dir("cpu")
    path, missing = _controller_file(group, "cpu", "cpu.shares" if v1 else "cpu.weight")
    if missing:
        missing = f"{missing.rstrip('.')}; nice values stand in for it"

    def value_of(granted: DesiredState) -> str | None:
        weight = desire_of(granted).cpu_weight
        if weight is None or missing:
            return None
        return str(max(round(weight * _V1_SHARES_PER_WEIGHT), 2) if v1 else weight)

    return _spec(
        f"cpu_weight:{group.short_name}",
        PlainFile(path=path, exact=True),
        value_of,
        missing,
        check,
    )


def cpu_max(group: Cgroup, desire_of: DesireOf, check: Check) -> FileSpec:
    """The lever on cpu.max, or on v1 cpu.cfs_quota_us; it keeps the period."""
    v1 = group.v1_dir("cpu")
    path, missing = _controller_file(group, "cpu", "cpu.cfs_quota_us" if v1 else "cpu.max")

    text = "" if missing else read_text(path.with_name("cpu.cfs_period_us") if v1 else path)
    period = (text or "").rpartition(" ")[2]
    period_us = int(period) if period.isdigit() else 100_000

    def value_of(granted: DesiredState) -> str | None:
        cores = desire_of(granted).cpu_max_cores
        if cores is None:
            return None
        quota = max(round(cores * period_us), _LEAST_QUOTA_US)
        return str(quota) if v1 else f"{quota} {period_us}"

    setting = PlainFile(path=path, cap=True, exact=True) if v1 else QuotaFile(path=path)
    return _spec(f"cpu_max:{group.short_name}", setting, value_of, missing, check)


def io_weight(group: Cgroup, desire_of: DesireOf, check: Check, paths: Paths) -> FileSpec:
    """The lever on io.weight where iocost is on, else io.bfq.weight; on v1 blkio.bfq.weight."""
    bfq = any("[bfq]" in (read_text(p / "queue/scheduler") or "") for p in disk_dirs(paths))
    v1 = group.v1_dir("blkio")
    iocost = v1 is None and "enable=1" in _root_text(group, "io.cost.qos")
    name = "io.weight" if iocost else "io.bfq.weight" if v1 is None else "blkio.bfq.weight"
    path, missing = _controller_file(group, "blkio" if v1 else "io", name)
    if not missing and not bfq and not iocost:
        missing = "no disk uses the bfq scheduler" + ("" if v1 else ", and io.cost.qos is off")

    def value_of(granted: DesiredState) -> str | None:
        weight = desire_of(granted).io_weight
        if weight is None:
            return None
        return str(weight if iocost else min(weight, _MOST_BFQ_WEIGHT))

    keyed = KeyedFile(path=path, key="default", default="100", cap=False)
    setting: PlainFile = PlainFile(path=path) if v1 else keyed
    return _spec(f"io_weight:{group.short_name}", setting, value_of, missing, check)


def io_max(group: Cgroup, desire_of: DesireOf, check: Check, paths: Paths) -> FileSpec:
    """The lever on io.max of every disk, or on v1 blkio.throttle.{read,write}_bps_device.

    A thread writes it: at the first limit of a disk the kernel empties the disk's queue.
    """
    v1 = group.v1_dir("blkio")
    disks = tuple(disks_of(paths))
    name = "blkio.throttle.read_bps_device" if v1 else "io.max"
    path, missing = _controller_file(group, "blkio" if v1 else "io", name)
    if not missing and not disks:
        missing = f"no disk in {paths.sys / 'block'}"
    files = (path, path.with_name("blkio.throttle.write_bps_device")) if v1 else (path,)
    default = "0" if v1 else _UNLIMITED_IO
    settings = tuple(
        KeyedFile(path=file, key=disk, default=default) for disk in disks for file in files
    )

    def value_of(granted: DesiredState) -> str | None:
        rate = desire_of(granted).io_max_bytes_per_s
        if rate is None:
            return None
        return str(rate) if v1 else f"rbps={rate} wbps={rate}"

    return FileSpec(
        name=f"io_max:{group.short_name}",
        settings=() if missing else settings,
        value_of=value_of,
        missing=missing,
        blocking=True,
        check=check,
    )


def swap_max(group: Cgroup, desire_of: DesireOf, check: Check) -> FileSpec:
    """The lever on v2 memory.swap.max; v1 limits memory and swap only together."""
    path, missing = _controller_file(group, "memory", "memory.swap.max")
    if group.hierarchy.kind == "hybrid":
        missing = "v1 has no limit of swap alone (memory.memsw limits memory with it)"

    def value_of(granted: DesiredState) -> str | None:
        size = desire_of(granted).swap_max_bytes
        return None if size is None else str(size)

    setting = PlainFile(path=path, tolerance=LARGEST_PAGE_BYTES, cap=True, exact=True)
    spec = _spec(f"swap_max:{group.short_name}", setting, value_of, missing, check)
    return replace(spec, blocking=True)


def protection(group: Cgroup, *, hard: bool, application: int = 0) -> FileSpec:
    """The lever on v2 memory.low or memory.min of the protected application.

    v1 lacks both. Its soft limit acts only when the whole machine runs out of memory, never inside
    a sandbox, and it takes from groups above their limit rather than protect those below.

    Args:
        group: The protected application's group.
        hard: Whether the memory is never reclaimed (memory.min) instead of last (memory.low).
        application: The application's index.
    """
    name = "memory.min" if hard else "memory.low"
    path, missing = _controller_file(group, "memory", name)
    if group.hierarchy.kind == "hybrid":
        missing = f"v1 has no {name} (its soft limit protects nothing inside a limited group)"

    def value_of(granted: DesiredState) -> str | None:
        low_bytes = granted.application(application).low_bytes
        return None if low_bytes is None else str(low_bytes)

    setting = ProtectionFile(path=path, tolerance=LARGEST_PAGE_BYTES)
    lever = f"{name.replace('.', '_')}:{group.short_name}"
    return _spec(lever, setting, value_of, missing, lambda: None)


def disk_dirs(paths: Paths) -> Iterator[Path]:
    """Yield /sys/block/NAME of every disk; loop devices, zram and mappings are none."""
    root = paths.sys / "block"
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if (folder / "device").exists():
            yield folder


def disks_of(paths: Paths) -> Iterator[str]:
    """Yield MAJOR:MINOR of every disk."""
    for folder in disk_dirs(paths):
        if number := read_text(folder / "dev"):
            yield number


def _root_text(group: Cgroup, name: str) -> str:
    root = group.hierarchy.unified_root
    return "" if root is None else read_text(root / name) or ""


def _controller_file(group: Cgroup, controller: str, name: str) -> tuple[Path, str]:
    """Return the file of a group, and why it cannot be used (empty if it can)."""
    v1 = group.v1_dir(controller)
    folder = v1 if v1 is not None else group.unified_dir
    if folder is None:
        return Path(name), group.hierarchy.why or "no cgroup hierarchy"
    path = folder / name
    why = why_unreadable(path)
    if not why:
        return path, ""
    if not folder.is_dir() and v1 is not None:
        return path, f"the group is not in the v1 {controller} hierarchy (no {folder})"
    if v1 is not None or path.exists():
        return path, why
    return path, f"{why} (is the {controller} controller on there, and the kernel new enough?)"


def _spec(
    name: str,
    setting: PlainFile,
    value_of: Callable[[DesiredState], str | None],
    missing: str,
    check: Check,
) -> FileSpec:
    settings = () if missing else (setting,)
    return FileSpec(name=name, settings=settings, value_of=value_of, missing=missing, check=check)
