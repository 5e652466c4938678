"""The histograms of one metric on a scraped page.

Only lines of one metric are parsed, so that a page of megabytes costs little. Understood are the
Prometheus text format 0.0.4 and OpenMetrics 1.0 (their lines for a histogram differ in time
stamps, exemplars and ``_created``, which are skipped or used), OpenMetrics 2.0 with a histogram in
one line, and the ranges of VictoriaMetrics.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from stallward.actuator.latency.prometheus.selector import Selector, underscored
from stallward.agent.printable import printable

# ---------- One sample of the Prometheus text format: its name, its labels and its value
# The text format 0.0.4, OpenMetrics and the quoted names of Prometheus 3 are read::
#     request_seconds_bucket{code="200",le="0.1"} 3
#     {"http.server.duration_bucket","http.route"="/a",le="0.1"} 3
# https://prometheus.io/docs/instrumenting/exposition_formats/

_QUOTED: Final = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
_LABEL: Final = re.compile(
    rf"\s*(?:([a-zA-Z_][a-zA-Z0-9_]*)|{_QUOTED})\s*=\s*{_QUOTED}\s*(?:,|(?=\}}))"
)
_NAME: Final = re.compile(rf"\s*{_QUOTED}\s*(?:,|(?=\}}))")
_LABELS_END: Final = re.compile(r"\s*\}")
_ESCAPE: Final = re.compile(r"\\(.)")
_NUMBER: Final = re.compile(
    r"\s*([+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|nan))(?=\s|$)",
    re.IGNORECASE,
)
_LABEL_VALUE: Final = re.compile(
    r'(\b(?:le|vmrange)"?\s*=\s*"[^"]{0,60}")|=\s*(?:"(?:[^"\\]|\\.)*"?|[^"\s,}][^\s,}]*)'
)
COMPOSITE: Final = re.compile(r"\s*\{[a-z_]+:")
"""How a value of several numbers begins in OpenMetrics 2.0."""
_SHOWN_CHARACTERS: Final = 100


class Sample(NamedTuple):
    """One line of a page."""

    name: str
    labels: dict[str, str]
    value: float


def read_sample(name: str, rest: str) -> Sample | None:
    """Read a line after its name; ``None`` if it is not a sample.

    Args:
        name: The name before the braces; empty if it stands inside them.
        rest: The line after the name: labels, value, and whatever follows.
    """
    series = read_series_name(name, rest)
    if series is None:
        return None
    name, labels, place = series
    value = _NUMBER.match(rest, place)
    return None if value is None else Sample(name, labels, float(value[1]))


def read_series_name(name: str, rest: str) -> tuple[str, dict[str, str], int] | None:
    """Read the name and the labels of a line; ``None`` if it has none.

    Args:
        name: The name before the braces; empty if it stands inside them.
        rest: The line after the name.

    Returns:
        The name, the labels, and where in ``rest`` the value begins.
    """
    labels: dict[str, str] = {}
    position = len(rest) - len(rest.lstrip())
    if rest.startswith("{", position):
        position += 1
        while (end := _LABELS_END.match(rest, position)) is None:
            label = _LABEL.match(rest, position)
            if label is None:
                inner = _NAME.match(rest, position)
                if name and COMPOSITE.match(rest):
                    return name, labels, 0
                if inner is None or name:
                    return None
                name, position = _unescaped(inner[1]), inner.end()
                continue
            key = label[1] or _unescaped(label[2])
            if key in labels:
                return None
            labels[key] = _unescaped(label[3])
            position = label.end()
        position = end.end()
    return (name, labels, position) if name else None


def read_number(text: str) -> float | None:
    """Read a number as a page writes it; ``None`` if the text is none."""
    number = _NUMBER.fullmatch(text)
    return None if number is None else float(number[1])


def escaped(text: str) -> str:
    """Return a name or a value as it stands between quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def masked(line: str) -> str:
    """Return the start of a line as it may be shown: its form, and nothing personal.

    The values of labels may be paths or names of users, so only the bounds of a bucket are left of
    them; every digit becomes 0.
    """
    line = _LABEL_VALUE.sub(_hidden, line[: 10 * _SHOWN_CHARACTERS])
    return printable(re.sub("[0-9]", "0", line[:_SHOWN_CHARACTERS]))


