"""Reads the lines that programs of a scenario write: requests and work done. Pure."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable

import numpy as np

from stallward.actuator.latency.line_format import (
    LINE_BYTES,
    PATTERN_LINE_BYTES,
    LineFields,
    LineSplitter,
    Outcome,
    latency_s,
    parse_number,
)
from stallward.env.recording.recording import Requests, Units
from stallward.env.scenario.scenario import LatencyLines, UnitLines

_MOST_UNITS = 1e18
"""More units than any program does; sums of such numbers would not be exact."""
_MOST_S = 1e6
"""No request takes longer: what says so is no latency."""


def parse_requests(text: str, source: LatencyLines, *, realtime_offset_s: float = 0.0) -> Requests:
    """Every request in ``text``, by scheduled time; an incomplete last line is left out.

    Args:
        text: The file's contents.
        source: How to read the lines.
        realtime_offset_s: CLOCK_REALTIME - CLOCK_MONOTONIC, for sources with Unix times.
    """
    offset_s = realtime_offset_s if source.realtime else 0.0
    rows = [row for row in map(_request_reader(source), _whole_lines(text)) if row is not None]
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    table = table[np.isfinite(table).all(axis=1)]
    table = table[np.argsort(table[:, 0], kind="stable")]
    return Requests(
        scheduled_s=table[:, 0] - offset_s,
        start_s=table[:, 1] - offset_s,
        end_s=table[:, 2] - offset_s,
        ok=table[:, 3] != 0,
    )


def parse_units(texts: Iterable[str], sources: Iterable[UnitLines]) -> Units:
    """The work of all slots, cumulative over restarts of a slot's program.

    Args:
        texts: The contents of each slot's file, in the order of the slots.
        sources: How to read each of them.
    """
    slots: list[int] = []
    times_s: list[float] = []
    units: list[float] = []
    for slot, (text, source) in enumerate(zip(texts, sources, strict=True)):
        for time_s, total in _cumulated(text, source):
            slots.append(slot)
            times_s.append(time_s)
            units.append(total)
    return Units(
        slot=np.array(slots, dtype=np.int32),
        time_s=np.array(times_s, dtype=np.float64),
        units=np.array(units, dtype=np.float64),
    )


def _whole_lines(text: str) -> list[str]:
    return text.replace("\r", "\n").split("\n")[:-1]


def _cumulated(text: str, source: UnitLines) -> Iterable[tuple[float, float]]:
    before = total = 0.0
    for line in _whole_lines(text):
        fields = line.split()
        try:
            time_s, value = float(fields[0]), float(fields[1])
        except (IndexError, ValueError):
            continue
        if not (math.isfinite(time_s) and 0.0 <= value < _MOST_UNITS):
            continue
        if not source.cumulative:
            total += value
        else:
            # Less than before: the program was started again and counts from 0.
            total += value - before if value >= before else value
            before = value
        yield time_s, total


def _request_reader(
    source: LatencyLines,
) -> Callable[[str], tuple[float, float, float, float] | None]:
    """Make a function from a line to (scheduled, sent, end, ok); ``None`` if it is not a request."""
    pattern = None if source.pattern is None else re.compile(source.pattern)
    line_bytes = LINE_BYTES if pattern is None else PATTERN_LINE_BYTES
    splitter = LineSplitter(source.separator, pattern)
    unit_name, ok_name = splitter.field(source.unit, "unit"), splitter.field(source.ok, "ok")
    outcome = Outcome(source.failed_words, source.ok_words, source.failed_status)

    def read(line: str) -> tuple[float, float, float, float] | None:
        if len(line) > line_bytes:  # the daemon does not read such lines either
            return None
        try:
            fields = splitter.split(line)
            start = number(fields, source.start, source.time_unit_s)
            sent = number(fields, source.sent, source.time_unit_s)
            word = None if ok_name is None else fields.whole(ok_name)
            words = (fields.word(name) for name in (source.end, source.latency) if name)
            ok = word is None or outcome.is_answered(word)
            ok = ok and not any(map(outcome.is_failure, filter(None, words)))
            end = latency = None
            failed_may_lack = contextlib.nullcontext() if ok else contextlib.suppress(ValueError)
            with failed_may_lack:
                end = completion(fields)
            with failed_may_lack:
                latency = given_latency(fields)
        except ValueError:
            return None
        latency = 0.0 if latency is None and not ok else latency  # it has a time all the same
        if start is None and end is not None and latency is not None:
            start = end - latency
        if end is None and start is not None and latency is not None:
            end = start + latency
        if start is None or end is None:
            return None
        # The daemon takes no other latency either; a negative one comes of a clock that was set.
        if ok and not 0.0 <= end - start < _MOST_S:
            return None
        return start, start if sent is None else sent, end, float(ok)

    def completion(fields: LineFields) -> float | None:
        end = number(fields, source.end, source.time_unit_s, split=source.end_us is not None)
        extra = number(fields, source.end_us, 1e-6, split=True)
        return end if end is None or extra is None else end + extra

    def given_latency(fields: LineFields) -> float | None:
        text = None if source.latency is None else fields.whole(source.latency, with_unit=True)
        unit = None if unit_name is None else fields.word(unit_name)
        return None if text is None else latency_s(text, source.latency_unit_s, unit=unit)

    def number(
        fields: LineFields, name: str | None, unit: float, *, split: bool = False
    ) -> float | None:
        """Read a time; each part of one that is split is a number of its own."""
        if name is None:
            return None
        text = fields.word(name) if split else fields.whole(name)
        return None if text is None else parse_number(text) * unit

    return read
