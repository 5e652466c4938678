"""``partition``: the background shares what the application leaves over.

The application's demand (``agent.observation.demand``), what neither it nor the background holds
(``sharing.others``) and a margin come off the memory of the zone; the *room* is what is left. While
the background fits into the room, nothing is limited. Otherwise it is divided by water-filling. A
group that only thrashes with a part of what it needs has all of it or waits, and such groups take
turns (``division``). What waits is paused as far as the guard allows, and squeezed to its floor.

Meanwhile the application's own pages are kept in memory. Where it lives on anonymous pages, these
are swapped last (v1: its swappiness is 1; v2: memory.low at the demand). Where it lives on file
pages, that would cost it those, so the kernel chooses. What was swapped before is read back once
there is room for it.

Latencies move the border between the two: while they are far below the target, a part of the
demand is lent to the background (``lending``), and in danger more is kept for the application
(``caution``). For an application that reports no latencies nothing is lent, and danger is measured
by its stall on memory.

Swapping takes processor time, so the background has the lowest CPU weight meanwhile. Where the
application is in danger and waits for the disk, but does not lack memory, the background keeps the
disk busy: then what that reads and writes is limited (``throttle``). Where the application keeps
missing its target, nothing is limited for a trial (``lifting``), and neither while it is far from
its target (``slack``). Where swap is slow, the background is only paused while that is enough
(``slow_swap``).

It runs on every node, and does what it can with the signals and levers that there are
(docs/reference/controllers.md says what).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stallward.agent.applications import ANON_BAND, ANON_SHARE, lives_on_anon
from stallward.agent.by_name import load_named
from stallward.agent.control_law.thresholds import (
    as_values,
    make_thresholds,
    read_thresholds,
    spans,
    tuned,
)
from stallward.agent.controller import Decision, Need, NodeContext
from stallward.agent.controllers import PROFILE_READER
from stallward.agent.desired import (
    FLUSH,
    KEEP_ANON,
    MIB,
    NORMAL_CPU_WEIGHT,
    RELEASED,
    DesiredState,
    SlotDesire,
    Tuning,
    steady_limit,
)
from stallward.agent.observation.demand import Demand, held_bytes
from stallward.agent.plugin import ControllerEntry, number
from stallward.agent.sample import GroupSample, Sample, SlotState, or_nan
from stallward.agent.set_points import AUTO, WEIGHTS, Kept, SetPoints, SlotShare
from stallward.agent.sharing.caution import Caution, CautionThresholds
from stallward.agent.sharing.counter_rate import elapsed_since
from stallward.agent.sharing.division import Division, Turns, Want
from stallward.agent.sharing.lending import LendingThresholds, Loan, follow_loan, idle_bytes
from stallward.agent.sharing.lifting import Lifting
from stallward.agent.sharing.others import Others
from stallward.agent.sharing.reading_back import ReadingBack
from stallward.agent.sharing.slack import Slack, SlackThresholds
from stallward.agent.sharing.slow_swap import SlowSwap, SlowSwapThresholds, Way
from stallward.agent.sharing.thrashing import Thrashing, ThrashingThresholds
from stallward.agent.sharing.throttle import Throttle, ThrottleThresholds
from stallward.agent.sharing.wording import mib, reason

if TYPE_CHECKING:
    from stallward.agent.profile import ApplicationProfile


@dataclass(frozen=True, kw_only=True)
class PartitionThresholds(
    ThrashingThresholds,
    LendingThresholds,
    CautionThresholds,
    ThrottleThresholds,
    SlowSwapThresholds,
    SlackThresholds,
):
    """The numbers of the rule: its own, and those of its parts."""

    margin_share: float = tuned(
        0.03, "share of the zone that is kept free beside the demand", 0.0, 0.4
    )
    forget_s: float = tuned(
        600.0, "time constant with which the application's demand falls, s", 10.0, 7200.0,
        logarithmic=True,
    )  # fmt: skip
    headroom_share: float = tuned(
        0.02, "headroom of a group, as a share of what it holds", 0.0, 0.5
    )
    headroom_mib: float = tuned(6.0, "headroom of a group in addition, MiB", 1.0, 64.0)
    near_share: float = tuned(0.8, "share of the room from which on groups have limits", 0.3, 1.0)
    release_after_s: float = tuned(
        10.0, "how long limits stay when the background fits again, s", 0.1, 120.0,
        logarithmic=True,
    )  # fmt: skip
    turn_s: float = tuned(
        60.0, "how long a turn lasts while others wait, s", 2.0, 120.0, logarithmic=True
    )
    background_cpu_weight: float = tuned(
        1, "CPU weight of the background while memory is short; 100 is what all have", 1, 100,
        logarithmic=True, whole=True,
    )  # fmt: skip
    keep_anon_share: float = tuned(
        ANON_SHARE, "share of the demand that must be anonymous for its pages to be kept", 0.0, 1.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The memory that is left for the background, and what wants it."""

    base_bytes: float = 0.0
    """Without a loan of the application's."""
    demand_bytes: float = 0.0
    """The application's demand."""
    wants: Sequence[Want] = ()
    """What each group wants."""


