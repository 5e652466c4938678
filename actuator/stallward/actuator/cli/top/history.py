"""What the screen shows, made from tick records. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.actuator.cli.top.past import Past
from stallward.actuator.record.desired.changes import differ
from stallward.actuator.record.desired.text import treatments_text
from stallward.actuator.record.rates import rate_per_s, stall_share
from stallward.actuator.record.reasons_text import reason_notes
from stallward.actuator.record.tick_record import Mode, TickRecord
from stallward.agent.applications import farthest
from stallward.agent.desired import RELEASED
from stallward.agent.group_names import meant_by, names_in
from stallward.agent.sample import ApplicationSample, GroupSample, Sample

HISTORY_S: Final = 120
"""How many seconds the curves show."""
ATTAINMENT_S: Final = 60
"""The seconds over which the share that met the target is counted."""
RATE_S: Final = 1.0
"""The least time over which rates are measured."""
MOST_CHANGES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One group, and what is done to it. Rates are ``None`` while they are not known."""

    name: str
    memory_bytes: int | None
    swap_bytes: int | None
    limit_bytes: int | None
    cpu_cores: float | None
    """CPU seconds per second."""
    memory_stall_share: float | None
    io_stall_share: float | None
    refaults_per_s: float | None
    paused: bool = False
    paused_share: float = 0.0
    """Share of the last minute."""
    levers: tuple[str, ...] = ()
    """Its other levers that are not at their original values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of what the guard granted, and why."""

    wall_time_s: float
    controller: str
    treated: str
    """How the slots are treated now that were treated otherwise before."""
    reason: str
    notes: tuple[str, ...] = ()
    """What the guard changed of what the controller wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything on the screen."""

    sequence: int
    wall_time_s: float
    controller: str
    mode: Mode
    fallback: bool
    reason: str
    p95_ms: float | None
    target_ms: float | None
    """The target in force, or the one to judge by."""
    farthest: ApplicationSample | None
    """The application that is farthest from its target, where there are several: ``p95_ms`` is its
    own as a multiple of the node's target."""
    attainment: float | None
    """The share of the last minute's seconds whose p95 met the target; ``None`` if unknown."""
    p95_history_ms: tuple[float, ...]
    """One value a second, the worst of it, oldest first; 0 where there was none."""
    stall_history: tuple[float, ...]
    """The memory stall of the application in each second, share of the time."""
    zone_usage_bytes: int | None
    zone_limit_bytes: int | None
    profile: str
    applications: tuple[GroupView, ...]
    """The protected applications, each with its p95 in its name where there are several."""
    slots: tuple[GroupView, ...]
    changes: tuple[Change, ...]
    """Newest first."""


