"""``swap-assign`` and ``swap-average``: what does not fit into memory is assigned to swap.

Source: Su-Wei Yang, "Memory Contention Aware Swap Space Management", NTUST 2019. Applications that
need more than the memory thrash together. So the document lets some of them, those with the lowest
priority, work with a part of their memory in swap for good ("direct swap space accessing"), and
the others never wait. The priority, by the contention degree, also orders who gets the CPU.
``contention.py`` and ``direct_swap.py`` have the formulas.

A memory limit keeps the share alpha_i of an application in swap: it is (1 - alpha_i) * MEM(i), but
not below its floor. On v2 the swap of an application whose share is 0 is limited, too, so that it
keeps its memory while others grow. An application that lives in swap has no such limit: what grows
between two plans goes there, where the kernel would otherwise have to kill. The plan is made anew
at every tick.

The document has equal applications. Here one is protected: it has the highest priority, and all of
its memory stays. Where no degrees are given the first slot has the lowest priority, because slots
are in the order in which they are acted on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.controller import Decision, IgnoresTarget, Need, NodeContext, require_needs
from stallward.agent.desired import (
    MIB,
    DesiredState,
    SlotDesire,
    steady_limit,
)
from stallward.agent.errors import ControllerError
from stallward.agent.observation.demand import FORGET_S, Demand, held_bytes
from stallward.agent.plugin import ControllerEntry, number
from stallward.agent.profile import read_profile
from stallward.agent.sample import GroupSample, Sample
from stallward.agent.sharing.wording import mib
from stallward.papers.controllers.contention import (
    ContentionFile,
    priority_order,
    read_contention,
)
from stallward.papers.controllers.direct_swap import (
    assign_swap,
    average_swap,
    given_swap,
    required_swap,
)

RUNS_BYTES: Final = 4 * MIB
"""A group that holds less than this runs no application: what it needed is free."""
HIGHEST_WEIGHT: Final = 100.0
"""The CPU weight of the protected application. The document only says that a higher priority goes
first; here weights fall from this one to 1 by equal factors."""
SWAP_SLACK_SHARE: Final = 1 / 8
"""How much an application to which no swap was assigned may have there, as a share of the zone's
memory, for pages that it does not use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapOptions:
    """The arguments of ``swap-assign`` and ``swap-average``."""

    degrees: tuple[float, ...] = ()
    """The contention degree of each slot; empty where none are given."""
    needs_mib: tuple[float, ...] = ()
    """What each slot needs, in MiB; empty where it is measured at every tick."""
    measured: ContentionFile | None = None
    """Measured degrees and needs, by the name of the slot."""
    profiled_bytes: Mapping[str, int] = field(default_factory=dict)
    """The needs by profiles, by the name of the slot; empty where none are given."""
    margin_share: float = 0.02
    """The share of the zone's memory that is not divided."""
    swap: bool = True
    """Whether swap is assigned."""
    alpha: float | None = None
    """The share of the lowest priority that is in swap where memory is short; ``None`` for that of
    the formula."""
    cpu: bool = True
    """Whether the CPU goes by priority."""
    average: bool = False
    """Whether the swap is spread evenly instead."""


