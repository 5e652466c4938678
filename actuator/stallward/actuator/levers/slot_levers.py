"""The levers of a slot: a cgroup's, v2 or hybrid, and those on single processes and threads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.files import why_unreadable
from stallward.actuator.kernel.memory.limit_writes import LARGEST_PAGE_BYTES
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.privileges import CAP_SYS_NICE, may_have
from stallward.actuator.kernel.refusals import unwritable
from stallward.actuator.kernel.scheduling import (
    CPUS,
    NICE,
    SLICE,
    format_cpus,
    nice_of_weight,
    why_no_slice,
)
from stallward.actuator.kernel.target import AnyTarget
from stallward.actuator.levers.base.file_lever import FileLever, FileSpec
from stallward.actuator.levers.base.held_setting import (
    LimitFile,
    PlainFile,
    ReclaimingFile,
)
from stallward.actuator.levers.base.lever import (
    ASIDE_S,
    ExemptProcesses,
    Lever,
    Members,
    SlotLimit,
)
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.plugin import LeverEntry, ProcessSource
from stallward.actuator.levers.cgroup import cpu_and_io
from stallward.actuator.levers.cgroup.memory_limit import LimitSpec, MemoryLimitLever
from stallward.actuator.levers.cgroup.pause import PauseLever
from stallward.actuator.levers.cgroup.reclaim import ReclaimLever, ReclaimSpec
from stallward.actuator.levers.cgroup.vm_settings import swappiness
from stallward.actuator.levers.process.page_advice import (
    PageAdviceLever,
)
from stallward.actuator.levers.process.stop import TerminateLever
from stallward.actuator.levers.process.thread_lever import ForAll, ForSome, ThreadLever, ThreadSpec
from stallward.agent.controller import THREAD_NEEDS, Need
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.threads import ThreadDesire

if TYPE_CHECKING:
    from stallward.actuator.levers.cgroup.oom_wait import OomAlarms


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProcesses:
    """The processes of a slot, and how to act on them."""

    name: str
    """The slot's name, as in the names of its levers."""
    source: ProcessSource
    """The slot's processes."""
    populated: Callable[[], bool]
    """Whether a process is left, be it one that ``source`` cannot name."""
    kill: Callable[[], tuple[int, ...]]
    """Kills all processes; returns those that are left."""
    desire_of: Callable[[DesiredState], SlotDesire]
    """Takes the slot's part from a desired state."""
    proc: Path
    """The /proc directory."""
    folder: Path | None = None
    """The cgroup directory of the slot, for the journal; ``None`` for a process tree."""
    weight_by_nice: bool = True
    """Whether a CPU weight is given as a nice value, because the slot has no weight of its own."""


def process_levers(slot: SlotProcesses, originals: Originals) -> tuple[Lever, ...]:
    """Make the levers on nice values, CPUs and pages, and the one that terminates the slot."""

    def nice(granted: DesiredState) -> ForAll | None:
        desire = slot.desire_of(granted)
        weight = desire.cpu_weight if slot.weight_by_nice else None
        wanted = [] if desire.nice is None else [desire.nice]
        wanted += [] if weight is None else [nice_of_weight(weight)]
        return ForAll(NICE, str(max(wanted))) if wanted else None

    def cpus(granted: DesiredState) -> ForAll | None:
        wanted = slot.desire_of(granted).cpus
        return ForAll(CPUS, format_cpus(wanted)) if wanted else None

    def end(granted: DesiredState) -> signal.Signals | None:
        if not slot.desire_of(granted).terminated:
            return None
        return signal.SIGKILL if granted.kill_at_once else signal.SIGTERM

    threads = [
        ThreadLever(
            ThreadSpec(
                name=f"{what}:{slot.name}",
                what=what,
                members=slot.source.members,
                folder=slot.folder,
                wishes_of=wishes_of,
                proc=slot.proc,
                missing=_why_not_undone(slot.proc),
                check=slot.source.check,
            ),
            originals,
        )
        for what, wishes_of in ((NICE, nice), (CPUS, cpus))
    ]
    return (
        *threads,
        PageAdviceLever(
            f"pages:{slot.name}",
            slot.source,
            lambda granted: slot.desire_of(granted).page_advice,
            slot.proc,
        ),
        TerminateLever(
            f"terminate:{slot.name}",
            slot.source,
            populated=slot.populated,
            kill=slot.kill,
            signal_of=end,
        ),
    )


