"""The levers of a slot that is a process tree: signals, page advice, nice values and CPUs."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.process_table import read_seen
from stallward.actuator.kernel.process_trees import ProcessTree
from stallward.actuator.levers.base.exempt_processes import ExemptProcesses
from stallward.actuator.levers.base.lever import Lever, SlotLimit, SlotPause
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.process.tree_pause import TreePause
from stallward.actuator.levers.process.tree_signals import send
from stallward.actuator.levers.process.tree_squeeze import TreeSqueeze
from stallward.actuator.levers.process_levers import SlotProcesses, process_levers
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire

_KILLED_S: Final = 2.0
_LOOK_S: Final = 0.02


class TreeSlot:
    """Makes the levers of one slot.

    Args:
        index: Of the slot.
        tree: Its processes.
        proc: Where /proc is.
        originals: Keeps the journal.
        spared: Processes that are left alone.
    """

    def __init__(
        self,
        index: int,
        tree: ProcessTree,
        proc: Path,
        originals: Originals,
        spared: ExemptProcesses,
    ) -> None:
        self._index = index
        self._tree = tree
        self._proc = proc
        self._originals = originals
        self._spared = spared
        self._check = partial(spared.check, tree)

    def _wish(self, granted: DesiredState) -> SlotDesire:
        return granted.slot(self._index)

    def pause(self) -> SlotPause:
        """SIGSTOP."""
        return TreePause(self._index, self._tree, self._proc, self._originals, spared=self._spared)

    def memory(self) -> tuple[SlotLimit, Lever]:
        """Squeezing to a limit, and once down to a size."""

        def limit(granted: DesiredState) -> tuple[int | None, bool]:
            wish = self._wish(granted)
            return wish.limit_bytes, wish.paused and not wish.terminated

        def reclaim(granted: DesiredState) -> tuple[int | None, bool]:
            return self._wish(granted).reclaim_to_bytes, True

        return (
            TreeSqueeze(self._tree, self._proc, limit, spared=self._spared),
            TreeSqueeze(
                self._tree,
                self._proc,
                reclaim,
                spared=self._spared,
                name=f"reclaim:{self._tree.name}",
                once=True,
            ),
        )

    def files(self) -> tuple[Lever, ...]:
        """A tree has no files of its own."""
        return ()

    def processes(self) -> tuple[Lever, ...]:
        """What acts on the processes one by one."""
        slot = SlotProcesses(
            name=self._tree.name,
            members=self._tree.pids,
            kill=self._kill,
            wish=self._wish,
            check=self._check,
            proc=self._proc,
        )
        return process_levers(slot, self._originals)

    def _kill(self) -> tuple[int, ...]:
        """SIGKILL to every member; returns who is left. Runs on a thread: it may wait."""
        deadline_s = time.monotonic() + _KILLED_S
        while True:
            left = self._alive()
            if not left or time.monotonic() >= deadline_s:
                return tuple(ref.pid for ref in left)
            send(self._proc, left, signal.SIGKILL)
            time.sleep(_LOOK_S)

    def _alive(self) -> list[ProcessRef]:
        spared, found = self._spared.pids(), []
        for member in list(self._tree.members.values()):
            seen = read_seen(self._proc, member.pid)
            there = seen is not None and seen.ref == member.ref and not seen.ended
            if there and member.pid not in spared:
                found.append(member.ref)
        return found
