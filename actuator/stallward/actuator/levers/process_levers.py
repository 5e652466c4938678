"""The levers on a slot's single processes, be the slot a group or a process tree."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stallward.actuator.kernel.privileges import CAP_SYS_NICE, may_have
from stallward.actuator.kernel.scheduling import CPUS, NICE, format_cpus, nice_of_weight
from stallward.actuator.levers.base.lever import Lever, Members
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.process.page_advice import (
    PageAdviceLever,
    PageAdviceSpec,
    why_no_advice,
)
from stallward.actuator.levers.process.terminate import TerminateLever, TerminateSpec
from stallward.actuator.levers.process.thread_lever import ThreadLever, ThreadSpec
from stallward.agent.desired import DesiredState, SlotDesire


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

    def nice(granted: DesiredState) -> str | None:
        desire = slot.desire_of(granted)
        weight = desire.cpu_weight if slot.weight_by_nice else None
        wanted = [] if desire.nice is None else [desire.nice]
        wanted += [] if weight is None else [nice_of_weight(weight)]
        return str(max(wanted)) if wanted else None

    def cpus(granted: DesiredState) -> str | None:
        return format_cpus(slot.desire_of(granted).cpus) or None

    def end(granted: DesiredState) -> signal.Signals | None:
        if not slot.desire_of(granted).terminated:
            return None
        return signal.SIGKILL if granted.kill_at_once else signal.SIGTERM

    can_undo = may_have(CAP_SYS_NICE, slot.proc)
    threads = [
        ThreadLever(
            ThreadSpec(
                name=f"{what}:{slot.name}",
                what=what,
                members=slot.members,
                folder=slot.folder,
                value_of=value_of,
                proc=slot.proc,
                missing="" if can_undo else f"without {CAP_SYS_NICE} it could not be undone",
                check=slot.check,
            ),
            originals,
        )
        for what, value_of in ((NICE, nice), (CPUS, cpus))
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
