"""The lever on oom_score_adj, which keeps the OOM killer from the protected application.

Lowering a score needs CAP_SYS_RESOURCE. Where the kernel refuses it, the background's scores are
raised instead, so that the kernel picks the background first.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.journal.entries import OomScore
from stallward.actuator.kernel.cgroups import MOST_SEARCHED
from stallward.actuator.kernel.files import read_text, write_text
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import read_seen, start_time_ticks
from stallward.actuator.kernel.target import Target
from stallward.actuator.levers.base.lever import LeverDefaults, PlannedWrite
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import DesiredState
from stallward.agent.sample import LeverState

PROTECTED: Final = -1000
"""The score of a process that the kernel never kills."""
BACKGROUND: Final = 500
"""A score that counts as half of all memory on top of what the process uses."""
_RESCAN_S: Final = 1.0


class OomScoreLever(LeverDefaults):
    """The OOM scores of the protected application, or else of the background.

    Args:
        paths: The kernel's files.
        protected: The protected application's group.
        slots: The background groups.
        originals: Keeps the journal.
    """

    name = "oom"

    def __init__(
        self, paths: Paths, protected: Target, slots: tuple[Target, ...], originals: Originals
    ) -> None:
        self._proc = paths.proc
        self._protected = protected
        self._slots = slots
        self._originals = originals
        self._changed: dict[tuple[int, int], OomScore] = {}
        self._noted: dict[OomScore, None] = {}
        """The journal's entries, also of processes whose score could not be changed."""
        self._first: dict[int, tuple[int, int]] = {}
        """By score written: when it was first written (start time ticks), and the score before."""
        self._scan_at_s = 0.0
        self._wanted = False
        self._since_s = 0.0
        self.foreign_total = 0
        self.refused = False
        """Whether lowering a score was refused (no CAP_SYS_RESOURCE)."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Why only the background's scores can be changed, if that is so."""
        if not self.refused:
            return ()
        return ("oom: lowering a score is refused; the background's are raised",)

    @property
    def idle(self) -> bool:
        """Whether neither a regular scan for new processes nor a retry is due."""
        return not self._wanted and not self.held

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Adjust the scores of all processes once a second, or put them back.

        A process that has left the application, or its slot, gets its own back as well.
        """
        if not granted.protect_from_oom:
            return self.restore(now_s)
        if not self._wanted:
            self._wanted, self._since_s = True, now_s
        if now_s < self._scan_at_s:
            return ()
        self._scan_at_s = now_s + _RESCAN_S
        results: list[LeverResult] = []
        seen: set[tuple[int, int]] = set()
        if not self.refused:
            results += self._adjust(self._protected, PROTECTED, seen)
        if self.refused:
            for group in self._slots:
                results += self._adjust(group, BACKGROUND, seen)
        self._drop_dead(seen)
        left = [process for process in self._changed if process not in seen]
        return (*results, *self._give_back(left))

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Give every process its score back, also those forked meanwhile."""
        self._wanted, self._scan_at_s = False, 0.0
        if self.held:
            attempt("oom", "", self._note_forked)  # best effort: restoring comes first
        results = self._give_back(tuple(self._changed))
        if not self._changed:
            self._originals.release_all(tuple(self._noted))
            self._noted.clear()
            self._first.clear()
        return tuple(results)

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write for all processes whose score would change."""
        if granted.protect_from_oom == self._wanted:
            return ()
        target = "oom_score_adj of the protected application's processes"
        after, undo = str(PROTECTED), "every process gets its score back"
        if self.refused:
            target, after = "oom_score_adj of the background's processes", str(BACKGROUND)
        if self._wanted:
            after = "original"
        return (PlannedWrite(lever=self.name, target=target, before="", after=after, undo=undo),)

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """The score that is written, while any process has it."""
        if not self._changed:
            return ()
        value, age_s = str(BACKGROUND if self.refused else PROTECTED), now_s - self._since_s
        return (LeverState(lever=self.name, value=value, held_for_s=age_s),)

    def _note_forked(self) -> None:
        """Note the processes forked since the last scan, which have their parent's score."""
        for score in self._first:
            for group in (self._protected,) if score < 0 else self._slots:
                for pid in group.pids(recursive=True, most=MOST_SEARCHED):
                    text = read_text(self._proc / str(pid) / "oom_score_adj")
                    ticks = start_time_ticks(self._proc, pid)
                    if text == str(score) and ticks is not None:
                        attempt("oom", text, partial(self._write, pid, ticks, score))

    def _adjust(self, group: Target, score: int, seen: set[tuple[int, int]]) -> list[LeverResult]:
        results = []
        for pid in group.pids(recursive=True, most=MOST_SEARCHED):
            if self.refused and score < 0:
                break
            ticks = start_time_ticks(self._proc, pid)
            if ticks is None:
                continue
            seen.add((pid, ticks))
            if (pid, ticks) in self._changed:
                continue
            result = attempt(f"oom:{pid}", str(score), partial(self._write, pid, ticks, score))
            results.append(result)
        return results

    def _drop_dead(self, seen: set[tuple[int, int]]) -> None:
        """Forget processes that have ended; those ``seen`` have not."""
        dead = [
            entry
            for entry in self._noted
            if (entry.pid, entry.start_time_ticks) not in seen
            and start_time_ticks(self._proc, entry.pid) != entry.start_time_ticks
        ]
        for entry in dead:
            del self._noted[entry]
            self._changed.pop((entry.pid, entry.start_time_ticks), None)
        self._originals.release_all(dead)

    def _note(self, entry: OomScore) -> None:
        self._originals.ensure(entry)
        self._noted[entry] = None

    def _write(self, pid: int, ticks: int, score: int) -> None:
        path = self._proc / str(pid) / "oom_score_adj"
        text = read_text(path)
        if text is None:
            return  # it has just ended
        original = OomScore(pid, ticks, int(text))
        since_ticks, before = self._first.get(score, (None, 0))
        if original.value == score and since_ticks is not None and ticks >= since_ticks:
            inherited = OomScore(pid, ticks, self._parents(pid, before))
            if (pid, ticks) not in self._changed:
                self._note(inherited)
                self._changed[(pid, ticks)] = inherited
            return
        if (score < 0 and original.value <= score) or (score > 0 and original.value >= score):
            return
        self._note(original)
        now_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        try:
            write_text(path, str(score))
        except KernelFileError as error:
            if error.number in {errno.ENOENT, errno.ESRCH}:
                return
            if score < 0 and error.number in {errno.EACCES, errno.EPERM}:
                self.refused = True
            raise
        self._changed[(pid, ticks)] = original
        self._first.setdefault(score, (now_ticks, original.value))

    def _parents(self, pid: int, otherwise: int) -> int:
        """The score that a process's parent had, if it still has the process and was changed."""
        child = read_seen(self._proc, pid)
        parent = None if child is None else read_seen(self._proc, child.parent)
        if parent is None:
            return otherwise
        changed = self._changed.get((parent.pid, parent.start_time_ticks))
        return otherwise if changed is None else changed.value

    def _give_back(self, processes: Iterable[tuple[int, int]]) -> list[LeverResult]:
        """Give some processes their scores back."""
        results = []
        for pid, ticks in processes:
            original = self._changed[(pid, ticks)]
            path = self._proc / str(pid) / "oom_score_adj"
            if start_time_ticks(self._proc, pid) == ticks and not self._is_foreign(path):
                value = str(original.value)
                result = attempt(f"oom:{pid}", value, partial(write_text, path, value))
                results.append(result)
                if not result.ok and start_time_ticks(self._proc, pid) == ticks:
                    continue  # tried again
            del self._changed[(pid, ticks)]
            del self._noted[original]
            self._originals.release(original)
        return results

    def _is_foreign(self, path: Path) -> bool:
        """Whether there was a foreign change of the score, which then stays."""
        foreign = read_text(path) not in {str(PROTECTED), str(BACKGROUND)}
        self.foreign_total += foreign
        return foreign

    @property
    def held(self) -> bool:
        """Whether any score may not be the original, also of a process whose parent has ended."""
        return bool(self._changed or self._first)
