"""Converts what a daemon recorded on a node into recordings.

The daemon's frames of tick records are cut into pieces under one controller and one configuration
each, because a twin is fitted to what different settings did. The requests come from the
application's own log, or else from the ticks' histograms; the background's work is in the ticks.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from itertools import dropwhile
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import load_config
from stallward.actuator.config.profiles import slots_with_profiles
from stallward.actuator.latency.config import LatencyConfig, LinesLatency
from stallward.actuator.record.frames import extent
from stallward.actuator.record.reading import frames_file, read_ticks
from stallward.actuator.work.config import CPU_UNIT
from stallward.agent.action_table import SET_POINTS
from stallward.agent.errors import UsageError
from stallward.agent.latency_histogram import middle_ms
from stallward.agent.sample import UNBOUND
from stallward.agent.schema.file_kinds import other_kind_of
from stallward.env.errors import RecordingError
from stallward.env.recording.node_facts import node_of_memory, versions
from stallward.env.recording.pieces import LEAST_S, Piece, Trace, choose, cut, times_s
from stallward.env.recording.program_lines import parse_requests
from stallward.env.recording.recording import Requests, Units, write_recording
from stallward.env.recording.run_info import RunInfo
from stallward.env.scenario.scenario import LatencyLines
from stallward.proto.v1 import stallward_pb2 as pb

Array = NDArray[np.float64]

# ---------- The requests in the logs of an application, by pieces of a trace

_CHUNK_CHARACTERS: Final = 16 << 20
_CLOCKS_APART_S: Final = 1e6
"""Times later than the end of the trace by more are Unix times and not monotonic ones."""
_LEAST_LATE_S: Final = 5.0
_LATE_INTERVALS: Final = 5.0
"""A log that begins later in a piece, by this and by so many mean intervals of its requests, no
longer holds the piece whole: logrotate moves older lines away."""


def logged_requests(
    source: LatencyConfig | None, named: Sequence[Path], pieces: Sequence[Piece]
) -> list[Requests | None]:
    """The requests that were scheduled in each piece; ``None`` where no log tells.

    Only lines in a file make a log: the other sources and a FIFO keep nothing, and lines without
    times cannot be told apart by pieces, nor can Unix times that came twice. No log tells of a
    piece that began before the first line.

    Args:
        source: The ``[latency]`` table of the daemon's configuration.
        named: The logs; none takes the one that the table names, if there is one.
        pieces: The pieces, in the order of time.

    Raises:
        UsageError: If nothing says how to read a log that was named, or there is no such log.
        RecordingError: If a log cannot be read.
    """
    if not isinstance(source, LinesLatency):
        if named:
            raise UsageError(
                "The configuration has no [latency] of lines: nothing says how to read a log of "
                "requests.",
                next_step="Describe the log in a copy of the configuration for --config; "
                "docs/reference/latency.md says how.",
            )
        return [None] * len(pieces)
    found: list[list[Requests]] = [[] for _ in pieces]
    is_unix, count, first_s, last_s = False, 0, math.inf, -math.inf
    for path in named or (source.path,):
        if not path.is_file():  # a FIFO keeps nothing
            if not named:
                return [None] * len(pieces)
            raise UsageError(
                f"There is no log of requests at {path}"
                + (", but a FIFO, which keeps nothing." if path.exists() else "."),
                next_step="Name the application's log with --requests.",
            )
        for text in _chunks(path):
            logged = parse_requests(text, _lines(source))
            if logged.scheduled_s.size:
                is_unix |= _sort_in(logged, pieces, found)
                count += logged.scheduled_s.size
                first_s = min(first_s, logged.scheduled_s[0])
                last_s = max(last_s, logged.scheduled_s[-1])
    if not count:
        return [Requests.empty() if named else None] * len(pieces)
    since_s = first_s - max(_LEAST_LATE_S, _LATE_INTERVALS * (last_s - first_s) / count)
    return [
        None
        if piece.start_s + (piece.unix_offset_s if is_unix else 0.0) < since_s
        or (is_unix and piece.is_repeated)
        else _joined(parts)
        for piece, parts in zip(pieces, found, strict=True)
    ]


def _sort_in(logged: Requests, pieces: Sequence[Piece], found: Sequence[list[Requests]]) -> bool:
    """Add the requests of each piece to what was found; return whether they have Unix times."""
    is_unix = bool(logged.scheduled_s[-1] - pieces[-1].end_s > _CLOCKS_APART_S)
    for piece, parts in zip(pieces, found, strict=True):
        offset_s = piece.unix_offset_s if is_unix else 0.0
        span_s = (piece.start_s + offset_s, piece.end_s + offset_s)
        first, last = np.searchsorted(logged.scheduled_s, span_s)
        if last > first:
            parts.append(_shifted(logged.where(np.arange(first, last)), -offset_s))
    return is_unix


def _chunks(path: Path) -> Iterator[str]:
    """Pieces of a log of whole lines: the log of a week is not held in memory."""
    other = other_kind_of(path)
    if other is not None:
        raise RecordingError(f"{path} is {other.what}.", next_step=other.next_step)
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            rest = ""
            while text := stream.read(_CHUNK_CHARACTERS):
                whole, newline, rest = (rest + text).rpartition("\n")
                yield whole + newline
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}.") from error


def _lines(source: LinesLatency) -> LatencyLines:
    known = {f.name for f in fields(LinesLatency)} - {"path", "source"}
    return LatencyLines(path=str(source.path), **{name: getattr(source, name) for name in known})


def _shifted(requests: Requests, by_s: float) -> Requests:
    return Requests(
        scheduled_s=requests.scheduled_s + by_s,
        start_s=requests.start_s + by_s,
        end_s=requests.end_s + by_s,
        ok=requests.ok,
    )


def _joined(parts: Sequence[Requests]) -> Requests:
    """All requests of a piece, by scheduled time."""
    if not parts:
        return Requests.empty()
    joined = Requests(
        scheduled_s=np.concatenate([part.scheduled_s for part in parts]),
        start_s=np.concatenate([part.start_s for part in parts]),
        end_s=np.concatenate([part.end_s for part in parts]),
        ok=np.concatenate([part.ok for part in parts]),
    )
    return joined.where(np.argsort(joined.scheduled_s, kind="stable"))


# ---------- The requests of a node whose application keeps no log of them, from the tick records

MOST_REQUESTS: Final = 50_000_000
"""More do not fit the memory of a small machine: that many take 1.3 GB."""
_STEADY_VARIANCE: Final = 0.25
"""The variance of the number of requests, relative to that of chance, up to which they are steady."""


def requests_in(
    ticks: Iterable[pb.TickRecord], piece: Piece, application: str | None = None
) -> Requests:
    """The requests scheduled in a piece that its ticks have in their histograms, by that time.

    A latency is known to 1 %, or to the range that the application's own histogram gives. A
    request counts as having ended between the tick that tells of it and the one before, so its
    times are wrong by less than a tick and a period of the source. Requests that failed are not
    among them, and how long a request waited before it was sent is not known.

    Args:
        ticks: The ticks of the piece.
        piece: The piece.
        application: The name of the application, where there are several.

    Raises:
        RecordingError: If there are more than :data:`MOST_REQUESTS`.
    """
    times_s: list[float] = []
    tellers: list[int] = []
    latencies_s: list[float] = []
    counts: list[int] = []
    for number, tick in enumerate(ticks):
        new = _latency(tick.sample, application).new_requests
        times_s.append(tick.time_s)
        tellers += [number] * len(new.buckets)
        latencies_s += [1e-3 * middle_ms(bucket) for bucket in new.buckets]
        counts += new.counts
    if sum(counts) > MOST_REQUESTS:
        raise RecordingError(
            f"The ticks tell of {sum(counts)} requests, more than {MOST_REQUESTS}.",
            next_step="Convert fewer ticks: give one of the files that the recorder set aside.",
        )
    each = np.array(counts, dtype=np.int64)
    end_s = _spread(np.array(times_s), np.repeat(np.array(tellers, dtype=np.int64), each))
    scheduled_s = end_s - np.repeat(np.array(latencies_s), each)
    told = Requests(
        scheduled_s=scheduled_s,
        start_s=scheduled_s,
        end_s=end_s,
        ok=np.ones(end_s.size, dtype=bool),
    ).where(np.argsort(scheduled_s, kind="stable"))
    return told.scheduled_in(piece.start_s, piece.end_s)


def _spread(tick_s: Array, teller: NDArray[np.int64]) -> Array:
    """When requests ended: random ones at random times between two ticks, and steady ones evenly.

    The number of random ones varies from tick to tick as much as chance lets it.

    Args:
        tick_s: The time of each tick.
        teller: Of each request the number of the tick that tells of it, in ascending order.
    """
    counts, spans_s = np.bincount(teller, minlength=tick_s.size), np.diff(tick_s)
    expected = teller.size * spans_s / max(spans_s.sum(), 1e-9)
    off = (counts[1:] - expected) / np.sqrt(np.maximum(expected, 1e-9))
    # A rate that changes slowly is not chance, nor are 1 and 2 requests by turns.
    chance = min(off.var(), 0.5 * np.square(np.diff(off)).mean()) if off.size > 1 else 0.0
    if chance > _STEADY_VARIANCE:
        before = np.random.default_rng(1).random(teller.size)
    else:
        last = np.cumsum(counts)[teller] - 1
        before = (last - np.arange(teller.size)) / counts[teller]
    return np.asarray(tick_s[teller] - before * np.append(0.0, spans_s)[teller])


def _latency(sample: pb.Sample, application: str | None) -> pb.LatencySample:
    """The latencies of an application; of the only one by default."""
    if application is None:
        return sample.latency
    mine = (one.latency for one in sample.applications if one.name == application)
    return next(mine, pb.LatencySample())


# ---------- The work of the background in a piece of a trace, from its ticks.


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUnits:
    """The work of one slot."""

    unit: str
    time_s: Array
    units: Array
    """Cumulative."""
    unknown_share: float
    """The share of the time in which it is not known: 1 if it never is."""


def slot_units(
    ticks: Sequence[pb.TickRecord], slot: int, start_s: float, end_s: float
) -> SlotUnits:
    """The work of a slot: by its own counter, or else its processor time.

    Where it is not known, the slot is taken to have worked at the mean rate of the rest.

    Args:
        ticks: The ticks of the piece.
        slot: The slot.
        start_s: When the piece begins, CLOCK_MONOTONIC.
        end_s: When it ends.
    """
    unit, groups, (read_s, units, known_s) = _readings(ticks, slot)
    span_s, grown, known = np.diff(read_s), np.diff(units), np.diff(known_s)
    # The counter, or what reads it, was started again, or the slot has another pod.
    anew = (grown < 0.0) | (known < 0.0) | (groups[1:] != groups[:-1])
    grown, known = np.where(anew, 0.0, grown), np.where(anew, 0.0, np.minimum(known, span_s))
    if known.sum() <= 0.0:  # an empty slot has done no work
        names = {one.name for tick in ticks for one in tick.sample.slots[slot : slot + 1]}
        empty = bool(names) and all(name.startswith(UNBOUND) for name in names)
        ends_s = np.array([start_s, end_s] if empty else [], dtype=np.float64)
        share = float(not empty)
        return SlotUnits(unit=unit, time_s=ends_s, units=0.0 * ends_s, unknown_share=share)
    rate_per_s = grown.sum() / known.sum()
    done = np.cumsum(grown + rate_per_s * (span_s - known), dtype=np.float64)
    before_s, after_s = max(read_s[0] - start_s, 0.0), max(end_s - read_s[-1], 0.0)
    usual_s = 1.5 * float(np.median(span_s))  # between two readings nothing is missing
    missing_s = (span_s - known).sum() + sum(
        gap_s for gap_s in (before_s, after_s) if gap_s > usual_s
    )
    first = rate_per_s * before_s
    last = first + done[-1]
    return SlotUnits(
        unit=unit,
        time_s=np.concatenate([[read_s[0] - before_s], read_s, [read_s[-1] + after_s]]),
        units=np.concatenate([[0.0, first], first + done, [last + rate_per_s * after_s]]),
        unknown_share=float(missing_s / max(end_s - start_s, 1e-9)),
    )


def _readings(
    ticks: Sequence[pb.TickRecord], slot: int
) -> tuple[str, NDArray[np.object_], tuple[Array, Array, Array]]:
    """The unit, and of each reading its group, its time, units and known seconds.

    A counter of the work goes on when its slot gets another pod; processor time is the pod's.
    """
    unit, rows, groups = CPU_UNIT, dict[float, tuple[float, float]](), dict[float, str]()
    for tick in ticks:
        work = next((one for one in tick.sample.work if one.slot == slot), None)
        if work is not None:
            unit = work.unit
            if work.HasField("read_s"):
                rows[work.read_s], groups[work.read_s] = (work.units, work.known_s), ""
        elif slot < len(tick.sample.slots):
            group = tick.sample.slots[slot]
            if group.HasField("cpu_usage_us"):
                rows[tick.time_s] = (group.cpu_usage_us * 1e-6, tick.time_s)
                groups[tick.time_s] = group.name
    read_s = np.array(list(rows), dtype=np.float64)
    table = np.array(list(rows.values()), dtype=np.float64).reshape(-1, 2)
    names = np.array(list(groups.values()), dtype=object)
    return unit, names, (read_s, table[:, 0], table[:, 1])


def as_units(slots: Sequence[SlotUnits]) -> Units:
    """The table of the work of all slots, in slot order."""
    counts = [one.time_s.size for one in slots]
    return Units(
        slot=np.repeat(np.arange(len(slots), dtype=np.int32), counts),
        time_s=np.concatenate([np.zeros(0), *(one.time_s for one in slots)]),
        units=np.concatenate([np.zeros(0), *(one.units for one in slots)]),
    )


MOST_PIECE_S: Final = 600.0
MOST_PIECES: Final = 12
"""By default, of each controller."""
_LEAST_REQUESTS: Final = 20
"""With fewer there is no tail to learn from."""
_MOST_UNKNOWN: Final = 0.1
"""The largest share of a piece in which the work of a slot may be unknown."""
_BURN_IN_SHARE: Final = 0.1
_MOST_BURN_IN_S: Final = 30.0
"""The first tenth of a piece, at most this long, is burn-in: a twin needs it to fill its memory,
and the controller before may still have an effect."""
_SHORT: Final = f"in pieces under {LEAST_S:g} s"
_OTHER: Final = "under an earlier configuration"
_OTHER_DAY: Final = "of other days"
_IDLE: Final = f"with fewer than {_LEAST_REQUESTS} requests"
_UNCOUNTED: Final = "without the work of every slot"
_REMOVED: Final = "that the daemon removed meanwhile, because its record is full"
_SPARED: Final = "beyond the most pieces of a controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The result of a conversion."""

    recordings: tuple[Path, ...]
    ticks: int
    requests: int
    length_s: float
    slot_units: tuple[tuple[str, str], ...]
    """The name of each slot, and the unit of its work."""
    left_out_s: tuple[tuple[str, float], ...]
    """Why time was left out, and how much."""
    left_out_ticks: int
    """Ticks from before the last boot, whose monotonic clock was another one."""
    from_ticks: int
    """Recordings with requests that no log holds, but the ticks."""
    restarted: int
    """Recordings from before the daemon's last start, whose arms have arguments that it may have
    been given only then."""
    torn_bytes: int
    """Bytes at the end that a crash left incomplete."""

    @property
    def summary(self) -> str:
        """The result in a few lines."""
        work = ", ".join(f"{name} in {unit}" for name, unit in self.slot_units)
        lines = [
            f"{len(self.recordings)} recordings: {self.ticks} ticks of {self.length_s:.0f} s, "
            f"{self.requests} requests",
            f"work: {work} (cpu-s is processor time)",
        ]
        if self.from_ticks:
            lines.append(
                f"the requests of {self.from_ticks} recordings are those of the ticks, "
                "because no log holds them"
            )
        if self.restarted:
            lines.append(
                f"{self.restarted} recordings are from before the daemon was last started; their "
                "arms have the arguments that this configuration gives"
            )
        lines += [f"left out: {seconds:.0f} s {why}" for why, seconds in self.left_out_s]
        if self.left_out_ticks:
            lines.append(f"left out: {self.left_out_ticks} ticks from before the last boot")
        if self.torn_bytes:
            lines.append(f"the last {self.torn_bytes} bytes were torn")
        return "\n".join(lines)


