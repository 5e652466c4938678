"""The state of a node once a second, from a daemon's record or from a recording.

Columns have the names that they have in recordings (docs/reference/recordings.md), so that the rest
need not know where they are from. Of a daemon's record only the first tick of each second is kept:
a week then takes some hundred megabytes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.record.reading import frames_file, read_ticks
from stallward.env.recording.pieces import lasting_name
from stallward.evaluation.errors import MeasureError
from stallward.proto.v1 import stallward_pb2 as pb

Array = NDArray[np.float64]
MOST_GAP_S: Final = 5.0
"""After a longer time without a tick nothing is known of the time between."""

_PSI: Final = ("memory_some_us", "io_some_us", "cpu_some_us")
_REFAULTS: Final = ("refault_file_pages", "refault_anon_pages")
_SIGNALS: Final = (
    ("latency_", ("completed_total", "p95_ms", "max_ms")),
    ("protected_", (*_REFAULTS, "major_faults", "turn_read_s")),
    ("protected_psi_", _PSI),
    ("node_", ("swap_total_bytes",)),
    ("node_psi_", _PSI),
)
"""Parts of a sample, and the fields of each that are needed."""
_SLOT_SIGNALS: Final = (
    ("slot{}_", ("memory_usage_bytes", *_REFAULTS)),
    ("slot{}_psi_", ("memory_some_us",)),
    ("slot{}_state_", ("paused", "limit_bytes", "least_limit_bytes")),
    ("granted_slot{}_", ("paused", "limit_bytes")),
)
"""The same for each slot. *Granted* is what somebody would have done; see :func:`_advice`."""
_PLAIN: Final = ("time_s", "wall_time_s", "stretch", "target_ms", "tuned", "asked")
"""Columns of our own: when, what belongs together, the target, whether a setting besides pauses and
limits was in force, and who was asked: its number in ``controllers``, from 1, and 0 for nobody."""
APPLICATION_SIGNALS: Final = ("latency_p95_ms", "slo_ms")
"""The columns that are needed of each application, where there are several."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readings:
    """One row a second, in the order of time."""

    columns: Mapping[str, Array]
    """By the names of recordings; what was not read is NaN."""
    slot_names: tuple[str, ...]
    controllers: tuple[str, ...] = ()
    """Who was asked what should be held back."""
    applications: tuple[str, ...] = ()
    """The names of the protected applications; empty where there is one."""

    def of(self, name: str) -> Array:
        """A column; all NaN if there is none."""
        known = self.columns.get(name)
        return np.full(self.columns["time_s"].size, np.nan) if known is None else known

    def of_slots(self, name: str) -> Array:
        """A column of every slot, shape ``(rows, slots)``; ``name`` has a place for its number."""
        return self._stacked([name.format(slot) for slot in range(len(self.slot_names))])

    def of_applications(self, name: str) -> Array:
        """A column of every application, shape ``(rows, applications)``."""
        return self._stacked([f"application:{one}:{name}" for one in self.applications])

    def _stacked(self, names: Sequence[str]) -> Array:
        each = [self.of(name) for name in names]
        return np.stack(each, axis=1) if each else np.zeros((self.of("time_s").size, 0))


def read_node(source: Path) -> Readings:
    """Read what a daemon recorded under its last configuration.

    Args:
        source: Its ``record.dir``, or the frames file in it.

    Raises:
        UsageError: If there is no record.
        FramesError: If it cannot be read.
        MeasureError: If it holds no ticks.
    """
    return readings_of_ticks(read_ticks(frames_file(source)), f"{source}")


def readings_of_ticks(ticks: Iterable[pb.TickRecord], source: str) -> Readings:
    """The readings of a daemon's ticks.

    Those before a change of slots, applications or targets are left out.

    Raises:
        MeasureError: If there are no ticks.
    """
    rows, names, known = array("d"), tuple[str, ...](), tuple[str, ...]()
    controllers: dict[str, int] = {}
    before: pb.TickRecord | None = None
    stretch, target_ms = 0.0, math.nan
    applications: dict[str, float] = {}
    for tick in ticks:
        apart = before is None or _apart(before, tick)
        if before is not None and not apart and int(tick.time_s) == int(before.time_s):
            continue
        stretch += apart
        ours_ms = tick.slo_ms if tick.HasField("slo_ms") else math.nan
        changed = ours_ms != target_ms and not math.isnan(ours_ms)
        now = {one.name: one.slo_ms for one in tick.sample.applications}
        changed = changed or now != applications
        slots = tuple(lasting_name(slot.name) for slot in tick.sample.slots)
        if before is None or changed or slots != known:
            rows, controllers, target_ms = array("d"), {}, ours_ms
        applications, known = now, slots
        names = tuple(slot.name.rpartition("/")[2] for slot in tick.sample.slots)
        controller, wanted = _advice(tick)
        asked = controllers.setdefault(controller, len(controllers) + 1) if controller else 0
        held = tick.sample.profile not in ("", "default") or any(
            not lever.foreign for lever in tick.sample.levers
        )
        rows.extend((tick.time_s, tick.wall_time_s, stretch, ours_ms, held, asked))
        rows.extend(_signals(tick.sample, wanted, len(names)))
        for one in tick.sample.applications:
            rows.extend((*_values(one.latency, ("p95_ms",)), one.slo_ms))
        before = tick
    if before is None:
        raise MeasureError(f"{source} has no ticks.", next_step="Let the daemon run for a while.")
    every = [*_PLAIN, *titles(len(names)), *titles_of_applications(applications)]
    table = np.frombuffer(rows, dtype=np.float64).reshape(-1, len(every))
    columns = {title: table[:, number] for number, title in enumerate(every)}
    return Readings(
        columns=columns,
        slot_names=names,
        controllers=tuple(controllers),
        applications=tuple(applications),
    )


