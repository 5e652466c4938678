"""The values of the series on a page that a selector selects, whatever their kind."""

from __future__ import annotations

import re
from typing import Final

from stallward.actuator.latency.prometheus.sample_line import escaped, read_sample
from stallward.actuator.latency.prometheus.selector import Selector, underscored

MAX_SERIES: Final = 10_000
_MAX_LINE_BYTES: Final = 16 << 10
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def read_series(body: bytes, selector: Selector) -> dict[str, float]:
    """Return the value of each series by its labels; never raises, whatever the page holds.

    A name that needs quotes is also found in the form that clients write when they are not asked
    for quoted names. A last line without an end is left out: it may be cut off.

    Args:
        body: The page.
        selector: The metric, whose name must stand on the page as it is, and its labels.
    """
    body = body.removeprefix(_BYTE_ORDER_MARK)
    end = body.rfind(b"\n") + 1
    for name in dict.fromkeys((selector.name, underscored(selector.name))):
        found: dict[str, float] = {}
        for match in _lines_of(name).finditer(body, 0, end):
            if len(match[0]) > _MAX_LINE_BYTES or len(found) == MAX_SERIES:
                continue
            rest = match[2].decode("utf-8", "replace")
            sample = read_sample((match[1] or b"").decode(), rest)
            if sample is None or sample.name != name or not selector.matches(sample.labels):
                continue
            found[",".join(f"{k}={v!r}" for k, v in sorted(sample.labels.items()))] = sample.value
        if found:
            return found
    return {}


def _lines_of(name: str) -> re.Pattern[bytes]:
    """The pattern of a metric's lines: group 1 is the name, unless it is between the braces."""
    plain, quoted = re.escape(name.encode()), re.escape(escaped(name).encode())
    return re.compile(
        rb"^[ \t]*(?:(" + plain + rb")(?=[{ \t])" rb'|(?=\{.*"' + quoted + rb'"))(.*)$',
        re.MULTILINE,
    )
