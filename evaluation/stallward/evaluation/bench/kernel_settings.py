"""Everything that a daemon may have changed of a node, read from the kernel itself.

Not what the levers say they touch: every writable setting of the groups in every cgroup
hierarchy, every vm.* knob, and of each process whether it is stopped, its priority, CPUs and OOM
score. So a lever that is added later is looked at too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.paths import Paths

_NO_SETTING: Final = re.compile(
    r"procs|tasks|threads|usage|failcnt|pressure|peak|event|stat|current|force_empty|reclaim"
    r"|\.kill$|reset|drop_caches|compact_memory|stat_refresh|numa_stat|hugetlb"
)
"""Counters that can be written to reset them, and files that are commands."""
_CPUS: Final = re.compile(r"^Cpus_allowed:\s*(\S+)", re.MULTILINE)

Settings = Mapping[str, str]
"""What each setting is now, by a name for messages."""


def read_settings(groups: Iterable[str], pids: Iterable[int], paths: Paths) -> Settings:
    """Every setting of the groups, the node and the processes; what is gone is left out.

    Args:
        groups: Names relative to the root of a cgroup hierarchy.
        pids: Processes to look at.
        paths: The kernel's files.
    """
    found: dict[str, str] = {}
    # v1 controllers and hybrid v2 are mounted one level down, a unified v2 at the root.
    roots = (paths.cgroup, *(path for path in paths.cgroup.iterdir() if path.is_dir()))
    for folder in [root / name for root in roots for name in groups]:
        _read_folder(folder, found)
    _read_folder(paths.proc / "sys/vm", found)
    for pid in pids:
        _read_process(paths.proc / str(pid), pid, found)
    return found


def _read_folder(folder: Path, found: dict[str, str]) -> None:
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return
    for file in files:
        if _NO_SETTING.search(file.name) or file.is_dir():
            continue
        text = _read(file)
        if text is not None and file.stat().st_mode & 0o600 == 0o600:
            found[str(file)] = text


def _read_process(folder: Path, pid: int, found: dict[str, str]) -> None:
    stat, status = _read(folder / "stat"), _read(folder / "status")
    score = _read(folder / "oom_score_adj")
    if stat is None or status is None or score is None:
        return
    fields = stat.rpartition(")")[2].split()
    cpus = _CPUS.search(status)
    found[f"process {pid}: stopped"] = "yes" if fields[0] in {"T", "t"} else "no"
    found[f"process {pid}: nice"] = fields[16]
    found[f"process {pid}: cpus"] = cpus.group(1) if cpus else ""
    found[f"process {pid}: oom_score_adj"] = score


def _read(file: Path) -> str | None:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(fd, 16384).decode("utf-8", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(fd)


def changed(before: Settings, now: Settings) -> tuple[str, ...]:
    """What is not as it was, one line each; what is gone now is not counted."""
    return tuple(
        f"{name} is {now[name]!r}, was {value!r}"
        for name, value in before.items()
        if name in now and now[name] != value
    )
