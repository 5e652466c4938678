"""``ws-flush``, ``ws-pressure``, ``ws-deactivate``, ``ws-promote``: working-set heuristics.

Source: the kernel patches in a Birkbeck thesis of 2011, sections 6 and 7, done from user space.
Its ``vmscan`` patches act when free memory is at a watermark; its scheduler patches, when reclaim
is in distress, which is its *priority*: it counts down from 12 with every pass over the lists that
did not free enough, and they act below 4. User space does not see the priority. Here reclaim of
priority p counts as distress of 100 / 2^p per cent (as the kernel itself once defined distress),
and distress is the share of the time in which all tasks of the zone stalled on memory (PSI
``full``). docs/explanation/working-set.md says what else differs, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import (
    Controller,
    Decision,
    IgnoresTarget,
    Need,
    NodeContext,
    needs_of_file_pages,
    require_needs,
)
from stallward.agent.desired import RELEASED, DesiredState
from stallward.agent.errors import ControllerError
from stallward.agent.file_pages import GRAB_PAGES, FilePages, FileScope, Victim
from stallward.agent.observation.phase_change import PhaseChanges
from stallward.agent.plugin import ControllerEntry, number
from stallward.agent.sample import Sample
from stallward.papers.controllers.watermarks import free_bytes, watermarks_of

Trigger = Literal["low", "min", "distress", "phase"]
"""Free memory at LOW or at MIN while reclaim runs; reclaim in distress; or a background group
that goes over to another phase of locality, which the thesis proposes in section 8.3."""
_SEEN_BY: Final[Mapping[Trigger, tuple[Need, ...]]] = {
    "low": (Need.MEMORY_STALL, Need.AVAILABLE_MEMORY),
    "min": (Need.MEMORY_STALL, Need.AVAILABLE_MEMORY),
    "distress": (Need.MEMORY_STALL,),
    "phase": (),
}
"""The signals without which a trigger would never hold. The sizes of the groups, by which phases
are told, are read on every node."""

PRIORITIES: Final = 12
"""The priority of the first pass of reclaim (DEF_PRIORITY)."""
DISTRESS_PRIORITY: Final = 3
"""Below 4 is at most 3."""

_W = TypeVar("_W", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heuristic:
    """What is done, and when."""

    wish: FilePages
    trigger: Trigger
    priority: int = DISTRESS_PRIORITY
    """The priority of reclaim from which on it is in distress."""

    @property
    def distress_share(self) -> float:
        """The least share of the time in which all tasks stall on memory in distress."""
        return 0.5**self.priority


class WorkingSetController(IgnoresTarget):
    """Wants one thing done to file pages at every tick at which its trigger holds.

    Args:
        name: The controller's name.
        heuristic: What it does, and when.
    """

    needs_processes = False

    def __init__(self, name: str, heuristic: Heuristic) -> None:
        self.name = name
        self.heuristic = heuristic
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def check(self, context: NodeContext) -> None:
        """Check that file pages can be acted on as is wanted, and that the trigger can be seen."""
        needs = (*needs_of_file_pages(self.heuristic.wish), *_SEEN_BY[self.heuristic.trigger])
        require_needs(self.name, needs, context)

    def reset(self, context: NodeContext) -> None:
        """Forget the stalls and the phases."""
        self._context = context
        self._phases = PhaseChanges()
        self._time_s: float | None = None
        self._some_us: int | None = None
        self._full_us: int | None = None

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """What is done at this tick."""
        passed_s = 0.0 if self._time_s is None else max(sample.time_s - self._time_s, 0.0)
        psi = sample.zone.psi
        reclaims = _grown(psi.memory_some_us, self._some_us) > 0
        stalled_us = _grown(psi.memory_full_us, self._full_us)
        self._time_s, self._some_us, self._full_us = (
            sample.time_s, psi.memory_some_us, psi.memory_full_us,
        )  # fmt: skip
        follows = self.heuristic.trigger == "phase"
        changed = self._phases.update(sample.slots, passed_s) if follows else ()
        reason = self._why(sample, reclaims, stalled_us, passed_s, changed)
        if not reason:
            return Decision(desired=RELEASED, reason="memory is not low")
        return Decision(desired=DesiredState(file_pages=self.heuristic.wish), reason=reason)

    def _why(
        self,
        sample: Sample,
        reclaims: bool,
        stalled_us: int,
        passed_s: float,
        changed: tuple[int, ...],
    ) -> str:
        """Why to act at this tick; empty to do nothing."""
        heuristic = self.heuristic
        if heuristic.trigger == "phase":
            names = ", ".join(sample.slots[slot].name for slot in changed)
            return f"phase ended: {names}" if changed else ""
        if heuristic.trigger == "distress":
            share = stalled_us * 1e-6 / passed_s if passed_s > 0.0 else 0.0
            return f"distress: {share:.0%}" if share >= heuristic.distress_share else ""
        zone_bytes = sample.zone.memory_limit_bytes or self._context.zone_limit_bytes
        marks = watermarks_of(zone_bytes, self._context.watermark_min_bytes)
        mark = marks.low_bytes if heuristic.trigger == "low" else marks.min_bytes
        free = free_bytes(sample.zone, zone_bytes)
        if free is None or free > mark or not reclaims:
            return ""
        return f"at {heuristic.trigger}: {free / 1e6:.1f} MB free"


def _grown(now_us: int | None, before_us: int | None) -> int:
    return 0 if now_us is None or before_us is None else max(now_us - before_us, 0)


# ------------------------------------------------------------------ the arms


def _word(
    arguments: Mapping[str, str], key: str, default: _W, words: tuple[_W, ...], why: str = ""
) -> _W:
    """Read one argument that is one of some words."""
    text = arguments.get(key, default)
    for word in words:
        if word == text:
            return word
    raise ControllerError(
        f"{key}={text!r} is none of {', '.join(words)}.{why}", next_step=f"Try {key}={default}."
    )


def _trigger(arguments: Mapping[str, str], default: Trigger) -> Trigger:
    return _word(arguments, "at", default, get_args(Trigger))


def _priority(arguments: Mapping[str, str]) -> int:
    return int(number(arguments, "priority", DISTRESS_PRIORITY, low=0, high=PRIORITIES))


def _grab(arguments: Mapping[str, str], default: int) -> int:
    words = tuple(str(pages) for pages in GRAB_PAGES)
    return int(_word(arguments, "grab", str(default), words))


def _scope(arguments: Mapping[str, str]) -> FileScope:
    return _word(arguments, "files", "first", get_args(FileScope))


_BACKGROUND: Final[tuple[Victim, ...]] = ("largest-file", "largest-size", "most-run")


def _flush(arguments: Mapping[str, str]) -> Controller:
    """Section 6.2: write back dirty pages of the largest and the second largest file."""
    victim = _word(arguments, "victim", "largest-file", _BACKGROUND[:2])
    wish = FilePages(action="flush", victim=victim)
    trigger, priority = _trigger(arguments, "low"), _priority(arguments)
    heuristic = Heuristic(wish=wish, trigger=trigger, priority=priority)
    return WorkingSetController("ws-flush", heuristic)


def _pressure(arguments: Mapping[str, str]) -> Controller:
    """Sections 6.3 to 6.3.3 and 7.5: clear the referenced bits of a victim's file pages."""
    wish = FilePages(
        action="clear",
        victim=_word(arguments, "victim", "largest-file", _BACKGROUND),
        scope="all",
        grab_pages=int(_word(arguments, "grab", "512", ("512",), _ONLY_512)),
        writeback=_word(arguments, "writeback", "yes", ("yes", "no")) == "yes",
    )
    trigger, priority = _trigger(arguments, "low"), _priority(arguments)
    heuristic = Heuristic(wish=wish, trigger=trigger, priority=priority)
    return WorkingSetController("ws-pressure", heuristic)