def convert_frames(
    source: Path,
    out: Path,
    *,
    config: Path,
    name: str,
    requests: Sequence[Path] = (),
    most_piece_s: float = MOST_PIECE_S,
    most_pieces: int = MOST_PIECES,
    days: tuple[date | None, date | None] | None = None,
    node_name: str = "",
) -> Converted:
    """Write recordings below ``out`` from the frames that a daemon left in ``source``.

    Args:
        source: The daemon's ``record.dir``, or the frames file in it.
        out: The directory of the recordings, which must not exist yet.
        config: The daemon's configuration: the target, the slots, and how to read the log.
        name: The name of the scenario in the recordings.
        requests: The application's logs; none takes the one that the configuration names, and for
            several applications that of each.
        most_piece_s: The most seconds of a recording.
        most_pieces: The most recordings of each controller.
        days: The first and the last day (UTC) to take; ``None`` for no bound. Pieces then end by
            the clock, so that a day that is over gives the same recordings each time.
        node_name: The node's name; by default that of this machine, which in a pod is the pod's.

    Raises:
        UsageError: If there are no frames in ``source``, no log of requests, or ``out`` exists.
        StallwardError: If a file cannot be read or has the wrong content, or nothing is left of
            the trace.
    """
    if out.exists():
        raise UsageError(f"{out} exists already.", next_step="Name a new directory with --out.")
    file = frames_file(source)
    settings = load_config(config)
    settings = replace(settings, background=slots_with_profiles(settings.background))
    trace = cut(read_ticks(file), most_piece_s, by_clock=days is not None)
    other_days_s = trace.keep(*(days or (None, None)))
    left_out: dict[str, float] = defaultdict(float)
    pieces = choose(_usable(file, trace, settings, left_out), most_pieces)
    usable_s = sum(piece.length_s for piece in trace.pieces) - sum(left_out.values())
    left_out[_SPARED] = usable_s - sum(piece.length_s for piece in pieces)
    left_out[_OTHER_DAY] = other_days_s
    logged = _logged_of_each(settings, requests, pieces)
    folder = out.with_name(f".{out.name}.{os.getpid()}.partial")
    building = _Building(folder, settings, name, node_name, left_out)
    ticks_of = _ticks_of(file, trace, pieces)
    from_ticks = 0
    try:
        for piece, ticks, logs in zip(pieces, ticks_of, logged, strict=True):
            names = piece.configuration.names or (None,)
            first, *others = (
                requests_in(ticks, piece, name) if log is None else log
                for name, log in zip(names, logs, strict=True)
            )
            if building.add(piece, ticks, first, others) and None in logs:
                from_ticks += 1
        if not building.written:
            raise RecordingError(
                f"Nothing is left of {file}: {_listed(left_out)}.",
                next_step="Let the daemon run longer under one controller, while the application "
                "answers requests.",
            )
        folder.rename(out)
    except OSError as error:
        raise RecordingError(f"{out} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Converted(
        recordings=tuple(out / path.name for path in building.written),
        ticks=building.ticks,
        requests=building.requests,
        length_s=building.length_s,
        slot_units=building.slot_units,
        left_out_s=tuple(_told(left_out)),
        left_out_ticks=trace.earlier_ticks,
        from_ticks=from_ticks,
        restarted=building.restarted,
        torn_bytes=extent(file).torn_bytes,
    )