def _hidden(match: re.Match[str]) -> str:
    return match[1] or '="..."'


_HEAD_BYTES: Final = 2048
_SEARCHED_BYTES: Final = 64 << 10
"""How far down the first metric may stand."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x9c", b"\x78\x01", b"\x78\xda")
"""How gzip, zstd and deflate begin."""
_PROTOBUF: Final = re.compile(
    rb"[\x80-\xff]{0,4}[\x00-\x7f]\x0a[\x01-\x7f][a-zA-Z_:].*\x12", re.DOTALL
)
"""The length of a message, and its first field: the name of a metric."""
_SAMPLE: Final = re.compile(
    rb"^[ \t]*(?:[a-zA-Z_:][\w:]*(?:\{.*\})?|\{.*\})[ \t]+[-+]?[0-9.NI{]", re.MULTILINE
)


class PageKind(Enum):
    """What a page is instead of an exposition."""

    EMPTY = "an empty page"
    COMPRESSED = "compressed data"
    HTML = "an HTML page"
    JSON = "JSON"
    PROTOBUF = "protobuf"
    UTF16 = "UTF-16 text"
    BINARY = "binary data"
    TEXT = "text without a single metric"


_HEADS: Final = (
    (PageKind.EMPTY, re.compile(rb"\s*\Z")),
    (PageKind.COMPRESSED, re.compile(b"|".join(map(re.escape, _COMPRESSED)))),
    (PageKind.UTF16, re.compile(rb"\xff\xfe|\xfe\xff|\x00[^\x00]|[^\x00]\x00[^\x00]\x00")),
    (PageKind.PROTOBUF, _PROTOBUF),
    (PageKind.BINARY, re.compile(rb".*?[\x00-\x08\x0e-\x1f]", re.DOTALL)),
    (PageKind.HTML, re.compile(rb"\s*<")),
    (PageKind.JSON, re.compile(rb'\s*(?:\[|\{\s*(?:\}|"[^"]*"\s*:))')),
)


def kind_of(body: bytes) -> PageKind | None:
    """Return what a page is; ``None`` if it is an exposition."""
    head = body[:_HEAD_BYTES].removeprefix(_BYTE_ORDER_MARK)
    for kind, pattern in _HEADS:
        if pattern.match(head):
            return kind
    return None if _SAMPLE.search(body, 0, _SEARCHED_BYTES) else PageKind.TEXT


MAX_SERIES: Final = 10_000
_MAX_LINE_BYTES: Final = 16 << 10


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
        for match in _line_pattern(name, ()).finditer(body, 0, end):
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


# ---------- A histogram in one line, as OpenMetrics 2.0 has it.
# The classic buckets of such a line are read::
#
#     d{a="b"} {count:17,sum:32.3,bucket:[0.1:8,1.0:17,+Inf:17]} st@1690000000.0
#
# A native histogram has a schema, spans and buckets without bounds in place of ``bucket``.
# https://prometheus.io/docs/specs/om/open_metrics_spec_2_0/

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
    """Read what stands behind the labels of a line; ``None`` if it is not a histogram.

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


