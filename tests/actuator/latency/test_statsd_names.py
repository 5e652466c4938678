"""Names of StatsD lines whose tags hold colons, as addresses and classes of Ruby do."""

from __future__ import annotations

import pytest

from stallward.actuator.latency.counts import Tally
from stallward.actuator.latency.statsd import StatsdFilter, StatsdLines


class Taken:
    """What a line brings."""

    def __init__(self, wanted: StatsdFilter) -> None:
        self.values: list[float] = []
        self.tally = Tally()
        self.lines = StatsdLines(wanted, self.tally, self._add)

    def _add(self, value: float, weight: float) -> bool:
        self.values.append(value)
        return weight > 0.0


@pytest.mark.parametrize(
    ("line", "values", "malformed"),
    [
        (b"lat,worker=Priceline::PriceQueryWorker:426|ms", [426.0], 0),
        (b"lat,url=http://www.google.com:10|ms", [10.0], 0),
        (b"lat;host=[::1]:8080:10|ms|@0.5", [10.0], 0),
        (b"lat#at=2026-11-25T13:00:12|ms", [12.0], 0),
        (b"lat,host=a:12|ms:13|ms", [12.0, 13.0], 0),
        (b"lat,host=a:12|ms|#url:http://b:80", [12.0], 0),
        (b"lat:12:13|d|#host:a", [12.0, 13.0], 0),
        (b"lat,url=http://a:b|ms", [], 1),
        (b"lat.x,url=http://a:10|ms", [], 0),
    ],
)
def test_the_value_stands_behind_the_last_colon_of_a_name_with_tags(
    line: bytes, values: list[float], malformed: int
) -> None:
    taken = Taken(StatsdFilter(metric=b"lat"))
    taken.lines.take(line)
    assert (taken.values, taken.tally.malformed) == (values, malformed)


def test_a_tag_with_colons_can_be_asked_for() -> None:
    taken = Taken(StatsdFilter(metric=b"lat", tags=frozenset({b"worker:A::B"})))
    taken.lines.take(b"lat,worker=A::B:1|ms\nlat,worker=A::C:2|ms")
    assert (taken.values, taken.tally.ignored_tags) == ([1.0], 1)