def _logged_of_each(
    settings: DaemonConfig, named: Sequence[Path], pieces: Sequence[Piece]
) -> list[tuple[Requests | None, ...]]:
    """The logged requests of every piece, of each application."""
    sources = settings.latencies
    if named and len(sources) > 1:
        raise UsageError(
            "--requests names a log of one application, and the configuration protects "
            f"{len(sources)}.",
            next_step="Write the path of each log into a copy of the configuration for --config.",
        )
    return list(zip(*(logged_requests(one, named, pieces) for one in sources), strict=True))


def _usable(
    file: Path, trace: Trace, settings: DaemonConfig, left_out: dict[str, float]
) -> list[Piece]:
    """The pieces that are long enough and under the last configuration."""
    if trace.ticks < 2:
        raise RecordingError(
            f"{file} holds {trace.ticks} ticks.", next_step="Let the daemon run a little longer."
        )
    if not trace.pieces:
        raise RecordingError(
            f"No tick of {file} is of these days.",
            next_step="Name days since the node's last boot that its record still holds.",
        )
    last = trace.pieces[-1].configuration
    if len(last.groups) != len(settings.background):
        raise UsageError(
            f"The ticks have {len(last.groups)} slots, and the configuration "
            f"{len(settings.background)}.",
            next_step="Name the configuration that the daemon ran with.",
        )
    applications = settings.applications
    if last.names != (tuple(one.name for one in applications) if len(applications) > 1 else ()):
        raise UsageError(
            f"The ticks have {max(len(last.names), 1)} protected applications"
            f"{': ' if last.names else ''}{', '.join(last.names)}, and the configuration "
            f"{len(applications)}, or others.",
            next_step="Name the configuration that the daemon ran with.",
        )
    usable = []
    for piece in trace.pieces:
        if piece.configuration.lasting != last.lasting:
            left_out[_OTHER] += piece.length_s
        elif piece.length_s < LEAST_S:
            left_out[_SHORT] += piece.length_s
        else:
            usable.append(piece)
    if not usable:
        raise RecordingError(
            f"No piece of {file} is long enough: {_listed(left_out)}.",
            next_step=f"Let the daemon run at least {LEAST_S:g} s under one controller.",
        )
    return usable