def _why_not_undone(proc: Path) -> str:
    """Why a change of threads could not be undone; empty if it could."""
    return "" if may_have(CAP_SYS_NICE, proc) else f"without {CAP_SYS_NICE} it could not be undone"


def why_no_thread_settings(proc: Path) -> dict[Need, str]:
    """Say which settings of the application's threads cannot be changed here, with the reason."""
    not_undone = _why_not_undone(proc)
    reasons = dict.fromkeys(THREAD_NEEDS, not_undone)
    reasons[Need.THREAD_SLICE] = not_undone or why_no_slice()
    return {need: why for need, why in reasons.items() if why}


def protected_thread_levers(
    name: str, members: Members, folder: Path | None, proc: Path, originals: Originals
) -> tuple[Lever, ...]:
    """Make the levers on single threads of the protected application.

    Args:
        name: The application's name, as in the names of levers.
        members: Returns its processes.
        folder: Its cgroup directory; ``None`` for a process tree.
        proc: The /proc directory.
        originals: Keeps the journal.
    """

    def slice_us(desire: ThreadDesire) -> str | None:
        return None if desire.slice_us is None else str(desire.slice_us)

    def nice(desire: ThreadDesire) -> str | None:
        return None if desire.nice is None else str(desire.nice)

    def cpus(desire: ThreadDesire) -> str | None:
        return format_cpus(desire.cpus) or None

    missing = why_no_thread_settings(proc)
    kinds = (
        (Need.THREAD_SLICE, SLICE, slice_us),
        (Need.THREAD_NICE, NICE, nice),
        (Need.THREAD_CPUS, CPUS, cpus),
    )
    return tuple(
        ThreadLever(
            ThreadSpec(
                name=f"{need}:{name}",
                what=what,
                members=members,
                folder=folder,
                wishes_of=partial(_wishes, value_of),
                proc=proc,
                missing=missing.get(need, ""),
            ),
            originals,
        )
        for need, what, value_of in kinds
    )


def _wishes(
    value_of: Callable[[ThreadDesire], str | None], granted: DesiredState
) -> ForSome | None:
    wanted = tuple(
        (desire.thread, value)
        for desire in granted.protected_threads
        if (value := value_of(desire)) is not None
    )
    return ForSome(wanted) if wanted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The parts of a node on which its levers act."""

    paths: Paths
    """The kernel's files."""
    hierarchy: Hierarchy
    """The node's cgroup hierarchies."""
    zone: Cgroup
    """The group that the protected application and the background share."""
    applications: tuple[AnyTarget, ...]
    """The groups or process trees of the protected applications."""
    slots: tuple[AnyTarget, ...]
    """The background groups or process trees, in slot order."""
    zone_limit_bytes: int | None
    """The zone's memory limit; ``None`` for the whole machine."""
    exempt: ExemptProcesses
    """Exempt processes: a group that holds one of them is not changed."""
    alarms: OomAlarms | None = None
    """Reports the waits for memory of the slots' processes; ``None`` on v2, where none waits."""
    aside_s: float = ASIDE_S
    """How long a lever steps aside after a foreign change."""
    hard_protection: tuple[bool, ...] = ()
    """Whether the guaranteed memory of each application is never reclaimed, on v2; by default not."""
    plugins: tuple[LeverEntry, ...] = ()
    """The levers of other packages."""