class PartitionController:
    """Divides the zone's memory at every tick.

    Args:
        thresholds: The numbers of the rule.
        start_bytes: What the application is known to need, by a profile; 0 if there is none.
    """

    name = "partition"
    needs_processes = False

    def __init__(self, thresholds: PartitionThresholds, start_bytes: int = 0) -> None:
        self._thresholds = thresholds
        self._start_bytes = start_bytes
        self.reset(NodeContext(zone_limit_bytes=0, slot_names=()))

    @property
    def thresholds(self) -> PartitionThresholds:
        """The numbers of the rule."""
        return self._thresholds

    def reset(self, context: NodeContext) -> None:
        """Forget the demand, the turns and what thrashed."""
        numbers = self._thresholds
        self._context = context
        self._previous_s = math.nan
        self._demand = Demand(numbers.forget_s, self._start_bytes or context.demand_bytes)
        self._caution = Caution(numbers, context.slo_ms)
        self._loan = Loan(lent_ceiling=numbers.most_lent_share)
        self._throttle = Throttle(numbers)
        self._thrashing: list[Thrashing] = []
        self._turns = Turns(numbers.turn_s)
        self._keeps_anon = True
        self._near_s = -np.inf
        self._others = Others()
        self._balance = Balance()
        self._reading_back = ReadingBack()
        self._lifting = Lifting()
        self._slow_swap = SlowSwap(numbers)
        self._slack = Slack(numbers)
        self._elapsed_s = 0.0

    @property
    def application_stalls(self) -> bool:
        """Whether the application stands and waits for memory."""
        return self._caution.stall_share >= self._thresholds.recall_stall_share

    @property
    def balance(self) -> Balance:
        """What the last division was about."""
        return self._balance

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target: demand, turns and what thrashed stay known."""
        self._context = replace(self._context, slo_ms=slo_ms)
        self._caution.retarget(slo_ms)
        self._lifting.retarget()
        self._slow_swap.retarget()
        self._slack.retarget()

    def decide(self, sample: Sample, observation: NDArray[np.float32]) -> Decision:
        """The limits and pauses that leave the application what it needs."""
        divided = self.divide(sample, AUTO)
        limits = divided.desired != RELEASED
        unlimited = self._slack.update(
            sample,
            self._elapsed_s,
            slo_ms=self._context.slo_ms,
            limits=limits and not self._keeps_anon and not self._slow_swap.slow,
        )
        limits = limits and not unlimited
        self._slow_swap.update(
            sample,
            self._elapsed_s,
            slo_ms=self._context.slo_ms,
            stall_share=self._caution.stall_share,
            limits=limits and Need.PAUSE not in self._context.lacks,
        )
        by_limits = self._slow_swap.way is Way.LIMITS
        lifted = self._lifting.update(
            sample,
            self._elapsed_s,
            slo_ms=self._context.slo_ms,
            limits=limits and by_limits,
            waits=self._caution.waits_for_disk,
        )
        if unlimited:
            return _unlimited(divided)
        if lifted:
            return replace(divided, desired=RELEASED, reason=f"limits lifted: {divided.reason}")
        if by_limits:
            return divided
        return _paused(divided, sample, self._slow_swap)

    def divide(self, sample: Sample, set_points: SetPoints) -> Decision:
        """Divide the memory within what somebody else decided.

        Args:
            sample: The sample.
            set_points: What is not ``auto`` in them, this controller does not decide.
        """
        numbers = self._thresholds
        elapsed_s = self._elapsed_s = elapsed_since(self._previous_s, sample.time_s)
        self._previous_s = sample.time_s
        protected = sample.protected
        zone_bytes = sample.zone.memory_limit_bytes or self._context.zone_limit_bytes
        demand = self._demand.update(protected, elapsed_s)
        margin = (numbers.margin_share + set_points.kept.reserve_share) * zone_bytes
        margin = max(margin, self._context.keep_available_bytes)
        others = self._others.update(sample, zone_bytes, elapsed_s)
        base = zone_bytes - demand - others - margin
        wants = self._wants(sample, elapsed_s, set_points)
        total = sum(want.bytes for want in wants)
        free = _free_bytes(sample, zone_bytes)
        reserve = self._reserve_bytes(sample, zone_bytes, elapsed_s, free=free, margin=margin)
        idle = idle_bytes(demand, or_nan(protected.anon_bytes), protected.swap_bytes or 0)
        tuning = self._tuning(sample, idle, demand)
        if set_points.kept.held_share is not None:
            reserve = 0.0
            # The kernel must choose among all pages, or the background alone is reclaimed.
            tuning = FLUSH if set_points.kept.held_share > 0.0 else tuning
        lent, coming = self._lend(
            sample, set_points.kept, wants, base=base, demand=demand, idle=idle
        )
        self._balance = Balance(base_bytes=base, demand_bytes=demand, wants=wants)
        if total > numbers.near_share * base:
            self._near_s = sample.time_s
        if not wants or sample.time_s - self._near_s > numbers.release_after_s:
            self._throttle.release()
            return Decision(desired=RELEASED, reason=f"fits: {mib(total)} of {mib(base)}")
        room = max(base + lent - reserve, 0.0)
        in_danger = self._caution.danger >= 1.0
        division = self._turns.divide(
            room, wants, sample.time_s, coming_bytes=coming, in_danger=in_danger
        )
        ratio = self._caution.latency_ratio
        disk_limits = self._throttle.update(
            sample.slots,
            sample.time_s,
            elapsed_s,
            latency_ratio=None if math.isnan(ratio) else ratio,
            in_danger=in_danger,
            harmful=self._caution.suffers_from_disk,
        )
        least = sum(want.least_bytes for want in wants)
        desired = DesiredState(
            slots=_slots(division, sample, disk_limits, round(numbers.background_cpu_weight)),
            tuning=set_points.tuning or tuning,
            # What the background keeps in any case must stay reclaimable for it.
            protected_low_bytes=int(
                max(min(demand - lent, zone_bytes - others - margin - least), 0.0)
            ),
            protected_willneed=self._reading_back.wanted(sample, free, zone_bytes),
        )
        return Decision(
            desired=desired,
            reason=reason(
                demand, others, room, lent - reserve, division, self._context.slot_names
            ),
        )

    def _reserve_bytes(
        self, sample: Sample, zone_bytes: float, elapsed_s: float, *, free: float, margin: float
    ) -> float:
        """What is kept free for the application while it is in danger."""
        kept = margin + self._caution.reserve_share * zone_bytes
        # Without limits a reserve would only be a surprise for later.
        limits = not self._lifting.lifted and not self._slack.unlimited
        short = free <= kept and limits and self._slow_swap.way is not Way.PAUSES
        return self._caution.update(sample, elapsed_s, short=short) * zone_bytes

    def _lend(
        self,
        sample: Sample,
        kept: Kept,
        wants: Sequence[Want],
        *,
        base: float,
        demand: float,
        idle: float,
    ) -> tuple[float, float]:
        """Lend a part of the application's demand to the background.

        Args:
            sample: The sample.
            kept: What somebody else decided about the loan.
            wants: What each group wants.
            base: The room without a loan, bytes.
            demand: What the application needs, bytes.
            idle: The part of it that may be lent by its latency, bytes.

        Returns:
            The loan, and what may be added to it as it grows; bytes.
        """
        numbers = self._thresholds
        if kept.held_share is not None:
            self._loan.lent_share = kept.held_share
            return min(kept.held_share * demand, demand), 0.0
        most = min(numbers.most_lent_share * demand, idle)
        followed = math.nan
        if kept.lent_share is not None:
            most = kept.lent_share * idle
            followed = most / max(demand, 1.0)
        recalled = self.application_stalls
        used = sum(group.memory_usage_bytes or 0 for group in sample.slots) - base
        # Only a loan that the latency decides depends on whether it is needed.
        asked = math.isnan(followed) and not recalled and sum(want.bytes for want in wants) > base
        grows = follow_loan(
            self._loan,
            numbers,
            self._elapsed_s,
            self._caution.latency_ratio,
            asked and self._turns.gains(max(base, 0.0), most, wants),
            followed,
            recalled,
            max(used, 0.0) / max(demand, 1.0),
        )
        lent = min(self._loan.lent_share * demand, idle)
        return lent, most - lent if grows else 0.0

    def _wants(self, sample: Sample, elapsed_s: float, set_points: SetPoints) -> list[Want]:
        """What each group wants, and whether it thrashes with less."""
        while len(self._thrashing) < len(sample.slots):
            self._thrashing.append(Thrashing(self._thresholds))
        wants = []
        for index, group in enumerate(sample.slots):
            thrashes = self._thrashing[index].update(
                group, sample.slot_states[index], sample.time_s, elapsed_s
            )
            share = set_points.share(index)
            want = Want(
                bytes=self._with_headroom(group),
                floor_bytes=self._context.floor(index),
                whole=thrashes if share is SlotShare.AUTO else share is SlotShare.WHOLE,
                waits=share is SlotShare.WAIT,
                bound=_is_bound(group, sample.slot_states[index]),
                weight=WEIGHTS[share],
            )
            wants.append(want)
        return wants

    def _with_headroom(self, group: GroupSample) -> float:
        if not group.bound:
            return 0.0
        numbers = self._thresholds
        return held_bytes(group) * (1.0 + numbers.headroom_share) + numbers.headroom_mib * MIB

    def _tuning(self, sample: Sample, file_bytes: float, demand_bytes: float) -> Tuning:
        """The tuning for what the application lives on: it changes when that clearly does."""
        threshold = self._thresholds.keep_anon_share
        share = 1.0 - file_bytes / max(demand_bytes, 1.0)
        keeps = lives_on_anon(sample, share, threshold) - threshold
        if abs(keeps) > ANON_BAND:
            self._keeps_anon = keeps > 0.0
        return KEEP_ANON if self._keeps_anon else FLUSH


def _is_bound(group: GroupSample, state: SlotState) -> bool:
    """Whether the guard lets a limit take anything from a group."""
    least = state.least_limit_bytes
    return least is None or least < held_bytes(group)


def _slots(
    division: Division,
    sample: Sample,
    disk_limits: Sequence[int | None],
    cpu_weight: int,
) -> tuple[SlotDesire, ...]:
    waiting = frozenset(division.waiting)
    return tuple(
        SlotDesire(
            paused=index in waiting,
            limit_bytes=steady_limit(max(int(share), 1), state.limit_bytes),
            io_max_bytes_per_s=disk_limit,
            cpu_weight=cpu_weight if cpu_weight < NORMAL_CPU_WEIGHT else None,
        )
        for index, (share, state, disk_limit) in enumerate(
            zip(division.shares_bytes, sample.slot_states, disk_limits, strict=True)
        )
    )


def _unlimited(divided: Decision) -> Decision:
    """What was decided, without limits and pauses: what only helps the application stays."""
    slots = tuple(SlotDesire(cpu_weight=slot.cpu_weight) for slot in divided.desired.slots)
    desired = replace(divided.desired, slots=slots)
    return replace(divided, desired=desired, reason=f"far from the target: {divided.reason}")


def _paused(divided: Decision, sample: Sample, slow_swap: SlowSwap) -> Decision:
    """What was decided, with pauses that the latency asks for, and no limits or small steps."""
    if slow_swap.way is Way.PAUSES:
        slots = tuple(
            SlotDesire(paused=slow_swap.paused, cpu_weight=slot.cpu_weight)
            for slot in divided.desired.slots
        )
        return Decision(
            desired=DesiredState(slots=slots), reason=f"slow swap, no limits: {divided.reason}"
        )
    slots = tuple(
        replace(
            slot,
            paused=slow_swap.paused,
            limit_bytes=None
            if slot.limit_bytes is None
            else max(slot.limit_bytes, int(held_bytes(group) - slow_swap.step_bytes)),
        )
        for slot, group in zip(divided.desired.slots, sample.slots, strict=True)
    )
    return replace(divided, desired=replace(divided.desired, slots=slots))


def _free_bytes(sample: Sample, zone_bytes: float) -> float:
    """The free memory of the zone; none where its use is not known."""
    used = sample.zone.memory_usage_bytes
    return 0.0 if used is None else max(zone_bytes - used, 0.0)


def _make(arguments: Mapping[str, str]) -> PartitionController:
    numbers = PartitionThresholds()
    if "path" in arguments:
        numbers, _ = read_thresholds(Path(arguments["path"]), PartitionThresholds, "partition")
    given = {key: number(arguments, key, 0.0) for key in arguments.keys() - {"path", "profile"}}
    values = {**as_values(numbers), **given}
    thresholds = make_thresholds(PartitionThresholds, values, "the arm 'partition'")
    start_bytes = 0
    if "profile" in arguments:
        profile: ApplicationProfile = load_named(PROFILE_READER)(Path(arguments["profile"]))
        start_bytes = profile.working_set_bytes
    return PartitionController(thresholds, start_bytes)


ENTRY = ControllerEntry(
    name="partition",
    summary="shares what the application leaves over; what only thrashes with a part takes turns",
    make=_make,
    parameters={
        "path": "a file of thresholds (default: the numbers that ship)",
        "profile": "a file of `stallward profile`: the demand begins at its working set",
        **{key: span.meaning for key, span in spans(PartitionThresholds).items()},
    },
)