def _told(left_out: dict[str, float]) -> list[tuple[str, float]]:
    """What was left out, and for how long; without what rounding leaves over."""
    return [(why, seconds) for why, seconds in left_out.items() if seconds >= 0.5]


def _listed(left_out: dict[str, float]) -> str:
    return ", ".join(f"{seconds:.0f} s are {why}" for why, seconds in _told(left_out))


def _ticks_of(file: Path, trace: Trace, pieces: Sequence[Piece]) -> Iterator[list[pb.TickRecord]]:
    """The ticks of each piece: only one piece of a long trace is held in memory."""
    ticks_left = read_ticks(file)
    first = dropwhile(lambda tick: times_s(tick) != trace.first_times_s, ticks_left)
    following = next(first, None)
    if following is None:  # it was removed meanwhile, and with it all from before the boot
        ticks_left = read_ticks(file)
        following = next(ticks_left, None)
    for piece in pieces:
        ticks: list[pb.TickRecord] = []
        while following is not None and following.time_s <= piece.end_s:
            if following.time_s >= piece.start_s:
                ticks.append(following)
            following = next(ticks_left, None)
        yield ticks


class _Building:
    """Writes the recordings of a trace one by one."""

    def __init__(
        self, out: Path, settings: DaemonConfig, name: str, node: str, left_out: dict[str, float]
    ) -> None:
        self._out, self._settings, self._name, self._node = out, settings, name, node
        self._left_out = left_out
        self.written: list[Path] = []
        self.ticks = self.requests = self.restarted = 0
        self.length_s = 0.0
        self.slot_units: tuple[tuple[str, str], ...] = ()

    def add(
        self,
        piece: Piece,
        ticks: Sequence[pb.TickRecord],
        requests: Requests,
        others: Sequence[Requests] = (),
    ) -> bool:
        """Write the recording of a piece, unless it lacks what a twin is fitted to.

        Args:
            piece: The piece.
            ticks: Its ticks.
            requests: The requests in it, of the first application.
            others: Those of each further one.

        Returns:
            Whether it was written.
        """
        if len(ticks) < piece.ticks:
            self._left_out[_REMOVED] += piece.length_s
            return False
        names = [slot.name for slot in self._settings.background]
        work = [slot_units(ticks, slot, piece.start_s, piece.end_s) for slot in range(len(names))]
        counts = [one.scheduled_s.size for one in (requests, *others)]
        if max(counts) < _LEAST_REQUESTS:
            self._left_out[_IDLE] += piece.length_s
            return False
        if not piece.alone and any(one.unknown_share > _MOST_UNKNOWN for one in work):
            self._left_out[_UNCOUNTED] += piece.length_s
            return False
        run = self._run_info(piece, ticks, requests, work)
        slug = re.sub(r"[^A-Za-z0-9_.=-]+", "-", run.arm)[:60]
        path = self._out / f"{len(self.written) + 1:04d}-{slug}"
        write_recording(
            path,
            run=run,
            ticks=ticks,
            requests=requests,
            others=dict(zip(run.other_applications, others, strict=True)),
            units=as_units(work),
        )
        self.written.append(path)
        self.ticks += len(ticks)
        self.requests += sum(counts)
        self.restarted += piece.is_restarted and ":" in run.arm
        self.length_s += piece.length_s
        self.slot_units = tuple(zip(names, run.slot_units, strict=True))
        return True

    def _run_info(
        self,
        piece: Piece,
        ticks: Sequence[pb.TickRecord],
        requests: Requests,
        work: Sequence[SlotUnits],
    ) -> RunInfo:
        settings, last = self._settings, ticks[-1].sample
        node, node_name = node_of_memory(last.node.memory_total_bytes)
        limit_bytes = last.zone.memory_limit_bytes or node.memory_total_bytes
        slo_ms = piece.configuration.slo_ms
        return RunInfo(
            scenario=self._name,
            condition="alone" if piece.alone else "together",
            arm=_arm(piece.controller, ticks, settings),
            seed=settings.control.seed,
            start_s=piece.start_s,
            end_s=piece.end_s,
            burn_in_s=min(_BURN_IN_SHARE * piece.length_s, _MOST_BURN_IN_S),
            sandbox_bytes=min(limit_bytes, node.memory_total_bytes),
            slo_ms=settings.control.slo_ms if slo_ms is None else slo_ms,
            node=node,
            node_name=self._node or node_name,
            request_rate_per_s=requests.scheduled_s.size / piece.length_s,
            swap_bytes=last.node.swap_total_bytes,
            slot_names=tuple(slot.name for slot in settings.background),
            slot_floors_bytes=tuple(slot.floor_bytes for slot in settings.background),
            slot_units=tuple(one.unit for one in work),
            other_applications=piece.configuration.names[1:],
            versions=versions(),
        )


def _arm(controller: str, ticks: Sequence[pb.TickRecord], settings: DaemonConfig) -> str:
    """The arm that a controller was: with its arguments, as far as they are known.

    Ticks have the name alone. The configuration has the arguments of its own controllers, and the
    actions that were drawn at random show the table that they are of.
    """
    for specification in (settings.control.controller, settings.control.default_controller):
        if specification.partition(":")[0] == controller:
            return specification
    if controller == "excite" and len(ticks[-1].decision.action) == len(SET_POINTS.sizes):
        return f"excite:table={SET_POINTS.name}"
    return controller