MAX_REQUESTS: Final = 2.0**48
"""The most requests in a bucket; the sum over all series then still fits 64 bits."""
_STARTED: Final = b"process_start_time_seconds"
_STARTS: Final = 8
"""The most places at which the start of the process is looked for."""
_READ: Final = ("_bucket", "_sum", "_count", "_created")

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Series:
    """One histogram on a scraped page."""

    buckets: dict[float, float] = field(default_factory=dict)
    """The number of requests up to each upper bound (``le``), cumulative."""
    ranges: dict[tuple[float, float], float] = field(default_factory=dict)
    """The number of requests between two bounds (``vmrange``), not cumulative; a range without
    requests is not there."""
    total: float | None = None
    """The sum of all observations (``_sum``)."""
    count: float | None = None
    """The number of all observations (``_count``)."""
    created: float | None = None
    """When the histogram started from zero (``_created``), in seconds since 1970."""

    @property
    def requests(self) -> float:
        """The number of requests in all buckets."""
        return self.buckets[math.inf] if self.buckets else math.fsum(self.ranges.values())

    def is_bare(self) -> bool:
        """Whether it has no bucket but +Inf, as the text form of a native histogram."""
        return not self.ranges and self.buckets.keys() == {math.inf}

    def settle(self) -> bool:
        """Keep one kind of buckets; False if neither is usable."""
        if self.ranges:
            self.buckets.clear()
            return True
        if math.inf not in self.buckets and self.count is not None:
            # Some clients leave the last bucket out; it holds all observations.
            if self.count < max(self.buckets.values(), default=math.inf):
                return False
            self.buckets[math.inf] = self.count
        return math.inf in self.buckets and any(map(math.isfinite, self.buckets))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """The series of one metric on a scraped page."""

    series: dict[Labels, Series]
    malformed: int
    """Lines and series of the metric that could not be used."""
    first_bad: str
    """What the first of them looks like, masked so that it can be shown; empty without any."""
    seen: int
    """All lines of the metric."""
    buckets_seen: int
    """Those of them that are buckets, of any labels."""
    without_buckets: int
    """Selected series of which the text format shows no buckets: native histograms."""
    started_s: float | None
    """When the process started, in seconds since 1970; ``None`` if the page does not say."""
    complete: bool = True
    """Whether the page was read to its end in time."""
    kind: PageKind | None = None
    """What the page is if it has no metrics at all."""


class HistogramParser:
    """Finds the series that match a selector.

    A name that needs quotes is also found in the form that clients write when they are not asked
    for quoted names, which is what ``curl`` shows.

    Args:
        selector: The metric and conditions on its labels.
    """

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        names = dict.fromkeys((selector.name, underscored(selector.name)))
        self._lines = {name: _line_pattern(name) for name in names}

    def parse(self, body: bytes, until_s: float = math.inf) -> Exposition:
        """Parse the histograms in ``body``; never raises, whatever it holds.

        Args:
            body: The page.
            until_s: When to give up, by CLOCK_MONOTONIC.
        """
        body = body.removeprefix(_BYTE_ORDER_MARK)
        end = body.rfind(b"\n") + 1  # without a last line that may be cut off
        reading = _Reading(self._selector, "")
        for name, pattern in self._lines.items():
            reading = _Reading(self._selector, name)
            for match in pattern.finditer(body, 0, end):
                if time.monotonic() > until_s:
                    reading.complete = False
                    break
                reading.take(match)
            if reading.seen:
                break
        kind = None if reading.seen else kind_of(body)
        return reading.exposition(_started_s(body[:end]), kind)


