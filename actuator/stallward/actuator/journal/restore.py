"""Undoing journal entries. It may be repeated, and vanished targets do not stop it."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError, GroupError, KernelFileError
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
    may_be_ours,
    setting_of,
)
from stallward.actuator.journal.kept_files import KeptFiles
from stallward.actuator.journal.own_entries import Owner, refusal
from stallward.actuator.kernel.cgroups import Walk
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.hierarchies import detect, unescape
from stallward.actuator.kernel.memory.compressed_swap import remove_zram
from stallward.actuator.kernel.memory.oom_control import KILL, OOM_CONTROL, reset_inherited
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.actuator.kernel.scheduling import read_value, thread_ids, write_value
from stallward.actuator.runtime.temporary_folders import remove_folder

PATIENCE_S: Final = 0.1
"""How long one action may take before the next starts beside it."""
GIVE_UP_S: Final = 2.0
"""How long a run waits for all actions together; one that blocks goes on by itself."""

Action = Callable[[], object]
Question = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An action that failed, or that the kernel still blocks."""

    number: int
    """The place of the action among those of the run."""
    why: str
    error: Exception | None = None
    """What it raised; ``None`` if it had not ended yet."""
    goes_on: Question = bool
    """Whether it has not ended by now."""


class _Run:
    """The actions of one call, which several threads work on."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self.changed = threading.Condition()
        self.waiting = deque(enumerate(actions))
        self.begun: dict[int, Action] = {}
        """The actions under way, by their number."""
        self.errors: dict[int, Exception] = {}
        self.ended: set[int] = set()
        self.taken = 0

    def goes_on(self, number: int) -> bool:
        """Whether an action has not ended."""
        return number not in self.ended

    def work(self) -> None:
        """Run waiting actions until there are none left."""
        while True:
            with self.changed:
                if not self.waiting:
                    return
                number, action = self.waiting.popleft()
                self.begun[number] = action
                self.taken += 1
            failed: Exception | None = None
            try:
                action()
            except Exception as error:  # whatever it is, the other actions must be run
                failed = error
            with self.changed:
                del self.begun[number]
                self.ended.add(number)
                if failed is not None:
                    self.errors[number] = failed
                self.changed.notify_all()


def run_bounded(
    actions: Sequence[Action],
    *,
    patience_s: float = PATIENCE_S,
    give_up_s: float = GIVE_UP_S,
) -> tuple[Failure, ...]:
    """Run ``actions`` in order; one that blocks does not hold up the others.

    Where the system has no room for another thread, the caller's thread runs them, however long
    that takes: then one that blocks does hold up the others, but none is left out.

    Args:
        actions: The actions to run.
        patience_s: How long one may take before the next starts beside it.
        give_up_s: How long this call waits in all.

    Returns:
        The actions that failed or still block, in order.
    """
    if not actions:
        return ()
    run = _Run(actions)
    deadline_s = time.monotonic() + give_up_s
    with run.changed:
        while run.waiting or run.begun:
            taken = run.taken
            if run.waiting and not _start(run.work):
                run.changed.release()
                try:
                    run.work()
                finally:
                    run.changed.acquire()
            patient_s = time.monotonic() + patience_s
            while run.waiting or run.begun:
                left_s = min(patient_s, deadline_s) - time.monotonic()
                if left_s <= 0.0:
                    break
                run.changed.wait(left_s)
                if run.taken != taken:
                    taken, patient_s = run.taken, time.monotonic() + patience_s
            if time.monotonic() >= deadline_s:
                break
        stuck = [
            Failure(
                number=number,
                why=f"{_described(action)} is not done after {give_up_s:g} s, and goes on.",
                goes_on=partial(run.goes_on, number),
            )
            for number, action in (*run.begun.items(), *run.waiting)
        ]
        failed = [
            Failure(number=number, why=str(error) or type(error).__name__, error=error)
            for number, error in run.errors.items()
        ]
        return tuple(sorted((*stuck, *failed), key=lambda failure: failure.number))


def _start(work: Callable[[], None]) -> bool:
    """Start a thread; false if there is no room for one."""
    try:
        threading.Thread(target=work, name="restore", daemon=True).start()
    except RuntimeError:  # EAGAIN: the limit of a group, a user or the node is reached
        return False
    return True


def _described(action: Action) -> str:
    """Describe an action; for a partial call, by its arguments."""
    arguments = action.args if isinstance(action, partial) else (action,)
    return " ".join(str(argument) for argument in arguments if isinstance(argument, str | Path))


_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.ENOTDIR})
_BUSY_TRIES: Final = 5
_REMOVE_TRIES: Final = 4
_REMOVE_TRY_S: Final = 0.5
_MOST_PROBLEMS: Final = 3
"""For at most this many threads the reason of a failure is reported."""
RETRY_S: Final = 0.25
"""The time after which an undoing that has failed is tried again."""
_FIRST: Final = ("hard limits", "run", "limits", "knobs")
_V1_LIMIT: Final = "memory.limit_in_bytes"
_WAITS: Final = "waits"
_LATER: Final = ("groups", "folders", "swap")


_LASTING: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENXIO}
)


class Cause(Enum):
    """Why an entry was not undone."""

    REFUSED = "it cannot be one of ours"
    LASTING = "the kernel refuses, and will again"
    FAILED = "it failed, and may succeed the next time"
    BLOCKED = "it has not ended yet, and goes on by itself"


_HOPELESS: Final = frozenset({Cause.REFUSED, Cause.LASTING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrestored:
    """Entries that one undoing did not undo."""

    entries: tuple[JournalEntry, ...]
    cause: Cause
    why: str
    """One sentence."""
    goes_on: Question = bool
    """Whether the kernel still blocks it."""

    def __str__(self) -> str:
        """The sentence."""
        return self.why


def by_entry(problems: Iterable[Unrestored]) -> dict[JournalEntry, Unrestored]:
    """Each entry that was not undone, and why not."""
    return {entry: problem for problem in problems for entry in problem.entries}


@dataclass(frozen=True, slots=True)
class _Step:
    """One action, and the entries that it undoes."""

    entries: tuple[JournalEntry, ...]
    act: Action


class _Plan:
    """The steps of one undoing, in the order of their kinds."""

    def __init__(self, entries: Iterable[JournalEntry], paths: Paths, kept: KeptFiles) -> None:
        self._paths = paths
        self._kept = kept
        self._noted: dict[JournalEntry, list[JournalEntry]] = {}
        """The entries as they are in the journal, by what they undo."""
        for entry in entries:
            inner = entry.entry if isinstance(entry, Noted) else entry
            self._noted.setdefault(inner, []).append(entry)
        self.wanted = tuple(self._noted)
        self._steps: dict[str, list[_Step]] = {kind: [] for kind in (*_FIRST, _WAITS, *_LATER)}
        self.problems: list[Unrestored] = []

    def refuse(self, entry: JournalEntry, why: str) -> None:
        """Leave an entry out."""
        self.wanted = tuple(one for one in self.wanted if one != entry)
        self._note((entry,), Cause.REFUSED, why)

    def add_single(self) -> None:
        """Plan the entries that are undone one by one."""
        paths, kept = self._paths, self._kept
        for entry in self.wanted:
            match entry:
                case Frozen(path=path):
                    self._add("run", (entry,), partial(_write, path, thawed(path), kept))
                case Stopped():
                    self._add("run", (entry,), partial(_continue, entry, paths, kept))
                case OwnedGroup(name=name):
                    self._add("groups", (entry,), partial(_remove_group, name, paths))
                case OwnedFolder(path=path):
                    self._add("folders", (entry,), partial(remove_folder, path))
                case SwapFile(path=path):
                    self._add("swap", (entry,), partial(_remove_swap, path, paths))
                case ZramDevice(path=path):
                    self._add("swap", (entry,), partial(_remove_zram_swap, path, paths))

    def add_files(self, written: Mapping[Path, tuple[int, ...]]) -> None:
        """Plan the values of files, each of which may have several entries.

        Args:
            written: What the daemon may have written last to each file.
        """
        kept = self._kept
        known = frozenset(entry.path for entry in self.wanted if isinstance(entry, FileValue))
        entries: dict[tuple[Path, str], list[JournalEntry]] = {}
        for entry in self.wanted:
            if (setting := setting_of(entry)) is not None:
                entries.setdefault(setting, []).append(entry)
        for (path, key), value in _originals(self.wanted).items():
            of_file = entries[path, key]
            if path.name == OOM_CONTROL:
                self._add(_WAITS, of_file, partial(_write_waits, path, value, known, kept))
                continue
            kind = "knobs" if path.is_relative_to(self._paths.proc) else "limits"
            if path.name == _V1_LIMIT:
                kind = "hard limits"
            numbers = written.get(path, ())
            self._add(kind, of_file, partial(_write_over, path, value, numbers, kept))

    def add_processes(self) -> None:
        """Plan the settings of processes and threads."""
        scores: dict[tuple[int, int], list[OomScore]] = {}
        for entry in self.wanted:
            if isinstance(entry, OomScore):
                scores.setdefault((entry.pid, entry.start_time_ticks), []).append(entry)
        for of_process in scores.values():
            act = partial(_write_oom_score, of_process[0], scores, self._paths, self._kept)
            self._add("knobs", of_process, act)
        groups = tuple(e for e in self.wanted if isinstance(e, GroupThreads))
        threads = tuple(e for e in self.wanted if isinstance(e, ThreadValue))
        if groups or threads:
            act = partial(_reset_threads, groups, threads, self._paths)
            self._add("knobs", (*groups, *threads), act)

    def _add(self, kind: str, entries: Iterable[JournalEntry], act: Action) -> None:
        self._steps[kind].append(_Step(tuple(entries), act))

    def _note(
        self, entries: Iterable[JournalEntry], cause: Cause, why: str, goes_on: Question = bool
    ) -> None:
        noted = tuple(outer for inner in entries for outer in self._noted[inner])
        self.problems.append(Unrestored(entries=noted, cause=cause, why=why, goes_on=goes_on))

    def run_beside(self, *kinds: str) -> None:
        """Run steps one after the other, and beside those that block."""
        steps = [step for kind in kinds for step in self._steps[kind]]
        for failure in run_bounded([step.act for step in steps]):
            cause = Cause.BLOCKED if failure.error is None else _cause_of(failure.error)
            self._note(steps[failure.number].entries, cause, failure.why, failure.goes_on)

    def run(self, *kinds: str) -> None:
        """Run steps one after the other, however long each takes."""
        for step in (step for kind in kinds for step in self._steps[kind]):
            try:
                step.act()
            except (ActuatorError, OSError) as error:
                self._note(step.entries, _cause_of(error), str(error))


def _cause_of(error: Exception) -> Cause:
    number = error.number if isinstance(error, KernelFileError) else getattr(error, "errno", None)
    return Cause.LASTING if number in _LASTING else Cause.FAILED


def restore(
    entries: Iterable[JournalEntry],
    paths: Paths,
    owner: Owner = Owner.DAEMON,
    *,
    kept: KeptFiles | None = None,
) -> tuple[Unrestored, ...]:
    """Undo ``entries``.

    Paused work runs again first, then limits and other settings are put back; only v1 limits are
    put back before, under which system calls of what runs could fail. A write that blocks in the
    kernel does not hold up the others. Whether the kernel kills under a limit is put back
    after all limits: it would kill what waits under one. Then our own groups are killed and
    removed, and last our own folders, swap files and zram devices. If a file has several entries,
    the first is the original.
    A target that has vanished is no failure. Nothing is written to a disk that does not have to
    be undone. What another program wrote since stays. An entry that cannot be one of ours is
    refused.

    Args:
        entries: The entries in the order in which they were noted.
        paths: The kernel's files.
        owner: Whose entries they are.
        kept: What is kept open for them.

    Returns:
        What could not be undone; empty if everything was.
    """
    entries = tuple(entries)
    plan = _Plan(entries, paths, kept or KeptFiles())
    for entry in plan.wanted:
        if why := refusal(entry, paths, owner):
            plan.refuse(entry, why)
    plan.add_single()
    plan.add_files(_written(entries))
    plan.add_processes()
    plan.run_beside(*_FIRST)
    plan.run_beside(_WAITS)
    plan.run(*_LATER)
    return tuple(plan.problems)


def restore_patiently(
    entries: Callable[[], Iterable[JournalEntry]],
    paths: Paths,
    owner: Owner = Owner.DAEMON,
    *,
    patience_s: float,
) -> tuple[Unrestored, ...]:
    """Undo entries, and try again what fails until nothing is left that could still be undone.

    Args:
        entries: Returns the entries in the order in which they were noted.
        paths: The kernel's files.
        owner: Whose entries they are.
        patience_s: After this time no further try is begun.

    Returns:
        What could not be undone; empty if everything was.
    """
    until_s = time.monotonic() + patience_s
    while True:
        problems = restore(entries(), paths, owner)
        hopeless = all(problem.cause in _HOPELESS for problem in problems)
        if hopeless or time.monotonic() >= until_s:
            return problems
        time.sleep(RETRY_S)


def _originals(entries: Iterable[JournalEntry]) -> dict[tuple[Path, str], str]:
    """The values to write: the first one of each file, or of each key in a file."""
    originals: dict[tuple[Path, str], str] = {}
    for entry in entries:
        match entry:
            case FileValue(path=path, value=value):
                originals.setdefault((path, ""), value)
            case KeyedValue(path=path, key=key, value=value):
                originals.setdefault((path, key), f"{key} {value}")
    return originals


def left_alone(entries: Iterable[JournalEntry]) -> dict[Path, str]:
    """The files that :func:`restore` leaves as another program has set them, and their values."""
    entries = tuple(entries)
    written = _written(entries)
    found: dict[Path, str] = {}
    inner = (e.entry if isinstance(e, Noted) else e for e in entries)
    for (path, _), original in _originals(inner).items():
        now = _foreign(path, original, written.get(path, ()), KeptFiles())
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


def _foreign(path: Path, original: str, written: tuple[int, ...], kept: KeptFiles) -> str | None:
    """The value that another program has set since the daemon wrote; ``None`` if none did."""
    if not written:
        return None
    try:
        now = kept.read(path)
    except KernelFileError:
        return None
    if now is None or now == original or may_be_ours(path.name, now, written):
        return None
    return now


def _write_over(path: Path, value: str, written: tuple[int, ...], kept: KeptFiles) -> None:
    """Write an original, unless another program has written its own value since."""
    if _foreign(path, value, written, kept) is None:
        _write(path, value, kept)


def _write(path: Path, value: str, kept: KeptFiles) -> None:
    for attempt in range(_BUSY_TRIES):
        try:
            kept.write(path, value)
        except KernelFileError as error:
            if error.number in _GONE:
                return
            # For a v1 limit below the present usage, each try reclaims a little.
            if error.number != errno.EBUSY or attempt == _BUSY_TRIES - 1:
                raise
        else:
            return


def _continue(entry: Stopped, paths: Paths, kept: KeptFiles) -> None:
    kept.signal(entry, signal.SIGCONT, paths.proc)


def _write_waits(path: Path, value: str, known: frozenset[Path], kept: KeptFiles) -> None:
    """Put back whether a v1 group waits for memory, also in groups inside that inherited it."""
    _write(path, value, kept)
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
            for folder in Walk(entry.folder)
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


def _write_oom_score(
    entry: OomScore, noted: Container[tuple[int, int]], paths: Paths, kept: KeptFiles
) -> None:
    """Give a process its score back, and those below it that have inherited the other one.

    Args:
        entry: What is given back.
        noted: The processes, each by pid and start time, that have entries of their own.
        paths: The kernel's files.
        kept: What is kept open.
    """
    if start_time_ticks(paths.proc, entry.pid) != entry.start_time_ticks:
        return
    given = read_text(paths.proc / str(entry.pid) / "oom_score_adj")
    todo = [entry.pid] if given is not None else []
    while todo:
        pid = todo.pop()
        _write(paths.proc / str(pid) / "oom_score_adj", str(entry.value), kept)
        todo += [
            child
            for child in _children(paths.proc, pid)
            if given != str(entry.value)
            and read_text(paths.proc / str(child) / "oom_score_adj") == given
            and (child, start_time_ticks(paths.proc, child)) not in noted
        ]


def _children(proc: Path, pid: int) -> Iterator[int]:
    for tid in thread_ids(proc, pid):
        text = read_text(proc / str(pid) / "task" / str(tid) / "children") or ""
        yield from map(int, text.split())


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


def _remove_zram_swap(path: Path, paths: Paths) -> None:
    if is_swap(path, read_text(paths.proc / "swaps") or ""):
        _swapoff(path)
    remove_zram(path, paths)


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
