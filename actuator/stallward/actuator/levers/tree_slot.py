"""The levers of a slot that is a process tree: signals, page advice, nice values and CPUs."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.process_table import read_seen
from stallward.actuator.kernel.process_trees import ProcessTree
from stallward.actuator.levers.base.lever import ExemptProcesses, Lever, SlotLimit, SlotPause
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.plugin import ProcessSource
from stallward.actuator.levers.process.tree_pause import TreePause, send
from stallward.actuator.levers.process.tree_squeeze import TreeSqueeze
from stallward.actuator.levers.slot_levers import SlotProcesses, process_levers
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire

_KILLED_S: Final = 2.0
_LOOK_S: Final = 0.02


class TreeSlot:
    """Makes the levers of one slot.

    Args:
        index: The slot's index.
        tree: The slot's processes.
        proc: The /proc directory.
        originals: Keeps the journal.
        exempt: Processes that are left alone.
    """

    def __init__(
        self,
        index: int,
        tree: ProcessTree,
        proc: Path,
        originals: Originals,
        exempt: ExemptProcesses,
    ) -> None:
        self._index = index
        self._tree = tree
        self._proc = proc
        self._originals = originals
        self._exempt = exempt
        self._check = partial(exempt.check, tree)

    def _desire(self, granted: DesiredState) -> SlotDesire:
        return granted.slot(self._index)

    def pause(self) -> SlotPause:
        """The pause lever, which sends SIGSTOP."""
        return TreePause(self._index, self._tree, self._proc, self._originals, exempt=self._exempt)

    def memory(self) -> tuple[SlotLimit, Lever]:
        """The levers that squeeze the tree: to a limit, and once down to a size."""

        def limit(granted: DesiredState) -> tuple[int | None, bool]:
            desire = self._desire(granted)
            return desire.limit_bytes, desire.paused and not desire.terminated

        def reclaim(granted: DesiredState) -> tuple[int | None, bool]:
            return self._desire(granted).reclaim_to_bytes, True

        return (
            TreeSqueeze(self._tree, self._proc, limit, exempt=self._exempt),
            TreeSqueeze(
                self._tree,
                self._proc,
                reclaim,
                exempt=self._exempt,
                name=f"reclaim:{self._tree.name}",
                once=True,
            ),
        )

    def files(self) -> tuple[Lever, ...]:
        """Empty: a tree has no files of its own."""
        return ()

    def source(self) -> ProcessSource:
        """The tree's processes, for what is done to file pages."""
        return ProcessSource(members=self._tree.pids, holds=self._holds, check=self._check)

    def processes(self) -> tuple[Lever, ...]:
        """The levers on the slot's single processes."""
        slot = SlotProcesses(
            name=self._tree.name,
            source=self.source(),
            populated=lambda: bool(self._tree.pids()),
            kill=self._kill,
            desire_of=self._desire,
            proc=self._proc,
        )
        return process_levers(slot, self._originals)

    def _kill(self) -> tuple[int, ...]:
        """Send SIGKILL to every member; return those left. It may wait, so it runs on a thread."""
        deadline_s = time.monotonic() + _KILLED_S
        while True:
            left = self._alive()
            if not left or time.monotonic() >= deadline_s:
                return tuple(ref.pid for ref in left)
            send(self._proc, left, signal.SIGKILL)
            time.sleep(_LOOK_S)

    def _holds(self, pid: int) -> bool:
        """Whether a process is a member, and not another one that has its pid now."""
        member, seen = self._tree.members.get(pid), read_seen(self._proc, pid)
        return member is not None and seen is not None and seen.ref == member.ref

    def _alive(self) -> list[ProcessRef]:
        exempt, alive = self._exempt.pids(), []
        for member in list(self._tree.members.values()):
            seen = read_seen(self._proc, member.pid)
            runs = seen is not None and seen.ref == member.ref and not seen.ended
            if runs and member.pid not in exempt:
                alive.append(member.ref)
        return alive
