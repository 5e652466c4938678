"""The lines of StatsD datagrams: ``name:12.5|ms|@0.1|#env:prod``, one timing or several a line.

The types ``ms`` (StatsD), ``h`` and ``d`` (Datadog's histogram and distribution) are latencies.
Several values share a type (``name:1:2|d``) or have one each, with its own sample rate
(``name:1|ms:2|ms|@0.5``). Tags stand behind the values, or in the name as InfluxDB, Graphite,
Librato and SignalFx write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stallward.actuator.latency.config import UNIT_MS, StatsdLatency
from stallward.actuator.latency.counts import Tally, without_digits
from stallward.agent.printable import printable

LEAST_RATE: Final = 0.001
"""Smaller sample rates are malformed, so that one value never counts as more than 1,000 requests:
whoever may send could outvote all others with one datagram."""
NAMES: Final = 16
"""How many other names are kept in mind."""
SHOWN_NAMES: Final = 5
_NAME_CHARACTERS: Final = 64
_NUMBER: Final = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TAGS_START: Final = re.compile(rb"[,;#\[]")
"""Where the tags in a name begin: InfluxDB's, Graphite's, Librato's and SignalFx's."""
_TIMES: Final = frozenset({b"ms", b"h", b"d"})
_TYPES: Final = _TIMES | {b"c", b"g", b"s", b"m"}
_NOT_METRICS: Final = (b"_e{", b"_sc|")
"""The prefixes of Datadog's events and service checks, which are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsdFilter:
    """The condition that lines must meet."""

    metric: bytes
    """The name of the metric, without tags."""
    tags: frozenset[bytes] = frozenset()
    """Tags that a line must all have, each as ``name:value``."""
    unit_ms: float = 1.0
    """Milliseconds per unit of types that have no unit of their own."""

    @classmethod
    def of(cls, config: StatsdLatency) -> StatsdFilter:
        """Return the condition that a configuration sets."""
        return cls(
            metric=config.metric.encode(),
            tags=frozenset(tag.encode() for tag in config.tags),
            unit_ms=UNIT_MS[config.unit],
        )


class FrequentNames:
    """The most frequent of many names, in bounded memory (Misra and Gries).

    Whatever a sender makes up, a name that is more than a 17th of all stays.
    """

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def note(self, name: bytes) -> None:
        """Count one name."""
        name, counts = name[:_NAME_CHARACTERS], self._counts
        if name in counts:
            counts[name] += 1
        elif len(counts) < NAMES:
            counts[name] = 1
        else:
            self._counts = {kept: count - 1 for kept, count in counts.items() if count > 1}

    def shown(self) -> tuple[str, ...]:
        """Return the most frequent names, as text that a terminal may show."""
        by_count = sorted(self._counts, key=lambda name: (-self._counts[name], name))
        return tuple(printable(name.decode("utf-8", "replace")) for name in by_count[:SHOWN_NAMES])


@dataclass(slots=True)
class _Timing:
    """Values that share a type and a sample rate."""

    values: list[bytes]
    kind: bytes = b""
    weight: float = 1.0


