"""The levers on single processes and threads, of a group or a process tree."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stallward.actuator.kernel.privileges import CAP_SYS_NICE, may_have
from stallward.actuator.kernel.scheduling import (
    CPUS,
    NICE,
    SLICE,
    format_cpus,
    nice_of_weight,
)
from stallward.actuator.kernel.threads.timeslice import why_no_slice
from stallward.actuator.levers.base.lever import Lever, Members
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.process.page_advice import (
    PageAdviceLever,
    PageAdviceSpec,
    why_no_advice,
)
from stallward.actuator.levers.process.terminate import TerminateLever, TerminateSpec
from stallward.actuator.levers.process.thread_lever import ThreadLever, ThreadSpec
from stallward.actuator.levers.process.thread_wishes import ForAll, ForSome
from stallward.agent.controller import THREAD_NEEDS, Need
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.threads import ThreadDesire


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProcesses:
    """The processes of a slot, and how to act on them."""

    name: str
    """The slot's name, as in the names of its levers."""
    members: Members
    """Returns the slot's processes."""
    holds: Callable[[int], bool]
    """Asks the kernel whether a process is one of them now."""
    populated: Callable[[], bool]
    """Whether a process is left, be it one that ``members`` cannot name."""
    kill: Callable[[], tuple[int, ...]]
    """Kills all processes; returns those that are left."""
    desire_of: Callable[[DesiredState], SlotDesire]
    """Takes the slot's part from a desired state."""
    check: Callable[[], None]
    """Called before acting; raises to refuse it."""
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
                members=slot.members,
                folder=slot.folder,
                wishes_of=wishes_of,
                proc=slot.proc,
                missing=_why_not_undone(slot.proc),
                check=slot.check,
            ),
            originals,
        )
        for what, wishes_of in ((NICE, nice), (CPUS, cpus))
    ]
    advice = PageAdviceSpec(
        name=f"pages:{slot.name}",
        members=slot.members,
        holds=slot.holds,
        advice_of=lambda granted: slot.desire_of(granted).page_advice,
        proc=slot.proc,
        missing=why_no_advice(slot.proc),
        check=slot.check,
    )
    terminate = TerminateSpec(
        name=f"terminate:{slot.name}",
        members=slot.members,
        holds=slot.holds,
        populated=slot.populated,
        kill=slot.kill,
        signal_of=end,
        check=slot.check,
    )
    return (*threads, PageAdviceLever(advice), TerminateLever(terminate))


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
