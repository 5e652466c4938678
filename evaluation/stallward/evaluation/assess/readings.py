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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readings:
    """One row a second, in the order of time."""

    columns: Mapping[str, Array]
    """By the names of recordings; what was not read is NaN."""
    slot_names: tuple[str, ...]
    controllers: tuple[str, ...] = ()
    """Who was asked what should be held back."""

    def of(self, name: str) -> Array:
        """A column; all NaN if there is none."""
        known = self.columns.get(name)
        return np.full(self.columns["time_s"].size, np.nan) if known is None else known

    def of_slots(self, name: str) -> Array:
        """A column of every slot, shape ``(rows, slots)``; ``name`` has a place for its number."""
        each = [self.of(name.format(slot)) for slot in range(len(self.slot_names))]
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
    """The readings of a daemon's ticks; those before a change of slots or target are left out.

    Raises:
        MeasureError: If there are no ticks.
    """
    rows, names = array("d"), tuple[str, ...]()
    controllers: dict[str, int] = {}
    before: pb.TickRecord | None = None
    stretch, target_ms = 0.0, math.nan
    for tick in ticks:
        apart = before is None or _apart(before, tick)
        if before is not None and not apart and int(tick.time_s) == int(before.time_s):
            continue
        stretch += apart
        ours_ms = tick.slo_ms if tick.HasField("slo_ms") else math.nan
        changed = ours_ms != target_ms and not math.isnan(ours_ms)
        if before is None or changed or len(tick.sample.slots) != len(names):
            rows, controllers, target_ms = array("d"), {}, ours_ms
        names = tuple(slot.name.rpartition("/")[2] for slot in tick.sample.slots)
        controller, wanted = _advice(tick)
        asked = controllers.setdefault(controller, len(controllers) + 1) if controller else 0
        held = tick.sample.profile not in ("", "default") or any(
            not lever.foreign for lever in tick.sample.levers
        )
        rows.extend((tick.time_s, tick.wall_time_s, stretch, ours_ms, held, asked))
        rows.extend(_signals(tick.sample, wanted, len(names)))
        before = tick
    if before is None:
        raise MeasureError(f"{source} has no ticks.", next_step="Let the daemon run for a while.")
    every = [*_PLAIN, *titles(len(names))]
    table = np.frombuffer(rows, dtype=np.float64).reshape(-1, len(every))
    columns = {title: table[:, number] for number, title in enumerate(every)}
    return Readings(columns=columns, slot_names=names, controllers=tuple(controllers))


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