class StatsdLines:
    """Takes in datagrams: passes on their latencies, and counts everything else.

    Args:
        wanted: The condition that lines must meet.
        tally: The counts.
        add: Takes a latency in ms and how many requests it stands for; False refuses it.
    """

    def __init__(
        self, wanted: StatsdFilter, tally: Tally, add: Callable[[float, float], bool]
    ) -> None:
        self._wanted, self._tally, self._add = wanted, tally, add
        self._others = FrequentNames()

    @property
    def other_names(self) -> tuple[str, ...]:
        """The most frequent names of timings that are not the wanted one."""
        return self._others.shown()

    def take(self, datagram: bytes) -> None:
        """Take in one datagram."""
        for line in datagram.split(b"\n"):
            stripped = line.strip(b" \t\r\0")
            if stripped and not stripped.startswith(_NOT_METRICS) and not self._take(stripped):
                self._tally.note_malformed(stripped, show=shown_line)

    def _take(self, line: bytes) -> bool:
        """Take in one line; false if it is malformed (of whatever metric)."""
        name, rest = split_line(line)
        if not name or b"|" not in rest:
            return False
        tags = frozenset[bytes]()
        if name != self._wanted.metric:
            plain, tags = split_name(name)
            if plain != self._wanted.metric:
                if rest.split(b"|", 2)[1].partition(b":")[0] in _TIMES:
                    self._tally.ignored_names += 1
                    self._others.note(plain)
                return True
        parsed = parse_timings(rest)
        if parsed is None:
            return False
        timings, more_tags = parsed
        timings = [timing for timing in timings if timing.kind in _TIMES]
        if not timings:
            self._tally.ignored_types += 1
            return True
        if not self._wanted.tags <= tags | more_tags:
            self._tally.ignored_tags += 1
            return True
        return self._add_all(timings)

    def _add_all(self, timings: list[_Timing]) -> bool:
        understood = True
        for timing in timings:
            unit_ms = 1.0 if timing.kind == b"ms" else self._wanted.unit_ms
            for text in timing.values:
                value = _number(text)
                understood &= value is not None and self._add(value * unit_ms, timing.weight)
        return understood


def split_line(line: bytes) -> tuple[bytes, bytes]:
    """Split a line into its name and what stands behind it.

    A tag in the name may hold colons, as an address or a class of Ruby does. Behind such a name
    there is one value, so the last colon before the type ends it.
    """
    name, _, rest = line.partition(b":")
    if _TAGS_START.search(name) is not None and b":" in rest.partition(b"|")[0]:
        head, bar, sections = line.partition(b"|")
        name, _, value = head.rpartition(b":")
        return name, value + bar + sections
    return name, rest


def split_name(name: bytes) -> tuple[bytes, frozenset[bytes]]:
    """Split a name into the metric's name and its tags, as ``name:value``.

    ``lat,host=a``, ``lat;host=a``, ``lat#host=a`` and ``lat[host=a]`` all have the tag ``host:a``.
    """
    start = _TAGS_START.search(name)
    if start is None:
        return name, frozenset()
    text = name[start.end() :]
    if start[0] == b"[":
        if not text.endswith(b"]"):
            return name, frozenset()
        text = text[:-1]
    separator = b";" if start[0] == b";" else b","
    tags = frozenset(tag.replace(b"=", b":", 1) for tag in text.split(separator) if tag)
    return name[: start.start()], tags


def parse_timings(text: bytes) -> tuple[list[_Timing], frozenset[bytes]] | None:
    """Split what stands behind a name into timings and tags; ``None`` if it is malformed.

    A type or a sample rate ends with a colon where another value follows. Tags hold colons
    themselves, so nothing can follow them; they belong to all values of the line.
    """
    first, *sections = text.split(b"|")
    timing = _Timing(first.split(b":"))
    timings, tags = [timing], frozenset[bytes]()
    for section in sections:
        if not timing.kind:
            timing.kind, more, following = section.partition(b":")
            if not timing.kind:
                return None
        elif section.startswith(b"@"):
            rate, more, following = section[1:].partition(b":")
            number = _number(rate)
            if number is None or not LEAST_RATE <= number <= 1.0:
                return None
            timing.weight = 1.0 / number
        elif section.startswith(b"#"):
            tags |= frozenset(section[1:].split(b","))
            continue
        elif section in _TYPES:  # the value in front of it cannot be told from a tag
            return None
        else:  # Datadog's container, time and environment, and what may come after them
            continue
        if more:
            timing = _Timing(following.split(b":"))
            timings.append(timing)
    return (timings, tags) if timing.kind else None


def shown_line(line: str) -> str:
    """Return what a malformed line looked like, without its numbers and its tags."""
    return without_digits(line.partition("|#")[0].partition("\n")[0])


def _number(text: bytes) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None