_ONLY_512: Final = (
    " User space can have the bits of a process cleared only by clear_refs, which takes all its"
    " file pages and which the kernel walks 512 pages at a time."
)


def _deactivate(arguments: Mapping[str, str]) -> Controller:
    """Sections 6.4 and 6.5: push a victim's file pages out of the active list."""
    wish = FilePages(
        action=_word(arguments, "by", "cold", ("cold", "pageout")),
        victim=_word(arguments, "victim", "largest-size", _BACKGROUND),
        scope=_scope(arguments),
        grab_pages=_grab(arguments, 256),
    )
    trigger, priority = _trigger(arguments, "low"), _priority(arguments)
    heuristic = Heuristic(wish=wish, trigger=trigger, priority=priority)
    return WorkingSetController("ws-deactivate", heuristic)


def _promote(arguments: Mapping[str, str]) -> Controller:
    """Sections 7.2 to 7.4.1: keep the pages of a task; of the application is new.

    The patches mark or activate pages that are in memory, and read nothing.
    """
    wish = FilePages(
        action=_word(arguments, "by", "mark", ("mark", "activate", "activate-mark", "willneed")),
        victim=_word(arguments, "who", "next", ("next", "most-run", "protected")),
        scope=_scope(arguments),
        grab_pages=_grab(arguments, 16),
    )
    trigger, priority = _trigger(arguments, "distress"), _priority(arguments)
    heuristic = Heuristic(wish=wish, trigger=trigger, priority=priority)
    return WorkingSetController("ws-promote", heuristic)


