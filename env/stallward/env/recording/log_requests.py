"""The requests in the logs of an application, by pieces of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

import numpy as np

from stallward.actuator.latency.config import LatencyConfig, LinesLatency
from stallward.agent.errors import UsageError
from stallward.agent.schema.file_kinds import other_kind_of
from stallward.env.errors import RecordingError
from stallward.env.recording.pieces import Piece
from stallward.env.recording.program_lines import parse_requests
from stallward.env.recording.recording import Requests
from stallward.env.scenario.scenario import LatencyLines

_CHUNK_CHARACTERS: Final = 16 << 20
_CLOCKS_APART_S: Final = 1e6
"""Times later than the end of the trace by more are Unix times and not monotonic ones."""


def logged_requests(
    source: LatencyConfig | None, named: Sequence[Path], pieces: Sequence[Piece]
) -> list[Requests | None]:
    """The requests that were scheduled in each piece; ``None`` where no log tells.

    Only lines in a file make a log: the other sources and a FIFO keep nothing, and lines without
    times cannot be told apart by pieces.

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
    has_times = False
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
            has_times = has_times or bool(logged.scheduled_s.size)
            _sort_in(logged, pieces, found)
    if not has_times and not named:
        return [None] * len(pieces)
    return [_joined(parts) for parts in found]


def _sort_in(logged: Requests, pieces: Sequence[Piece], found: Sequence[list[Requests]]) -> None:
    """Add the requests of each piece to what was found of it."""
    if not logged.scheduled_s.size:
        return
    is_unix = logged.scheduled_s[-1] - pieces[-1].end_s > _CLOCKS_APART_S
    for piece, parts in zip(pieces, found, strict=True):
        offset_s = piece.unix_offset_s if is_unix else 0.0
        span_s = (piece.start_s + offset_s, piece.end_s + offset_s)
        first, last = np.searchsorted(logged.scheduled_s, span_s)
        if last > first:
            mask = np.zeros(logged.scheduled_s.size, dtype=bool)
            mask[first:last] = True
            parts.append(_shifted(logged.where(mask), -offset_s))


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
    order = np.argsort(joined.scheduled_s, kind="stable")
    return Requests(
        scheduled_s=joined.scheduled_s[order],
        start_s=joined.start_s[order],
        end_s=joined.end_s[order],
        ok=joined.ok[order],
    )
