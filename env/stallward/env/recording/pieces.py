"""Cuts the trace of a node into pieces in which nothing changed, and chooses some. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Final

from stallward.agent.sample import UNBOUND
from stallward.proto.v1 import stallward_pb2 as pb

LEAST_S: Final = 60.0
"""A shorter piece says too little."""
MOST_GAP_S: Final = 5.0
"""After a longer time without a tick another piece begins."""
_STEP_S: Final = 0.2
"""The system clock was set if it moves by more against CLOCK_MONOTONIC between two ticks."""
_IDLE_BYTES: Final = 1 << 20
"""A group without processes may keep some pages."""
_DAY_S: Final = 86_400.0


def lasting_name(slot: str) -> str:
    """The name of a slot; empty for a slot of pods, which has the name of the pod that is there."""
    # One that several pods share, and the group that every pod is below.
    of_pods = slot.startswith((UNBOUND, "pods:")) or "kubepods" in slot
    return "" if of_pods else slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What the ticks say of the daemon's configuration."""

    groups: tuple[str, ...]
    """The groups of the slots."""
    slo_ms: float | None
    """The target; ``None`` in ticks of earlier versions."""
    work: tuple[tuple[int, int, str], ...]
    """Slot, source and unit of each source of work."""
    applications: tuple[tuple[str, float], ...] = ()
    """Name and target of each application, where there are several."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the applications; empty where there is one."""
        return tuple(name for name, _ in self.applications)

    @property
    def lasting(self) -> Configuration:
        """The same whichever pods the slots have."""
        return replace(self, groups=tuple(map(lasting_name, self.groups)))

    @classmethod
    def of(cls, tick: pb.TickRecord) -> Configuration:
        """The configuration at a tick."""
        return cls(
            groups=tuple(slot.name for slot in tick.sample.slots),
            slo_ms=tick.slo_ms if tick.HasField("slo_ms") else None,
            work=tuple((one.slot, one.source, one.unit) for one in tick.sample.work),
            applications=tuple((one.name, one.slo_ms) for one in tick.sample.applications),
        )


@dataclass(slots=True, kw_only=True)
class Piece:
    """A span of a trace under one controller and one configuration."""

    configuration: Configuration
    controller: str
    start_s: float
    """CLOCK_MONOTONIC of the first tick."""
    end_s: float
    """CLOCK_MONOTONIC of the last tick."""
    unix_offset_s: float = 0.0
    """Unix time less CLOCK_MONOTONIC, at the end."""
    is_repeated: bool = False
    """Whether some of its Unix times came twice, because the clock was set back."""
    is_restarted: bool = False
    """Whether the daemon was started again after it, perhaps with another configuration."""
    ticks: int = 0
    stall_us: int = 0
    """How long the application stalled for memory."""
    alone: bool = True
    """Whether no slot had a program."""
    _stalled_us: int | None = field(default=None, repr=False)

    @property
    def length_s(self) -> float:
        """The time from the first tick to the last."""
        return self.end_s - self.start_s

    @property
    def day(self) -> date:
        """The day of its end (UTC)."""
        return datetime.fromtimestamp(self.end_s + self.unix_offset_s, UTC).date()

    def add(self, tick: pb.TickRecord) -> None:
        """Add the next tick."""
        self.end_s, self.unix_offset_s = tick.time_s, _unix_offset_s(tick)
        self.ticks += 1
        sample = tick.sample
        psi = sample.protected.psi
        total_us = (psi if psi.HasField("memory_some_us") else sample.node.psi).memory_some_us
        if self._stalled_us is not None:
            self.stall_us += max(total_us - self._stalled_us, 0)
        self._stalled_us = total_us
        held = sum(slot.memory_usage_bytes + slot.swap_bytes for slot in sample.slots)
        self.alone = self.alone and held <= _IDLE_BYTES * len(sample.slots)


@dataclass(slots=True)
class Trace:
    """The pieces of a trace, and what is in none."""

    pieces: list[Piece] = field(default_factory=list)
    ticks: int = 0
    """All ticks since the last boot."""
    earlier_ticks: int = 0
    """Ticks from before the last boot, whose monotonic clock was another one."""
    first_times_s: tuple[float, float] = (0.0, 0.0)
    """CLOCK_MONOTONIC and the Unix time of the first tick since the last boot."""

    def keep(self, first_day: date | None, last_day: date | None) -> float:
        """Keep the pieces of these days (UTC) only; return how many seconds the others had."""
        first, last = first_day or date.min, last_day or date.max
        others = [piece for piece in self.pieces if not first <= piece.day <= last]
        self.pieces = [piece for piece in self.pieces if first <= piece.day <= last]
        return sum(piece.length_s for piece in others)


