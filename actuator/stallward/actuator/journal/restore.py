"""Undoing journal entries. It may be repeated, and vanished targets do not stop it."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError, GroupError, KernelFileError
from stallward.actuator.journal.bounded_run import Action, run_bounded
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
)
from stallward.actuator.journal.own_entries import Owner, refusal
from stallward.actuator.journal.written_values import may_be_ours
from stallward.actuator.kernel.cgroup_dirs import walk
from stallward.actuator.kernel.files import read_text, write_text
from stallward.actuator.kernel.hierarchies import detect, unescape
from stallward.actuator.kernel.memory.oom_control import KILL, OOM_CONTROL, reset_inherited
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_identity import send_signal, start_time_ticks
from stallward.actuator.kernel.scheduling import read_value, thread_ids, write_value
from stallward.actuator.runtime.temporary_folders import remove_folder

_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.ENOTDIR})
_BUSY_TRIES: Final = 5
_REMOVE_TRIES: Final = 4
_REMOVE_TRY_S: Final = 0.5
_MOST_PROBLEMS: Final = 3
"""For at most this many threads the reason of a failure is reported."""
_FIRST: Final = ("run", "limits", "knobs")
_WAITS: Final = "waits"
_LATER: Final = ("groups", "folders", "swap")


def restore(
    entries: Iterable[JournalEntry], paths: Paths, owner: Owner = Owner.DAEMON
) -> tuple[str, ...]:
    """Undo ``entries``.

    Paused work runs again first, then limits and other settings are put back; a write that blocks
    in the kernel does not hold up the others. Whether the kernel kills under a limit is put back
    after all limits: it would kill what waits under one. Then our own groups are killed and
    removed, and last our own folders and swap files. If a file has several entries, the first is
    the original.
    A target that has vanished is no failure. Nothing is written to a disk that does not have to
    be undone. What another program wrote since stays. An entry that cannot be one of ours is
    refused.

    Args:
        entries: The entries in the order in which they were noted.
        paths: The kernel's files.
        owner: Whose entries they are.

    Returns:
        One sentence for each entry that could not be undone; empty if all were.
    """
    entries = tuple(entries)
    written = _written(entries)
    noted = dict.fromkeys(e.entry if isinstance(e, Noted) else e for e in entries)
    refused = {entry: why for entry in noted if (why := refusal(entry, paths, owner))}
    wanted = tuple(entry for entry in noted if entry not in refused)
    scores: dict[tuple[int, int], OomScore] = {}
    actions: dict[str, list[Action]] = {kind: [] for kind in (*_FIRST, _WAITS, *_LATER)}
    known = frozenset(entry.path for entry in wanted if isinstance(entry, FileValue))
    for entry in wanted:
        match entry:
            case Frozen(path=path):
                actions["run"].append(partial(_write, path, thawed(path)))
            case Stopped(pid=pid, start_time_ticks=ticks):
                actions["run"].append(partial(send_signal, paths.proc, pid, ticks, signal.SIGCONT))
            case OomScore(pid=pid, start_time_ticks=ticks):
                scores.setdefault((pid, ticks), entry)
            case OwnedGroup(name=name):
                actions["groups"].append(partial(_remove_group, name, paths))
            case OwnedFolder(path=path):
                actions["folders"].append(partial(remove_folder, path))
            case SwapFile(path=path):
                actions["swap"].append(partial(_remove_swap, path, paths))
    for path, value in _originals(wanted):
        kind, action = _setting(path, value, paths, known, written.get(path, ()))
        actions[kind].append(action)
    actions["knobs"] += [partial(_write_oom_score, score, paths) for score in scores.values()]
    groups = tuple(e for e in wanted if isinstance(e, GroupThreads))
    threads = tuple(e for e in wanted if isinstance(e, ThreadValue))
    if groups or threads:
        actions["knobs"].append(partial(_reset_threads, groups, threads, paths))
    problems = list(refused.values())
    problems += run_bounded([action for kind in _FIRST for action in actions[kind]])
    problems += run_bounded(actions[_WAITS])
    for action in [action for kind in _LATER for action in actions[kind]]:
        try:
            action()
        except (ActuatorError, OSError) as error:
            problems.append(str(error))
    return tuple(problems)


def _originals(entries: Iterable[JournalEntry]) -> Iterator[tuple[Path, str]]:
    """The files and the values to write: the first value of each file, or of each key."""
    originals: dict[tuple[Path, str], str] = {}
    for entry in entries:
        match entry:
            case FileValue(path=path, value=value):
                originals.setdefault((path, ""), value)
            case KeyedValue(path=path, key=key, value=value):
                originals.setdefault((path, key), f"{key} {value}")
    for (path, _), value in originals.items():
        yield path, value


def left_alone(entries: Iterable[JournalEntry]) -> dict[Path, str]:
    """The files that :func:`restore` leaves as another program has set them, and their values."""
    entries = tuple(entries)
    written = _written(entries)
    found: dict[Path, str] = {}
    for path, original in _originals(e.entry if isinstance(e, Noted) else e for e in entries):
        now = _foreign(path, original, written.get(path, ()))
        if now is not None:
            found[path] = now
    return found


def _written(entries: Iterable[JournalEntry]) -> dict[Path, tuple[int, ...]]:
    """What the daemon may have written last to each file; empty where it is not known."""
    written: dict[Path, tuple[int, ...]] = {}
    for entry in entries:
        inner = entry.entry if isinstance(entry, Noted) else entry
        if isinstance(inner, FileValue):
            numbers = entry.written if isinstance(entry, Noted) else ()
            before = written.get(inner.path)
            known = bool(numbers) and before != ()
            written[inner.path] = (*(before or ()), *numbers) if known else ()
    return written


def _foreign(path: Path, original: str, written: tuple[int, ...]) -> str | None:
    """The value that another program has set since the daemon wrote; ``None`` if none did."""
    if not written:
        return None
    try:
        now = read_text(path)
    except KernelFileError:
        return None
    if now is None or now == original or may_be_ours(path.name, now, written):
        return None
    return now


def _write_over(path: Path, value: str, written: tuple[int, ...]) -> None:
    """Write an original, unless another program has written its own value since."""
    if _foreign(path, value, written) is None:
        _write(path, value)


def _write(path: Path, value: str) -> None:
    for attempt in range(_BUSY_TRIES):
        try:
            write_text(path, value)
        except KernelFileError as error:
            if error.number in _GONE:
                return
            # For a v1 limit below the present usage, each try reclaims a little.
            if error.number != errno.EBUSY or attempt == _BUSY_TRIES - 1:
                raise
        else:
            return


def _setting(
    path: Path, value: str, paths: Paths, known: frozenset[Path], written: tuple[int, ...]
) -> tuple[str, Action]:
    """When and how one file gets its value back."""
    if path.name == OOM_CONTROL:
        return _WAITS, partial(_write_waits, path, value, known)
    kind = "knobs" if path.is_relative_to(paths.proc) else "limits"
    return kind, partial(_write_over, path, value, written)


def _write_waits(path: Path, value: str, known: frozenset[Path]) -> None:
    """Put back whether a v1 group waits for memory, also in groups inside that inherited it."""
    _write(path, value)
    if value == KILL:
        reset_inherited(path.parent, keep=known)


def thawed(freezer: Path) -> str:
    """The value that thaws a group; the v1 freezer takes words."""
    return "THAWED" if freezer.name == "freezer.state" else "0"


def _reset_threads(
    groups: tuple[GroupThreads, ...], threads: tuple[ThreadValue, ...], paths: Paths
) -> None:
    """Reset the threads of groups first, since single threads are exceptions from them."""
    problems = []
    for entry in groups:
        tids = [
            tid
            for folder in walk(entry.folder)
            for pid in (read_text(folder / "cgroup.procs") or "").split()
            for tid in thread_ids(paths.proc, int(pid))
        ]
        for tid in tids:
            try:
                if read_value(entry.what, tid) == entry.written:
                    write_value(entry.what, tid, entry.value)
            except ActuatorError as error:
                problems.append(str(error))
    for single in threads:
        try:
            if start_time_ticks(paths.proc, single.tid) == single.start_time_ticks:
                write_value(single.what, single.tid, single.value)
        except ActuatorError as error:
            problems.append(str(error))
    if problems:
        raise ActuatorError(" ".join(problems[:_MOST_PROBLEMS]))


def _write_oom_score(entry: OomScore, paths: Paths) -> None:
    if start_time_ticks(paths.proc, entry.pid) == entry.start_time_ticks:
        _write(paths.proc / str(entry.pid) / "oom_score_adj", str(entry.value))


def _remove_group(name: str, paths: Paths) -> None:
    group = detect(paths).group(name)
    if not group.is_own:
        raise ActuatorError(f"The group {name!r} is not one of ours and was left alone.")
    for attempt in range(_REMOVE_TRIES):
        left = group.kill()
        if left:
            raise ActuatorError(f"Processes {list(left)} in {name} do not die.")
        try:
            # A program that the dead owner was just starting may enter after the kill.
            group.remove(timeout_s=_REMOVE_TRY_S)
        except GroupError:
            if attempt == _REMOVE_TRIES - 1:
                raise
        else:
            return


def is_swap(path: Path, table: str) -> bool:
    """Whether ``table`` (the content of /proc/swaps) lists ``path``.

    The kernel shows the real path, with white space as octal escapes; ``path`` may lead over a
    symbolic link. A swap file that is missed here would be deleted while in use, and could then
    not be taken out of use any more.
    """
    names = {unescape(line.split()[0]) for line in table.splitlines()[1:] if line.strip()}
    return not names.isdisjoint({str(path), os.path.realpath(path)})


def _remove_swap(path: Path, paths: Paths) -> None:
    if is_swap(path, read_text(paths.proc / "swaps") or ""):
        _swapoff(path)
    path.unlink(missing_ok=True)


def _swapoff(path: Path) -> None:
    import ctypes  # noqa: PLC0415 - costs a megabyte that the waiting keeper does not need

    libc = ctypes.CDLL(None, use_errno=True)
    for attempt in range(_BUSY_TRIES):
        if libc.swapoff(os.fsencode(path)) == 0:
            return
        number = ctypes.get_errno()
        if number in {errno.EINVAL, errno.ENOENT}:  # not in use (any more)
            return
        if attempt == _BUSY_TRIES - 1:
            raise KernelFileError(path, f"swapoff failed ({os.strerror(number)})", number=number)
        time.sleep(0.05)