_LEVERS: Final = ("file_pages",)
_AT: Final = "low, min, distress or phase (default {})"
_VICTIM: Final = "largest-file, largest-size{} (default {})"
_PRIORITY: Final = "priority of reclaim that is distress, 0..12 (3; the thesis also has 2)"
_FILES: Final = "first: the file behind the first mapping; all: every file (default first)"
_GRAB: Final = "16, 256 or 512 pages at a time (default {})"

FLUSH: Final = ControllerEntry(
    name="ws-flush",
    summary="working set: write back dirty pages of the largest file when memory is low",
    make=_flush,
    levers=_LEVERS,
    parameters={
        "at": _AT.format("low"),
        "victim": _VICTIM.format("", "largest-file"),
        "priority": _PRIORITY,
    },
)
PRESSURE: Final = ControllerEntry(
    name="ws-pressure",
    summary="working set: clear the referenced bits of the largest process's file pages",
    make=_pressure,
    levers=_LEVERS,
    parameters={
        "at": _AT.format("low"),
        "victim": _VICTIM.format(" or most-run", "largest-file"),
        "writeback": "whether dirty pages are written back before: yes or no (default yes)",
        "grab": "512 only: user space cannot clear fewer at a time",
        "priority": _PRIORITY,
    },
)
DEACTIVATE: Final = ControllerEntry(
    name="ws-deactivate",
    summary="working set: push the largest process's file pages to the inactive list",
    make=_deactivate,
    levers=_LEVERS,
    parameters={
        "at": _AT.format("low"),
        "victim": _VICTIM.format(" or most-run", "largest-size"),
        "by": "cold, or pageout, which the guard allows without budgets only (default cold)",
        "files": _FILES,
        "grab": _GRAB.format(256),
        "priority": _PRIORITY,
    },
)
PROMOTE: Final = ControllerEntry(
    name="ws-promote",
    summary="working set: mark the file pages of a task or of the application as used",
    make=_promote,
    levers=_LEVERS,
    parameters={
        "at": _AT.format("distress"),
        "who": "next, most-run or protected (default next)",
        "by": "mark, activate or activate-mark: use what is in memory once, twice or three "
        "times; willneed: read in what is not (default mark)",
        "files": _FILES,
        "grab": _GRAB.format(16),
        "priority": _PRIORITY,
    },
)
