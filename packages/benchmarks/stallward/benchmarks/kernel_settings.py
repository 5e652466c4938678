"""All settings of a node that a daemon may have changed, read from the kernel.

These are all writable settings of the groups in every cgroup hierarchy, all vm.* settings, and for
each process its OOM score and whether it is stopped, and for each of its threads the nice value,
the CPUs and the timeslice. They do not depend on what the levers declare, so a lever that is added
later is checked, too.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.scheduling import CPUS, NICE, SLICE, read_value, thread_ids

_NOT_SETTINGS: Final = re.compile(
    r"(?:^|[._])(?:procs|tasks|threads|usage|failcnt|peak|events?|stat|current|force_empty|reclaim"
    r"|kill|reset|hugetlb)(?:[._]|$)"
    r"|^(?:memory|cpu|io|irq)\.pressure$|memory_pressure$"
)
"""Names of writable files of groups that are not settings: counters that can be reset, and
commands. Whole words count, for ``freezer.state`` is a setting and ``memory.stat`` is none."""
_COMMANDS: Final = re.compile(r"^(?:drop_caches|compact_memory|stat_refresh)$")
"""Names of files of vm.* that are not settings."""
_COUNT_OF_KILLS: Final = re.compile(r"^oom_kill \d+\n?", re.MULTILINE)
"""A counter among the lines of v1 memory.oom_control. Whether a process waits there must be as
before."""

Settings = Mapping[str, str]
"""Name of a setting, for messages -> its value."""


def read_settings(groups: Iterable[str], pids: Iterable[int], paths: Paths) -> Settings:
    """Read all settings of the groups, the node and the processes.

    Groups and processes that do not exist are left out.

    Args:
        groups: Names of groups, relative to the root of a cgroup hierarchy.
        pids: The processes.
        paths: The roots of the kernel's files.
    """
    settings: dict[str, str] = {}
    # v1 controllers and hybrid v2 are mounted one level down, a unified v2 at the root.
    roots = (paths.cgroup, *(path for path in paths.cgroup.iterdir() if path.is_dir()))
    for folder in [root / name for root in roots for name in groups]:
        _read_folder(folder, settings, _NOT_SETTINGS)
    _read_folder(paths.proc / "sys/vm", settings, _COMMANDS)
    for pid in pids:
        _read_process(paths.proc, pid, settings)
    return settings


def _read_folder(folder: Path, settings: dict[str, str], left_out: re.Pattern[str]) -> None:
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return
    for file in files:
        if left_out.search(file.name) or file.is_dir():
            continue
        text = _read(file)
        if text is not None and file.stat().st_mode & 0o600 == 0o600:
            settings[str(file)] = _COUNT_OF_KILLS.sub("", text)


def _read_process(proc: Path, pid: int, settings: dict[str, str]) -> None:
    stat, score = _read(proc / str(pid) / "stat"), _read(proc / str(pid) / "oom_score_adj")
    if stat is None or score is None:
        return
    state = stat.rpartition(")")[2].split()[0]
    if state in {"Z", "X"}:  # it has ended, and its parent has not looked yet
        return
    settings[f"process {pid}: stopped"] = "yes" if state in {"T", "t"} else "no"
    settings[f"process {pid}: oom_score_adj"] = score
    for tid in thread_ids(proc, pid):
        for what in (NICE, CPUS, SLICE):
            with contextlib.suppress(KernelFileError):
                value = read_value(what, tid)
                if value is not None:  # None: the thread has ended, or has no timeslice
                    settings[f"thread {tid} of process {pid}: {what}"] = value


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


def changed_settings(before: Settings, now: Settings) -> tuple[str, ...]:
    """One line for each setting that has another value now; missing settings are not counted."""
    return tuple(
        f"{name} is {now[name]!r}, was {value!r}"
        for name, value in before.items()
        if name in now and now[name] != value
    )