def _apart(before: pb.TickRecord, tick: pb.TickRecord) -> bool:
    """Whether counters may have begun again, or another controller decides."""
    return (
        not 0.0 <= tick.time_s - before.time_s <= MOST_GAP_S
        or tick.sequence <= before.sequence
        or tick.decision.controller != before.decision.controller
    )


def _advice(tick: pb.TickRecord) -> tuple[str, pb.DesiredState]:
    """Who was asked, and what was wanted: the configured controller, or else a policy beside it."""
    if tick.decision.controller != "none":
        return tick.decision.controller, tick.granted
    if tick.HasField("shadow") and not tick.shadow.leased:
        return tick.shadow.controller, tick.shadow.desired
    return "", pb.DesiredState()


def titles(slots: int) -> list[str]:
    """The names of the columns of a sample and of what was asked for, for so many slots."""
    return [prefix + name for prefix, names in _SIGNALS for name in names] + [
        prefix.format(slot) + name
        for slot in range(slots)
        for prefix, names in _SLOT_SIGNALS
        for name in names
    ]


def titles_of_applications(names: Iterable[str]) -> list[str]:
    """The names of the columns of applications."""
    return [f"application:{name}:{signal}" for name in names for signal in APPLICATION_SIGNALS]


def _signals(sample: pb.Sample, wanted: pb.DesiredState, slots: int) -> Iterable[float]:
    """The values of :func:`titles`."""
    psi = (sample.latency, sample.protected, sample.protected.psi, sample.node, sample.node.psi)
    for part, (_, names) in zip(psi, _SIGNALS, strict=True):
        yield from _values(part, names)
    for slot in range(slots):
        group, state = sample.slots[slot], _item(sample.slot_states, slot, pb.SlotState)
        wish = _item(wanted.slots, slot, pb.SlotDesire)
        for part, (_, names) in zip((group, group.psi, state), _SLOT_SIGNALS[:3], strict=True):
            yield from _values(part, names)
        yield float(wish.paused)
        limits = _values(wish, ("limit_bytes", "hard_limit_bytes", "reclaim_to_bytes"))
        yield min((one for one in limits if not math.isnan(one)), default=math.nan)


def _item(items: Sequence[Any], index: int, empty: Callable[[], Any]) -> Any:
    return items[index] if index < len(items) else empty()


def _values(message: Any, names: Iterable[str]) -> list[float]:
    fields = message.DESCRIPTOR.fields_by_name
    return [
        math.nan
        if fields[name].has_presence and not message.HasField(name)
        else float(getattr(message, name))
        for name in names
    ]


# ---------- The seconds of a node without control: what the application waited for, and what was held. Pure.
# Signals of the application are means over the time in which the slow requests of a second were under
# way: the second itself, and before it as long as its p95.

Mask = NDArray[np.bool_]
_LONGEST_REACH_S: Final = 60
_SWAP_PAGES_PER_S: Final = 200.0
_SWAP_TO_FILE: Final = 4.0
"""The cost of a page is known where a slot reads as many a second back from swap, and four times as
many as of files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seconds:
    """Arrays with an entry, or with a row of slots or applications, for each second.

    What is unknown is NaN.
    """

    p95_ms: Array
    target_ms: Array
    stall: Array
    """The share of the time in which a task of the application waited for memory."""
    refaults_per_s: Array
    """Pages that it read back."""
    disk: Array
    cpu: Array
    requests_per_s: Array
    asked: Mask
    """Whether a controller was asked that could have held something back."""
    paused: Mask
    """Whether it would have paused the slot."""
    taken_bytes: Array
    """What its limit would have taken from the slot."""
    held_bytes: Array
    least_bytes: Array
    """The least limit under which the slot may run, where that is bounded."""
    page_us: Array
    """The slot's stall for each page that it read back from swap."""
    own_p95_ms: Array
    """That of each application, where there are several; ``p95_ms`` is then of the one that is
    farthest from its target, as if that were the node's."""
    own_target_ms: Array

    @property
    def judged(self) -> Mask:
        """Those in which a request ended."""
        return np.isfinite(self.p95_ms) & np.isfinite(self.target_ms)

    @property
    def missed(self) -> Mask:
        """Those whose p95 was above the target; of several applications, that of any."""
        if self.own_p95_ms.shape[1]:
            return (self.own_p95_ms > self.own_target_ms).any(axis=1)
        return self.judged & (self.p95_ms > self.target_ms)

    @classmethod
    def joined(cls, parts: Sequence[Seconds], masks: Sequence[Mask]) -> Seconds:
        """The seconds of several recordings, each those that its mask has."""
        names = cls.__slots__
        pairs = [(part, mask) for part, mask in zip(parts, masks, strict=True)]
        return cls(
            **{n: np.concatenate([getattr(part, n)[mask] for part, mask in pairs]) for n in names}
        )