class GroupSlot:
    """Makes the levers of one slot."""

    def __init__(self, site: Site, index: int, group: Cgroup, originals: Originals) -> None:
        self._site = site
        self._index = index
        self._originals = originals
        self._group = group
        self._short = self._group.short_name
        self._check = partial(site.exempt.check, self._group)
        self._members = partial(self._group.pids, recursive=True)
        self._weight = cpu_and_io.cpu_weight(group, self._desire, self._check)

    def _desire(self, granted: DesiredState) -> SlotDesire:
        return granted.slot(self._index)

    def pause(self) -> PauseLever:
        """The pause lever; a group that is to end must run."""

        def paused(granted: DesiredState) -> bool:
            desire = self._desire(granted)
            return desire.paused and not desire.terminated

        return PauseLever(
            self._group,
            self._originals,
            paused,
            exempt=self._site.exempt,
            aside_s=self._site.aside_s,
        )

    def memory(self) -> tuple[SlotLimit, Lever, Lever]:
        """The levers on the soft limit, the hard limit and reclaim."""
        v2 = self._group.hierarchy.kind == "v2"
        folder = self._group.memory_dir or self._site.paths.cgroup
        usage = folder / ("memory.current" if v2 else "memory.usage_in_bytes")
        lock = threading.Lock()
        v1_limit = folder / "memory.limit_in_bytes"
        wait = None
        if self._site.alarms is not None:
            wait = self._site.alarms.wait_of(
                self._index, folder, self._originals, aside_s=self._site.aside_s
            )
        soft: PlainFile = (
            ReclaimingFile(path=folder / "memory.high", tolerance=LARGEST_PAGE_BYTES, cap=True)
            if v2
            else LimitFile(path=v1_limit, tolerance=LARGEST_PAGE_BYTES, cap=True)
        )
        limit = MemoryLimitLever(
            LimitSpec(
                name=f"limit:{self._short}",
                setting=soft,
                usage=usage,
                value_of=lambda granted: self._desire(granted).limit_bytes,
                wait=wait,
                check=self._check,
                missing=self._missing(soft),
            ),
            self._originals,
            aside_s=self._site.aside_s,
            lock=lock,
        )
        reclaim_file = folder / "memory.reclaim"
        no_reclaim = ""
        if v2 and self._group.exists() and not reclaim_file.exists():
            no_reclaim = f"no {reclaim_file} (kernel 5.19 or newer has it)"
        elif v2 and self._group.exists():
            no_reclaim, _ = unwritable(reclaim_file)
        reclaim = ReclaimLever(
            ReclaimSpec(
                name=f"reclaim:{self._short}",
                usage=usage,
                target_of=lambda granted: self._desire(granted).reclaim_to_bytes,
                file=reclaim_file if v2 else None,
                limit=None if v2 else v1_limit,
                wait=wait,
                missing=no_reclaim,
                lock=lock,
                check=self._check,
            ),
            self._originals,
        )
        hard = ReclaimingFile(path=folder / "memory.max", tolerance=LARGEST_PAGE_BYTES, cap=True)
        why = self._missing(hard) or no_reclaim if v2 else "on v1 limit_bytes is hard already"
        hard_limit = MemoryLimitLever(
            LimitSpec(
                name=f"hard_limit:{self._short}",
                setting=None if why else hard,
                usage=usage,
                value_of=lambda granted: self._desire(granted).hard_limit_bytes,
                reclaim_first=reclaim_file,
                check=self._check,
                missing=why,
                in_slot_state=False,
            ),
            self._originals,
            aside_s=self._site.aside_s,
        )
        return limit, hard_limit, reclaim

    def _missing(self, setting: PlainFile) -> str:
        return why_unreadable(setting.path) if self._group.exists() else ""

    def files(self) -> tuple[FileLever, ...]:
        """The levers on swap, CPU and disk."""
        group, paths = self._group, self._site.paths
        specs: tuple[FileSpec, ...] = (
            cpu_and_io.swap_max(group, self._desire, self._check),
            self._weight,
            cpu_and_io.cpu_max(group, self._desire, self._check),
            cpu_and_io.io_weight(group, self._desire, self._check, paths),
            cpu_and_io.io_max(group, self._desire, self._check, paths),
        )
        aside_s = self._site.aside_s
        specs += swappiness(group)
        return tuple(FileLever(spec, self._originals, aside_s=aside_s) for spec in specs)

    def source(self) -> ProcessSource:
        """The slot's processes, for what is done to file pages."""
        return ProcessSource(members=self._members, holds=self._holds, check=self._check)

    def _holds(self, pid: int) -> bool:
        return pid in self._members()

    def processes(self) -> tuple[Lever, ...]:
        """The levers on the slot's single processes."""
        slot = SlotProcesses(
            name=self._short,
            source=self.source(),
            populated=self._group.populated,
            kill=self._group.kill,
            desire_of=self._desire,
            proc=self._site.paths.proc,
            folder=self._group.unified_dir,
            weight_by_nice=bool(self._weight.missing),
        )
        return process_levers(slot, self._originals)