class _Reading:
    """What was found on a page so far."""

    def __init__(self, selector: Selector, name: str) -> None:
        self._selector = selector
        self._name = name
        self._series: dict[Labels, Series] = {}
        self._malformed = self._native = self._buckets = 0
        self._first_bad = ""
        self.seen = 0
        self.complete = True

    def take(self, match: re.Match[bytes]) -> None:
        """Take a line of the metric."""
        if len(match[0]) > _MAX_LINE_BYTES:
            self.seen += 1
            self._bad(match)
            return
        name, rest = (match[1] or b"").decode(), match[2].decode("utf-8", "replace")
        line = read_series_name(name, rest) if b"{count:" in match[2] else None
        if line is not None and line[0] == self._name and is_composite(rest[line[2] :]):
            self.seen += 1
            if not self._add_composite(line[1], rest[line[2] :]):
                self._bad(match)
            return
        if name == self._name:
            self.seen += 1
            return
        sample = read_sample(name, rest)
        if sample is None:
            self.seen += 1
            self._bad(match)
            return
        suffix = sample.name.removeprefix(self._name)
        if not sample.name.startswith(self._name) or suffix not in {"", *_READ}:
            return  # the quoted name was the value of a label
        self.seen += 1
        self._buckets += suffix == "_bucket"
        if suffix and not self._add(suffix, sample):
            self._bad(match)

    def _bad(self, match: re.Match[bytes]) -> None:
        self._malformed += 1
        if not self._first_bad:
            self._first_bad = masked(match[0][:_MAX_LINE_BYTES].decode("utf-8", "replace").strip())

    def _add_composite(self, labels: dict[str, str], value: str) -> bool:
        """Add a histogram that stands in one line; False if it is malformed."""
        whole = read_composite(value)
        if whole is None or not self._selector.matches(labels):
            return whole is not None
        self._native += whole.is_native
        self._buckets += len(whole.buckets)
        key = tuple(sorted(labels.items()))
        if not whole.buckets:
            return True
        if key in self._series or len(self._series) >= MAX_SERIES:
            return False
        one = Series(total=whole.total, count=whole.count, created=whole.created)
        self._series[key] = one
        return all(_take_bucket(one, bound, value) for bound, value in whole.buckets)

    def _add(self, suffix: str, sample: Sample) -> bool:
        """Add a line to its series; False if it is malformed."""
        labels, value = sample.labels, sample.value
        bound, span = labels.pop("le", None), labels.pop("vmrange", None)
        if not self._selector.matches(labels):
            return True
        key = tuple(sorted(labels.items()))
        if key not in self._series and len(self._series) >= MAX_SERIES:
            return False
        one = self._series.setdefault(key, Series())
        if suffix == "_bucket":
            return _take_range(one, span, value) if span else _take_bucket(one, bound, value)
        if suffix == "_sum":
            one.total = value
        elif suffix == "_count":
            one.count = value if 0.0 <= value < MAX_REQUESTS else None
        else:
            one.created = value if math.isfinite(value) else None
        return True

    def exposition(self, started_s: float | None, kind: PageKind | None) -> Exposition:
        """Return what was found."""
        usable, malformed, native = {}, self._malformed, self._native
        for key, series in self._series.items():
            if series.is_bare():
                native += 1
            elif series.settle():
                usable[key] = series
            elif series.buckets:
                malformed += 1
        first_bad = self._first_bad
        if malformed and not first_bad:
            first_bad = 'a series of buckets without le="+Inf"'
        return Exposition(
            series=usable,
            malformed=malformed,
            first_bad=first_bad,
            seen=self.seen,
            buckets_seen=self._buckets,
            without_buckets=native,
            started_s=started_s,
            complete=self.complete,
            kind=kind,
        )


def _line_pattern(name: str, suffixes: Iterable[str] = _READ) -> re.Pattern[bytes]:
    """The pattern of a metric's lines: group 1 is the name, unless it is between the braces."""
    suffix = rb"(?:" + b"|".join(part.encode() for part in suffixes) + rb")?"
    plain, quoted = re.escape(name.encode()), re.escape(escaped(name).encode())
    return re.compile(
        rb"^[ \t]*(?:(" + plain + suffix + rb")(?=[{ \t])"
        rb'|(?=\{.*"' + quoted + suffix + rb'"))(.*)$',
        re.MULTILINE,
    )


def _take_bucket(series: Series, bound: str | None, value: float) -> bool:
    upper = None if bound is None else read_number(bound)
    if upper is None or math.isnan(upper) or not 0.0 <= value < MAX_REQUESTS:
        return False
    if upper in series.buckets:
        return False
    series.buckets[upper] = value
    return True


def _take_range(series: Series, span: str, value: float) -> bool:
    first, _, last = span.partition("...")
    low, high = read_number(first), read_number(last)
    # A comparison with NaN is false.
    if low is None or high is None or not (low <= high and 0.0 <= value < MAX_REQUESTS):
        return False
    if (low, high) in series.ranges:
        return False
    series.ranges[low, high] = value
    return True


def _started_s(body: bytes) -> float | None:
    """Return when the process started; ``None`` if the page does not say, or of several."""
    starts: set[float] = set()
    place = -1
    for _ in range(_STARTS):
        place = body.find(_STARTED, place + 1)
        if place < 0:
            break
        if place and body[place - 1 : place] != b"\n":
            continue  # a comment that names it
        rest = body[place + len(_STARTED) : place + _MAX_LINE_BYTES].partition(b"\n")[0]
        sample = read_sample("x", rest.decode("utf-8", "replace"))
        if sample is not None and math.isfinite(sample.value):
            starts.add(sample.value)
    return starts.pop() if len(starts) == 1 else None