class History:
    """Collects tick records.

    Args:
        target_ms: The latency target to judge a single application by; ``None`` for the one in
            force, which is in the records.
        names: The slots' names; by default the names of their groups.
        reported_ms: The target where neither says one: the records of earlier versions do not.
    """

    def __init__(
        self,
        target_ms: float | None = None,
        names: Sequence[str] = (),
        reported_ms: float | None = None,
    ) -> None:
        self._given_ms = target_ms
        self.target_ms = reported_ms if target_ms is None else target_ms
        self._names = tuple(names)
        self._records: deque[TickRecord] = deque()
        self._seconds = deque[tuple[int, float | None, float, float | None]](maxlen=HISTORY_S)
        self._stalled_us: int | None = None
        self._changes: deque[Change] = deque(maxlen=MOST_CHANGES)
        self._granted = RELEASED
        """What the newest change listed."""
        self.past: Past[View] = Past()

    def add(self, record: TickRecord) -> None:
        """Take one more record; older ones than the newest start the history again."""
        if self._records and record.sample.time_s < self._records[-1].sample.time_s:
            past = self.past
            self.__init__(self._given_ms, self._names, self.target_ms)  # type: ignore[misc]
            self.past = past
        newest = self._records[-1].sample.time_s if self._records else record.sample.time_s
        if int(newest) != int(record.sample.time_s) and (view := self.view()) is not None:
            self.past.add(view)
        # What is given cannot be the target of several applications.
        several = bool(record.sample.applications)
        if (self._given_ms is None or several) and record.slo_ms is not None:
            self.target_ms = record.slo_ms
        self._records.append(record)
        while len(self._records) > 2 and (
            record.sample.time_s - self._records[1].sample.time_s >= RATE_S
        ):
            self._records.popleft()
        self._add_second(record.sample)
        if differ(self._granted, record.granted):
            before, self._granted = self._granted, record.granted
            names = [self._name(index, group) for index, group in enumerate(record.sample.slots)]
            self._changes.appendleft(
                Change(
                    wall_time_s=record.wall_time_s,
                    controller=record.decision.controller,
                    treated=treatments_text(before, record.granted, names),
                    reason=record.decision.decision.reason,
                    notes=reason_notes(record.reasons, names),
                )
            )

    def _add_second(self, sample: Sample) -> None:
        second = int(sample.time_s)
        now_us = sample.protected.psi.memory_some_us
        stalled_us = 0
        if now_us is not None and self._stalled_us is not None:
            stalled_us = max(now_us - self._stalled_us, 0)
        self._stalled_us = now_us
        p95_ms = sample.latency.p95_ms if sample.latency else None
        stall = 1e-6 * stalled_us
        if self._seconds and self._seconds[-1][0] == second:
            _, before_ms, before, _ = self._seconds.pop()
            p95_ms = max(filter(None, (before_ms, p95_ms)), default=None)
            stall += before
        self._seconds.append((second, p95_ms, min(stall, 1.0), self.target_ms))

    def view(self) -> View | None:
        """What to show now; ``None`` before the first record."""
        if not self._records:
            return None
        record, earlier = self._records[-1], self._records[0].sample
        sample = record.sample
        elapsed_s = sample.time_s - earlier.time_s
        slots = []
        for index, (group, state) in enumerate(zip(sample.slots, sample.slot_states, strict=True)):
            before = earlier.slots[index] if index < len(earlier.slots) else group
            name = self._name(index, group)
            slots.append(
                _group_view(
                    name,
                    group,
                    before,
                    elapsed_s,
                    limit_bytes=state.limit_bytes,
                    paused=state.paused,
                    paused_share=state.paused_share,
                    levers=_levers(sample, group.name),
                )
            )
        latency = sample.latency
        return View(
            sequence=record.sequence,
            wall_time_s=record.wall_time_s,
            controller=record.decision.controller,
            mode=record.mode,
            fallback=record.fallback,
            reason=record.decision.decision.reason,
            p95_ms=latency.p95_ms if latency else None,
            target_ms=self.target_ms,
            farthest=farthest(sample.applications),
            attainment=self._attainment(),
            p95_history_ms=tuple(p95 or 0.0 for _, p95, _, _ in self._seconds),
            stall_history=tuple(stall for _, _, stall, _ in self._seconds),
            zone_usage_bytes=sample.zone.memory_usage_bytes,
            zone_limit_bytes=sample.zone.memory_limit_bytes,
            profile=record.granted.tuning.name,
            applications=_applications(sample, earlier, elapsed_s),
            slots=tuple(slots),
            changes=tuple(self._changes),
        )

    def _name(self, index: int, group: GroupSample) -> str:
        return self._names[index] if index < len(self._names) else _short(group.name)

    def _attainment(self) -> float | None:
        last = list(self._seconds)[-ATTAINMENT_S:]
        met = [p95 <= ms for _, p95, _, ms in last if p95 is not None and ms is not None]
        return sum(met) / len(met) if met else None


def _applications(sample: Sample, earlier: Sample, elapsed_s: float) -> tuple[GroupView, ...]:
    named = [(_short(sample.protected.name) or "application", sample.protected, earlier.protected)]
    if sample.applications:
        before = {one.name: one.group for one in earlier.applications}
        named = [
            (_with_p95(one), one.group, before.get(one.name, one.group))
            for one in sample.applications
        ]
    return tuple(
        _group_view(name, now, then, elapsed_s, limit_bytes=now.memory_limit_bytes)
        for name, now, then in named
    )


def _with_p95(one: ApplicationSample) -> str:
    if one.latency is None or one.latency.p95_ms is None:
        return one.name
    return f"{one.name} ({one.latency.p95_ms:.3g} of {one.slo_ms:.3g} ms)"


def _group_view(
    name: str,
    now: GroupSample,
    before: GroupSample,
    elapsed_s: float,
    *,
    limit_bytes: int | None,
    paused: bool = False,
    paused_share: float = 0.0,
    levers: tuple[str, ...] = (),
) -> GroupView:
    cpu_us_per_s = rate_per_s(before.cpu_usage_us, now.cpu_usage_us, elapsed_s)
    return GroupView(
        name=name,
        memory_bytes=now.memory_usage_bytes,
        swap_bytes=now.swap_bytes,
        limit_bytes=limit_bytes,
        cpu_cores=None if cpu_us_per_s is None else 1e-6 * cpu_us_per_s,
        memory_stall_share=stall_share(
            before.psi.memory_some_us, now.psi.memory_some_us, elapsed_s
        ),
        io_stall_share=stall_share(before.psi.io_some_us, now.psi.io_some_us, elapsed_s),
        refaults_per_s=rate_per_s(before.refaulted_pages, now.refaulted_pages, elapsed_s),
        paused=paused,
        paused_share=paused_share,
        levers=levers,
    )


def _levers(sample: Sample, name: str) -> tuple[str, ...]:
    """The levers of one group that are moved, with their values."""
    found = []
    for state in sample.levers:
        kind, _, group = state.lever.partition(":")
        if name in meant_by(group, names_in(sample)):
            found.append(f"{kind} {state.value}{' (set by others)' if state.foreign else ''}")
    return tuple(found)


def _short(name: str) -> str:
    return name.rpartition("/")[2]
