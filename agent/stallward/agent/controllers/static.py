"""``static``: pauses and limits fixed by arguments, the simplest controller that protects.

It needs the levers that its arguments ask for, and is refused without one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import Decision, IgnoresTarget, Need, NodeContext, require_needs
from stallward.agent.desired import (
    MAX_SWAPPINESS,
    MIB,
    PROFILES,
    DesiredState,
    SlotDesire,
    Tuning,
)
from stallward.agent.errors import ControllerError
from stallward.agent.plugin import ControllerEntry, number
from stallward.agent.sample import Sample


def _slots(text: str, key: str) -> frozenset[int] | None:
    """The slots that an argument names, such as ``0+2``; ``None`` for ``all``."""
    if text == "all":
        return None
    try:
        return frozenset(int(part) for part in text.split("+") if part)
    except ValueError:
        raise ControllerError(
            f"{key}={text!r} names no slots.", next_step=f"Write {key}=all or {key}=0+1."
        ) from None


def _ratios(text: str) -> tuple[float, ...]:
    """The shares that an argument names: one for every slot (``0.4``), or one each (``0.4+1``)."""
    parts = text.split("+")
    ratios = tuple(number({"limit": part}, "limit", 1.0) for part in parts)
    for ratio in ratios:
        if not 0.0 < ratio <= 1.0:
            raise ControllerError(
                f"limit={ratio:g} is not a ratio.", next_step="Give 0 < limit <= 1."
            )
    return ratios


_MAX_LIMIT_MIB: Final = 2.0**40
"""In bytes it still fits into 64 bits."""
SETTLE_S: Final = 3.0
"""A group has this long to start before a share is taken of what it holds."""


class StaticController(IgnoresTarget):
    """Wants the same state at every tick.

    Args:
        arguments: See :data:`PARAMETERS`.

    Raises:
        ControllerError: If an argument is out of range.
    """

    name = "static"
    needs_processes = False

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self._paused = _slots(arguments.get("pause", ""), "pause")
        self._limited = _slots(arguments.get("slots", "all"), "slots")
        self._ratios = _ratios(arguments.get("limit", "1"))
        self._limit_mib = number(arguments, "limit_mib", 0.0, low=0.0, high=_MAX_LIMIT_MIB)
        self._zone_share = number(arguments, "zone_share", 0.0)
        self._tuning = _tuning(arguments)
        if not 0.0 <= self._zone_share <= 1.0:
            raise ControllerError(
                "zone_share must be between 0 and 1.",
                next_step="For example static:limit_mib=200 or static:zone_share=0.3.",
            )
        self._context: NodeContext | None = None
        self._started_s: dict[int, float] = {}

    def check(self, context: NodeContext) -> None:
        """Check that the node has the levers for what the arguments ask.

        Raises:
            ControllerError: If it lacks one.
        """
        tuning = self._tuning
        needs: list[Need] = []
        if self._paused is None or self._paused:
            needs.append(Need.PAUSE)
        if any(self._limits_running(slot) for slot in range(len(context.slot_names))):
            needs.append(Need.LIMIT)
        if replace(tuning, name="", protected_swappiness=None) != Tuning(name=""):
            needs.append(Need.NODE_TUNING)
        if tuning.protected_swappiness not in {None, tuning.swappiness}:
            needs.append(Need.GROUP_SWAPPINESS)
        require_needs(self.name, needs, context)

    def _limits_running(self, slot: int) -> bool:
        """Whether a slot has a limit while it runs; what is paused is squeezed on every node."""
        if self._paused is None or slot in self._paused:
            return False
        limited = self._limited is None or slot in self._limited
        return limited and bool(self._limit_mib or self._zone_share or self._ratio(slot) < 1.0)

    def reset(self, context: NodeContext) -> None:
        """Take the floors and the zone's size, and forget when groups started."""
        self._context = context
        self._started_s.clear()

    def _settled_reference(self, sample: Sample, slot: int) -> int | None:
        """The reference of a group that has had time to start; ``None`` before."""
        reference = sample.slot_states[slot].reference_bytes
        if reference is None:
            self._started_s.pop(slot, None)
            return None
        started_s = self._started_s.setdefault(slot, sample.time_s)
        return reference if sample.time_s - started_s >= SETTLE_S else None

    def _ratio(self, slot: int) -> float:
        if len(self._ratios) == 1:
            return self._ratios[0]
        return self._ratios[slot] if slot < len(self._ratios) else 1.0

    def _limit(self, sample: Sample, slot: int) -> int | None:
        if self._context is None or (self._limited is not None and slot not in self._limited):
            return None
        if self._limit_mib:
            limit = int(self._limit_mib * MIB)
        elif self._zone_share:
            limit = int(self._zone_share * self._context.zone_limit_bytes)
        elif (ratio := self._ratio(slot)) < 1.0:
            reference = self._settled_reference(sample, slot)
            if reference is None:
                return None
            limit = int(ratio * reference)
        else:
            return None
        return max(limit, self._context.floor(slot))

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """The configured pauses, limits and profile."""
        slots = tuple(
            SlotDesire(
                paused=self._paused is None or i in self._paused,
                limit_bytes=self._limit(sample, i),
            )
            for i in range(len(sample.slots))
        )
        return Decision(desired=DesiredState(slots=slots, tuning=self._tuning), reason="fixed")


def _tuning(arguments: Mapping[str, str]) -> Tuning:
    """The profile, with the swappiness that the arguments name."""
    profile = _profile(arguments.get("profile", "default"))
    if "swappiness" not in arguments:
        return profile
    value = number(arguments, "swappiness", 60.0, low=0.0, high=MAX_SWAPPINESS)
    if not value.is_integer():
        raise ControllerError(
            f"swappiness={value:g} is not a whole number.",
            next_step=f"Try swappiness={round(value)}.",
        )
    # The application's own swappiness of a profile would stay in force instead.
    return replace(
        profile,
        name=f"{profile.name}-swappiness-{value:.0f}",
        swappiness=int(value),
        protected_swappiness=None,
    )


def _profile(name: str) -> Tuning:
    for profile in PROFILES:
        if profile.name == name:
            return profile
    raise ControllerError(
        f"There is no tuning profile {name!r}.",
        next_step=f"Choose one of: {', '.join(p.name for p in PROFILES)}.",
    )


PARAMETERS = {
    "pause": "slots to pause: all, or numbers joined by + (default: none)",
    "limit": "limit as a share of what the group held 3 s after its start, 0..1 (1: none); "
    "0.4+1: one for each slot",
    "limit_mib": "limit in MiB instead",
    "zone_share": "limit as a share of the zone's memory instead, 0..1",
    "slots": "slots the limit is for: all, or numbers joined by + (default all)",
    "profile": "tuning profile: default, flush, keep-cache or keep-anon",
    "swappiness": "swappiness of all groups, the application's too, in place of the profile's: "
    "0..200 (kernels before 5.8: 0..100)",
}


ENTRY = ControllerEntry(
    name="static",
    summary="pauses and limits fixed by arguments",
    make=StaticController,
    parameters=PARAMETERS,
)