def cut(ticks: Iterable[pb.TickRecord], most_s: float, *, by_clock: bool = False) -> Trace:
    """Cut a trace into pieces.

    Where the daemon was started again another one begins, because its controller may have other
    arguments, which ticks do not have. The same where the system clock was set, by which a log with
    Unix times would be off. A policy at whose ticks the default controller decided is still the
    controller: falling back is a part of what it does.

    Args:
        ticks: The ticks in their order.
        most_s: The most seconds of a piece.
        by_clock: Whether pieces also end at midnight (UTC) and at every multiple of ``most_s``
            after it. Then the same day gives the same pieces, whatever comes before and after it.
    """
    trace = Trace()
    piece: Piece | None = None
    part, latest_unix_s, sequence = (0, 0), 0.0, 0
    for tick in ticks:
        before, part = part, _part_of_day(tick.wall_time_s, most_s)
        if piece is not None and tick.time_s < piece.end_s:  # the clock of another boot
            trace.pieces.clear()
            trace.earlier_ticks += trace.ticks
            trace.ticks, piece, latest_unix_s = 0, None, 0.0
        if not trace.ticks:
            trace.first_times_s = times_s(tick)
        trace.ticks += 1
        offset_s = _unix_offset_s(tick)
        unix_s = tick.time_s + offset_s
        configuration = Configuration.of(tick)
        controller = tick.decision.controller
        if piece is not None and tick.fallback:
            controller = piece.controller
        is_first, sequence = tick.sequence < sequence, tick.sequence
        for earlier in trace.pieces if is_first else ():
            earlier.is_restarted = True
        if (
            piece is None
            or is_first
            or tick.time_s - piece.end_s > MOST_GAP_S
            or (piece.configuration, piece.controller) != (configuration, controller)
            or tick.time_s - piece.start_s >= most_s
            or (by_clock and part != before)
            or abs(offset_s - piece.unix_offset_s) > _STEP_S
        ):
            piece = Piece(
                configuration=configuration,
                controller=controller,
                start_s=tick.time_s,
                end_s=tick.time_s,
                is_repeated=unix_s < latest_unix_s - _STEP_S,
            )
            for earlier in trace.pieces if piece.is_repeated else ():
                earlier.is_repeated |= earlier.end_s + earlier.unix_offset_s > unix_s
            trace.pieces.append(piece)
        piece.add(tick)
        latest_unix_s = max(latest_unix_s, unix_s)
    return trace


def times_s(tick: pb.TickRecord) -> tuple[float, float]:
    """CLOCK_MONOTONIC and the Unix time of a tick, which tell it from all others."""
    return tick.time_s, tick.wall_time_s


def _unix_offset_s(tick: pb.TickRecord) -> float:
    """Unix time less CLOCK_MONOTONIC; a tick has the one of its end, and the other of its start."""
    took = tick.timings
    parts_ms = (took.sense_ms, took.observe_ms, took.decide_ms, took.guard_ms, took.apply_ms)
    return tick.wall_time_s - tick.time_s - 1e-3 * sum(parts_ms)


def _part_of_day(wall_time_s: float, most_s: float) -> tuple[int, int]:
    """The day (UTC) since 1970, and the number of the span of ``most_s`` in it."""
    day, since_midnight_s = divmod(wall_time_s, _DAY_S)
    return int(day), int(since_midnight_s / most_s)


def choose(pieces: Sequence[Piece], most: int) -> tuple[Piece, ...]:
    """Choose pieces of each controller: half for their stalls, and the others spread in time.

    Pressure is rare on most nodes, and a twin learns from it; what the node is like without it is
    in the others.

    Args:
        pieces: The pieces in the order of time.
        most: The most pieces of each controller.

    Returns:
        The chosen pieces in the order of time.
    """
    chosen: list[Piece] = []
    for kind in dict.fromkeys((piece.controller, piece.alone) for piece in pieces):
        mine = [piece for piece in pieces if (piece.controller, piece.alone) == kind]
        if len(mine) <= most:
            chosen += mine
            continue
        by_stall = sorted(mine, key=lambda piece: -piece.stall_us)
        stalled = by_stall[: most - most // 2]
        rest = [piece for piece in mine if all(piece is not other for other in stalled)]
        count = most // 2
        chosen += [*stalled, *(rest[(2 * k + 1) * len(rest) // (2 * count)] for k in range(count))]
    return tuple(sorted(chosen, key=lambda piece: piece.start_s))