class SwapController(IgnoresTarget):
    """Plans who has how much of its memory in swap, and who comes first on the CPU.

    Args:
        name: Its name.
        options: Its arguments.
    """

    needs_processes = False

    def __init__(self, name: str, options: SwapOptions) -> None:
        self.name = name
        self._options = options
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    def check(self, context: NodeContext) -> None:
        """Check that a node has memory limits, swap and CPU weights, and the slots that are meant.

        Raises:
            ControllerError: If it lacks something, or there is no degree or need for a slot.
        """
        swap = (Need.LIMIT, Need.SWAP, Need.SWAP_USE) if self._options.swap else ()
        cpu = (Need.CPU_WEIGHT,) if self._options.cpu else ()
        require_needs(self.name, (*swap, *cpu), context)
        self._known(context.slot_names)

    def _known(self, names: Sequence[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The degrees and the needs in MiB of the slots ``names``; empty where none were given."""
        degrees, needs_mib = self._options.degrees, self._options.needs_mib
        measured = self._options.measured
        if measured is not None:
            applications = [measured.of(name) for name in names]
            known = [one for one in applications if one is not None]
            if len(known) < len(names):
                raise ControllerError(
                    f"No contention was measured for {names[applications.index(None)]!r}.",
                    next_step="Measure it on the scenario that runs, with the same groups.",
                )
            degrees = tuple(one.degree for one in known)
            needs_mib = tuple(one.memory_bytes / MIB for one in known)
        profiled = self._options.profiled_bytes
        if profiled and not profiled.keys() >= set(names):
            raise ControllerError(
                f"There are profiles of {', '.join(profiled)} only, not of each slot.",
                next_step="Make the others with `stallward profile --scenario NAME --slot SLOT`.",
            )
        needs_mib = tuple(profiled[name] / MIB for name in names) if profiled else needs_mib
        for key, values in (("degrees", degrees), ("needs_mib", needs_mib)):
            if values and len(values) < len(names):
                raise ControllerError(
                    f"{key} has {len(values)} values, but there are {len(names)} slots.",
                    next_step="Give one value for each, joined by +.",
                )
        return degrees[: len(names)], needs_mib[: len(names)]

    def reset(self, context: NodeContext) -> None:
        """Forget all demands, and look up the priorities and needs of the node's slots.

        Raises:
            ControllerError: If there is no degree or need for one of them.
        """
        degrees, needs_mib = self._known(context.slot_names)
        count = len(context.slot_names)
        self._order = priority_order(degrees or [float(i) for i in range(count)])
        self._needs_bytes = tuple(value * MIB for value in needs_mib) or (0.0,) * count
        self._context = context
        self._demand = Demand(FORGET_S, context.demand_bytes)
        self._previous_s: float | None = None

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """The limits and weights that the plan comes to."""
        options = self._options
        before_s, self._previous_s = self._previous_s, sample.time_s
        elapsed_s = 0.0 if before_s is None else max(sample.time_s - before_s, 0.0)
        application = self._demand.update(sample.protected, elapsed_s)
        zone = sample.zone.memory_limit_bytes or self._context.zone_limit_bytes
        needs = [self._need(i, group) for i, group in enumerate(sample.slots)]
        system = zone * (1.0 - options.margin_share)
        required = required_swap((application, *needs), system) if zone > 0 else 0.0
        ratios = self._ratios(needs, required)
        slots = tuple(
            SlotDesire(
                limit_bytes=self._limit(sample, i, needs[i], ratio),
                swap_max_bytes=_swap_limit(group, ratio, zone) if any(ratios) else None,
                cpu_weight=self._weight(i) if options.cpu else None,
            )
            for i, (group, ratio) in enumerate(zip(sample.slots, ratios, strict=True))
        )
        total = application + sum(needs)
        return Decision(
            desired=DesiredState(slots=slots), reason=_reason(total, system, ratios, required)
        )

    def _need(self, slot: int, group: GroupSample) -> float:
        """MEM(i): what was said beforehand, unless it holds more; else what it holds and swaps.

        File pages that the kernel takes first are not needed. Pages that are in memory and still
        have their place in swap count twice on v2, so swap counts only where nothing was said.
        """
        spare = group.inactive_file_bytes or 0
        held = max(held_bytes(group) - spare, 0)
        if held < RUNS_BYTES:
            return 0.0
        said = self._needs_bytes[slot] if slot < len(self._needs_bytes) else 0.0
        return max(said, (group.memory_usage_bytes or 0) - spare) if said else held

    def _ratios(self, needs: Sequence[float], required: float) -> tuple[float, ...]:
        options = self._options
        if not options.swap or required <= 0.0:
            return (0.0,) * len(needs)
        if options.average:
            return average_swap(needs, required)
        if options.alpha is not None:
            return given_swap(needs, self._order, options.alpha)
        return assign_swap(needs, self._order, required)

    def _limit(self, sample: Sample, slot: int, need: float, ratio: float) -> int | None:
        if ratio <= 0.0:
            return None
        limit = max(int(need * (1.0 - ratio)), self._context.floor(slot))
        return max(
            steady_limit(limit, sample.slot_states[slot].limit_bytes), self._context.floor(slot)
        )

    def _weight(self, slot: int) -> int:
        if slot not in self._order:
            return 1
        share_of_order = (self._order.index(slot) + 1) / len(self._order)
        return max(round(math.pow(HIGHEST_WEIGHT, 1.0 - share_of_order)), 1)


def _swap_limit(group: GroupSample, ratio: float, zone: int) -> int | None:
    """The most swap that a group may have beside one that lives there.

    Only on v2, which alone counts high_events, and only where no swap was assigned to the group. So
    the pages that nobody planned for have somewhere to go: to the one that lives in swap.
    """
    return None if group.high_events is None or ratio > 0.0 else int(SWAP_SLACK_SHARE * zone)


def _reason(total: float, system: float, ratios: Sequence[float], required: float) -> str:
    """What is needed, and the share of each slot that is in swap."""
    parts = [f"needs {mib(total)} of {mib(system)}"]
    if required > 0.0:
        shares = [f"{i}: {100 * ratio:.0f} %" for i, ratio in enumerate(ratios) if ratio > 0.0]
        parts.append(f"in swap: {', '.join(shares) or 'nothing'}")
    return "; ".join(parts)


def _values(arguments: Mapping[str, str], key: str, *, low: float) -> tuple[float, ...]:
    """The numbers of an argument such as ``0.4+0.1``."""
    parts = [part for part in arguments.get(key, "").split("+") if part]
    return tuple(number({key: part}, key, 0.0, low=low) for part in parts)


def _flag(arguments: Mapping[str, str], key: str) -> bool:
    text = arguments.get(key, "1")
    if text not in {"0", "1"}:
        raise ControllerError(
            f"{key}={text!r} is neither 0 nor 1.", next_step=f"Write {key}=0 to leave it out."
        )
    return text == "1"


def _make(name: str, arguments: Mapping[str, str]) -> SwapController:
    average = name == "swap-average"
    if "path" in arguments and not {"degrees", "needs_mib"}.isdisjoint(arguments):
        raise ControllerError(
            f"{name!r} takes degrees and needs_mib, or a path to measured ones, not both."
        )
    if "profiles" in arguments and not {"path", "needs_mib"}.isdisjoint(arguments):
        raise ControllerError(f"{name!r} takes what slots need from one place only.")
    path = arguments.get("path")
    profiles = [read_profile(Path(one)) for one in arguments.get("profiles", "").split("+") if one]
    options = SwapOptions(
        degrees=_values(arguments, "degrees", low=-math.inf),
        needs_mib=_values(arguments, "needs_mib", low=0.0),
        measured=None if path is None else read_contention(Path(path)),
        profiled_bytes={one.application: one.working_set_bytes for one in profiles},
        margin_share=number(arguments, "margin_share", 0.02, low=0.0, high=0.5),
        swap=_flag(arguments, "swap"),
        alpha=number(arguments, "alpha", 0.3, low=0.0, high=1.0) if "alpha" in arguments else None,
        cpu=_flag(arguments, "cpu") and not average,
        average=average,
    )
    if not options.swap and not options.cpu:
        raise ControllerError(f"{name!r} does nothing with swap=0 and cpu=0.")
    if not options.swap and options.alpha is not None:
        raise ControllerError(f"{name!r} assigns no swap with swap=0, so it takes no alpha.")
    return SwapController(name, options)


_SHARED: Final = {
    "needs_mib": "what each slot needs, MiB, joined by + (default: what it holds)",
    "margin_share": "share of the zone's memory that is not divided (default 0.02)",
    "path": "a file of `stallward experiment contention`, for what each slot needs",
    "profiles": "files of `stallward profile`, one of each slot, joined by +, for the same",
}
ASSIGN: Final = ControllerEntry(
    name="swap-assign",
    summary="what does not fit is in swap, from the lowest contention degree upward",
    make=lambda arguments: _make("swap-assign", arguments),
    parameters={
        "degrees": "contention degree of each slot, joined by + (default: the first slot has "
        "the lowest priority)",
        **_SHARED,
        "path": "a file of `stallward experiment contention`, for degrees and needs",
        "alpha": "share of the lowest priority that is in swap where memory is short, 0 to 1, and "
        "of no other slot (default: what does not fit, from the lowest priority upward)",
        "swap": "0 to order the CPU only (default 1)",
        "cpu": "0 to assign swap only (default 1)",
    },
)
AVERAGE: Final = ControllerEntry(
    name="swap-average",
    summary="what does not fit is in swap, the same amount of every group",
    make=lambda arguments: _make("swap-average", arguments),
    parameters=_SHARED,
)
