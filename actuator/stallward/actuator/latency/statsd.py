"""StatsD timings in a datagram: ``name:12.5|ms|@0.1|#env:prod``, one a line.

Understood are the types ``ms`` (StatsD), ``h`` and ``d`` (Datadog's histogram and distribution,
several values as ``name:1:2|d``), sample rates and tags. Other types and other names are none
of our business; lines that are none at all are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_NUMBER: Final = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MIN_RATE: Final = 1e-6
_NOT_TIMES: Final = (b"_e{", b"_sc|")
"""Datadog's events and service checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsdFilter:
    """Which lines are meant.

    Args:
        metric: The exact name.
        tags: Tags that must all be there.
        unit_ms: Milliseconds per unit of types that have no unit of their own.
    """

    metric: bytes
    tags: frozenset[bytes] = frozenset()
    unit_ms: float = 1.0


def take_datagram(
    datagram: bytes, wanted: StatsdFilter, add: Callable[[float, float], bool]
) -> int:
    """Hand every latency of a datagram to ``add``; returns how many lines were none.

    Args:
        datagram: What came in.
        wanted: Which lines are meant.
        add: Takes a latency in ms and how many requests it stands for; False refuses it.
    """
    malformed = 0
    for line in datagram.split(b"\n"):
        stripped = line.strip()
        if stripped and not stripped.startswith(_NOT_TIMES):
            malformed += not _take_line(stripped, wanted, add)
    return malformed


def _take_line(line: bytes, wanted: StatsdFilter, add: Callable[[float, float], bool]) -> bool:
    """Whether the line is one (of whatever metric)."""
    head, *sections = line.split(b"|")
    name, colon, values = head.partition(b":")
    if not (name and colon and sections):
        return False
    kind = sections[0]
    if name != wanted.metric or kind not in {b"ms", b"h", b"d"}:
        return True
    rate, tags = 1.0, frozenset[bytes]()
    for section in sections[1:]:
        if section.startswith(b"@"):
            found = _number(section[1:])
            if found is None or not _MIN_RATE <= found <= 1.0:
                return False
            rate = found
        elif section.startswith(b"#"):
            tags = frozenset(section[1:].split(b","))
    if not wanted.tags <= tags:
        return True
    unit_ms = 1.0 if kind == b"ms" else wanted.unit_ms
    understood = True
    for text in values.split(b":"):
        value = _number(text)
        understood &= value is not None and add(value * unit_ms, 1.0 / rate)
    return understood


def _number(text: bytes) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None
