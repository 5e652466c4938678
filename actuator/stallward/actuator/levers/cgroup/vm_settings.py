"""The node's vm.* settings, and the swappiness of v1 groups.

vm.swappiness does not affect existing v1 groups (each copied it when it was made), so theirs is
written, too. The dirty ratios are shares of the whole machine's memory: where the zone is a
sandbox, the equivalent vm.dirty_bytes are written. Of ratio and bytes only the one in force is
saved: writing it back sets the other to zero, as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.levers.base.file_lever import FileLever, FileSpec
from stallward.actuator.levers.base.held_setting import PairFile, PlainFile
from stallward.actuator.levers.base.lever import ASIDE_S
from stallward.actuator.levers.base.originals import Originals
from stallward.agent.desired import DesiredState

_PLAIN: Final = ("swappiness", "overcommit_memory")
_PAIRS: Final = ("dirty_background", "dirty")
WRITTEN_FILES: Final = (
    *_PLAIN,
    *(f"{pair}_{how}" for pair in _PAIRS for how in ("ratio", "bytes")),
)
"""The files of /proc/sys/vm that levers write, or put back after a crash."""
NO_GROUP_SWAPPINESS: Final = "only cgroup v1 has a swappiness per group"
_LEAST_DIRTY_BYTES: Final = 2 * 65536
"""The kernel takes no vm.dirty_bytes below two pages (of up to 64 KiB)."""


def vm_levers(
    *,
    paths: Paths,
    zone: Cgroup,
    zone_limit_bytes: int | None,
    originals: Originals,
    aside_s: float = ASIDE_S,
) -> tuple[FileLever, ...]:
    """The levers that write a tuning profile.

    Args:
        paths: The kernel's files.
        zone: The zone. Unless it is the whole machine, dirty ratios are of its memory.
        zone_limit_bytes: The zone's memory limit.
        originals: Keeps the journal.
        aside_s: How long a lever steps aside after a foreign change.
    """
    vm = paths.proc / "sys" / "vm"
    specs = [_plain(vm / name, partial(_tuning, name)) for name in _PLAIN]
    specs += _zone_specs(zone)
    zone_bytes = None if zone.is_root else zone_limit_bytes
    specs += [_pair(vm, pair, zone_bytes) for pair in _PAIRS]
    return tuple(FileLever(spec, originals, aside_s=aside_s) for spec in specs)


def _tuning(name: str, granted: DesiredState) -> str | None:
    value = getattr(granted.tuning, name)
    return None if value is None else str(value)


def _plain(path: Path, value_of: Callable[[DesiredState], str | None]) -> FileSpec:
    return FileSpec(
        name=f"vm.{path.name}",
        settings=(PlainFile(path=path, in_group=False),),
        value_of=value_of,
        missing=_refused(path),
    )


def why_no_tuning(proc: Path) -> str:
    """Why the node's settings cannot be written; empty if all can.

    Args:
        proc: The /proc directory.
    """
    names = (*_PLAIN, *(f"{pair}_ratio" for pair in _PAIRS))
    return next(filter(None, (_refused(proc / "sys" / "vm" / name) for name in names)), "")


def _refused(path: Path) -> str:
    """Why a file cannot be written; empty if it can."""
    try:
        with path.open("r+b"):
            return ""
    except OSError as error:
        return f"{path}: {error.strerror}"


def swappiness(group: Cgroup, *, application: int | None = None) -> tuple[FileSpec, ...]:
    """Describe the swappiness lever of a v1 group; none where there is no such file.

    Args:
        group: The group.
        application: The index of a protected application, which may have its own value.
    """
    if group.hierarchy.kind != "hybrid" or group.memory_dir is None or group.is_root:
        return ()
    spec = FileSpec(
        name=f"swappiness:{group.short_name}",
        settings=(PlainFile(path=group.memory_dir / "memory.swappiness"),),
        value_of=partial(_tuning, "swappiness")
        if application is None
        else partial(_protected_swappiness, application),
    )
    return (spec,)


def _zone_specs(zone: Cgroup) -> tuple[FileSpec, ...]:
    """Describe the swappiness lever of the zone; on v2 one lever that is missing."""
    if zone.hierarchy.kind == "hybrid":
        return swappiness(zone)
    missing = FileSpec(
        name="protected_swappiness",
        settings=(),
        # Shipped profiles set it: reported once, not at every change of profile.
        value_of=lambda _granted: None,
        missing=NO_GROUP_SWAPPINESS,
    )
    return (missing,)


def _protected_swappiness(application: int, granted: DesiredState) -> str | None:
    value = granted.application(application).swappiness
    if value is None:
        value = granted.tuning.swappiness
    return None if value is None else str(value)


def _pair(vm: Path, pair: str, zone_bytes: int | None) -> FileSpec:
    by_ratio, by_bytes = vm / f"{pair}_ratio", vm / f"{pair}_bytes"
    path = by_ratio if zone_bytes is None else by_bytes

    def value_of(granted: DesiredState) -> str | None:
        ratio = getattr(granted.tuning, f"{pair}_ratio")
        if ratio is None:
            return None
        if zone_bytes is None:
            return str(round(ratio))
        return str(max(int(zone_bytes * ratio / 100), _LEAST_DIRTY_BYTES))

    setting = PairFile(path=path, bytes_path=by_bytes, ratio_path=by_ratio, in_group=False)
    return FileSpec(
        name=f"vm.{path.name}",
        settings=(setting,),
        value_of=value_of,
        missing=_refused(path),
    )