def known_rows(readings: Readings) -> Mask:
    """The rows that say something of the second before them, because there is a row just before."""
    passed_s = np.diff(readings.of("time_s"), prepend=np.nan)
    same = np.diff(readings.of("stretch"), prepend=np.nan) == 0.0
    return np.asarray(same & (passed_s > 0.0) & (passed_s <= MOST_GAP_S))


def acted_rows(readings: Readings) -> Mask:
    """The rows of stretches in which the daemon held anything: all of a stretch, or none.

    Its calm seconds alone would say too much good of no control.
    """
    held = (
        (np.nan_to_num(readings.of("tuned")) > 0.0)
        | (np.nan_to_num(readings.of_slots("slot{}_state_paused")) > 0.0).any(axis=1)
        | np.isfinite(readings.of_slots("slot{}_state_limit_bytes")).any(axis=1)
    )
    stretch = readings.of("stretch")
    return np.asarray(np.isin(stretch, np.unique(stretch[held])))


def seconds_of(readings: Readings) -> Seconds:
    """The seconds of all rows."""
    time_s, stretch, p95_ms = map(readings.of, ("time_s", "stretch", "latency_p95_ms"))
    reach = 1 + np.minimum(np.nan_to_num(p95_ms) // 1e3, _LONGEST_REACH_S).astype(np.int64)
    start = np.maximum(np.arange(time_s.size) - reach, np.searchsorted(stretch, stretch))

    def rate(total: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            grown = (total - total[start]) / (time_s - time_s[start])
        return np.asarray(np.where(grown >= 0.0, grown, np.nan))

    def stalls(of: str) -> Array:
        own = readings.of(f"protected_psi_{of}_some_us")
        if not np.isfinite(own).any():
            return rate(1e-6 * readings.of(f"node_psi_{of}_some_us"))
        turn_s = readings.of("protected_turn_read_s") if of == "cpu" else time_s
        return rate(1e-6 * _between_turns(own, turn_s, time_s))

    both = [readings.of(f"protected_refault_{kind}_pages") for kind in ("file", "anon")]
    counted = np.isfinite(both).any(axis=0)
    refaults = np.where(counted, np.nansum(both, axis=0), readings.of("protected_major_faults"))
    held_bytes = readings.of_slots("slot{}_memory_usage_bytes")
    limit_bytes = readings.of_slots("granted_slot{}_limit_bytes")
    return Seconds(
        p95_ms=p95_ms,
        target_ms=readings.of("target_ms"),
        stall=stalls("memory"),
        refaults_per_s=rate(refaults),
        disk=stalls("io"),
        cpu=stalls("cpu"),
        requests_per_s=rate(readings.of("latency_completed_total")),
        asked=readings.of("asked") > 0.0,
        paused=np.nan_to_num(readings.of_slots("granted_slot{}_paused")) > 0.0,
        taken_bytes=np.nan_to_num(np.maximum(held_bytes - limit_bytes, 0.0)),
        held_bytes=held_bytes,
        least_bytes=readings.of_slots("slot{}_state_least_limit_bytes"),
        page_us=_page_us(readings),
        own_p95_ms=readings.of_applications("latency_p95_ms"),
        own_target_ms=readings.of_applications("slo_ms"),
    )


def _between_turns(total: Array, turn_s: Array, time_s: Array) -> Array:
    """A counter as a line between its reads, if it is read in turn only.

    The wait for processors is: once in ten ticks, unless a policy sees it.
    """
    turn = np.isfinite(total) & (np.diff(turn_s, prepend=np.nan) != 0.0)
    if not turn.any() or (np.diff(total, prepend=total[:1])[~turn] > 0.0).any():
        return total
    return np.where(np.isfinite(total), np.interp(time_s, time_s[turn], total[turn]), np.nan)


def _page_us(readings: Readings) -> Array:
    """The stall of each slot for a page from swap; NaN where it read few."""
    anon, file, stall_us = (
        np.diff(readings.of_slots(f"slot{{}}_{name}"), axis=0, prepend=np.nan)
        for name in ("refault_anon_pages", "refault_file_pages", "psi_memory_some_us")
    )
    passed_s = np.diff(readings.of("time_s"), prepend=np.nan)[:, None]
    much = (anon >= _SWAP_PAGES_PER_S * passed_s) & (anon >= _SWAP_TO_FILE * file)
    return np.where(much, stall_us / np.maximum(anon, 1.0), np.nan)
