"""The levers of a slot that act on its processes one by one, be it a group or a tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stallward.actuator.kernel.privileges import CAP_SYS_NICE, may_have
from stallward.actuator.kernel.scheduling import CPUS, NICE, format_cpus
from stallward.actuator.levers.base.lever import Lever, Members
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.process.page_advice import (
    PageAdviceLever,
    PageAdviceSpec,
    why_no_advice,
)
from stallward.actuator.levers.process.terminate import EndLever, EndSpec
from stallward.actuator.levers.process.thread_lever import ThreadLever, ThreadSpec
from stallward.agent.desired import DesiredState, SlotDesire


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProcesses:
    """The processes of a slot, and how to act on them.

    Attributes:
        name: Of the slot, as in the names of its levers.
        members: Its processes.
        kill: Kills all of them; returns those that are left.
        wish: What a state wants of the slot.
        check: Called before acting; raises to refuse it.
        proc: Where processes are.
        folder: The group that holds them, for the journal; ``None`` for a tree.
    """

    name: str
    members: Members
    kill: Callable[[], tuple[int, ...]]
    wish: Callable[[DesiredState], SlotDesire]
    check: Callable[[], None]
    proc: Path
    folder: Path | None = None


def process_levers(slot: SlotProcesses, originals: Originals) -> tuple[Lever, ...]:
    """Nice values and CPUs of threads, advice on pages, and ending."""

    def nice(granted: DesiredState) -> str | None:
        value = slot.wish(granted).nice
        return None if value is None else str(value)

    def cpus(granted: DesiredState) -> str | None:
        return format_cpus(slot.wish(granted).cpus) or None

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
        advice_of=lambda granted: slot.wish(granted).page_advice,
        proc=slot.proc,
        missing=why_no_advice(slot.proc),
        check=slot.check,
    )
    end = EndSpec(
        name=f"terminate:{slot.name}",
        members=slot.members,
        kill=slot.kill,
        wanted_of=lambda granted: slot.wish(granted).terminated,
        proc=slot.proc,
        check=slot.check,
    )
    return (*threads, PageAdviceLever(advice), EndLever(end))
