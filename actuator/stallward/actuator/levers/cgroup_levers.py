"""The levers of a slot that is a cgroup, v2 or hybrid."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial

from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.actuator.kernel.files import why_unreadable
from stallward.actuator.kernel.memory.oom_alarms import OomAlarms
from stallward.actuator.kernel.memory.page_rounding import LARGEST_PAGE_BYTES
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.refusals import unwritable
from stallward.actuator.kernel.target import AnyTarget
from stallward.actuator.levers.base.exempt_processes import ExemptProcesses
from stallward.actuator.levers.base.file_lever import FileLever, FileSpec
from stallward.actuator.levers.base.lever import ASIDE_S, Lever, SlotLimit
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.plugin import LeverEntry, ProcessSource
from stallward.actuator.levers.base.setting_files import (
    LimitFile,
    PlainFile,
    ReclaimingFile,
)
from stallward.actuator.levers.cgroup import cpu_and_io
from stallward.actuator.levers.cgroup.limit_writer import LimitSpec
from stallward.actuator.levers.cgroup.memory_limit import MemoryLimitLever
from stallward.actuator.levers.cgroup.oom_wait import OomWait
from stallward.actuator.levers.cgroup.pause import PauseLever
from stallward.actuator.levers.cgroup.reclaim import ReclaimLever, ReclaimSpec
from stallward.actuator.levers.cgroup.vm_settings import swappiness
from stallward.actuator.levers.process_levers import SlotProcesses, process_levers
from stallward.agent.desired import DesiredState, SlotDesire


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
    alarms: OomAlarms
    """Reports the waits for memory of the slots' processes."""
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
        self._short = cpu_and_io.short(self._group)
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
        if not v2:
            wait = OomWait(
                self._index,
                folder,
                self._originals,
                self._site.alarms,
                aside_s=self._site.aside_s,
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
            members=self._members,
            holds=self._holds,
            populated=self._group.populated,
            kill=self._group.kill,
            desire_of=self._desire,
            check=self._check,
            proc=self._site.paths.proc,
            folder=self._group.unified_dir,
            weight_by_nice=bool(self._weight.missing),
        )
        return process_levers(slot, self._originals)
