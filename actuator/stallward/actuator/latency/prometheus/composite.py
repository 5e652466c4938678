"""A histogram in one line, as OpenMetrics 2.0 has it. Pure.

The classic buckets of such a line are read::

    d{a="b"} {count:17,sum:32.3,bucket:[0.1:8,1.0:17,+Inf:17]} st@1690000000.0

A native histogram has a schema, spans and buckets without bounds in place of ``bucket``.
https://prometheus.io/docs/specs/om/open_metrics_spec_2_0/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stallward.actuator.latency.prometheus.sample_line import COMPOSITE, read_number

_VALUE: Final = re.compile(r"\s*\{([^{}]*)\}")
_PART: Final = re.compile(r"\s*([a-z_]+)\s*:\s*(\[[^\[\]]*\]|[^,\[\]]*)\s*(?:,|$)")
_START: Final = re.compile(r"[^#]*?\sst@(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """The value of such a line."""

    buckets: tuple[tuple[str, float], ...]
    """The upper bounds of the classic buckets, and the requests up to each."""
    total: float | None
    count: float | None
    created: float | None
    is_native: bool
    """Whether it is a native histogram without classic buckets."""


def is_composite(value: str) -> bool:
    """Whether a value begins as one of several numbers does."""
    return COMPOSITE.match(value) is not None


def read_composite(value: str) -> Composite | None:
    """Read what stands behind the labels of a line; ``None`` if it is no histogram.

    Args:
        value: The value, and whatever follows.
    """
    whole = _VALUE.match(value)
    parts: dict[str, str] = {}
    position = 0
    while whole is not None and position < len(whole[1]):
        part = _PART.match(whole[1], position)
        if part is None or part[1] in parts:
            return None
        parts[part[1]], position = part[2].strip(), part.end()
    if whole is None or "count" not in parts:
        return None
    buckets = []
    for pair in parts.get("bucket", "[]")[1:-1].split(","):
        bound, _, text = pair.strip().rpartition(":")
        requests = read_number(text)
        if requests is not None:
            buckets.append((bound, requests))
        elif pair.strip():
            return None
    start = _START.match(value, whole.end())
    return Composite(
        buckets=tuple(buckets),
        total=read_number(parts.get("sum", "")),
        count=read_number(parts["count"]),
        created=None if start is None else read_number(start[1]),
        is_native=not buckets and "schema" in parts,
    )
