"""The lines of StatsD datagrams, as clients of all kinds write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.latency.counts import LatencyCounts, Tally
from stallward.actuator.latency.statsd import (
    NAMES,
    FrequentNames,
    StatsdFilter,
    StatsdLines,
)

WANTED = StatsdFilter(metric=b"app.latency", unit_ms=1e3)
TAGGED = StatsdFilter(metric=b"lat", tags=frozenset({b"host:a"}))


def took(
    datagram: bytes, wanted: StatsdFilter = WANTED
) -> tuple[list[tuple[float, float]], LatencyCounts]:
    """The latencies of a datagram with their weights, and the counts of the rest."""
    latencies: list[tuple[float, float]] = []

    def add(value: float, weight: float) -> bool:
        if value < 0.0:
            return False
        latencies.append((value, weight))
        return True

    tally = Tally()
    lines = StatsdLines(wanted, tally, add)
    lines.take(datagram)
    tally.names = lines.other_names
    return latencies, tally.counts()


@pytest.mark.parametrize(
    ("datagram", "latencies", "malformed"),
    [
        (b"app.latency:12.5|ms", [(12.5, 1.0)], 0),
        (b"app.latency:12.5|ms\n", [(12.5, 1.0)], 0),
        (b"app.latency:12.5|ms\0", [(12.5, 1.0)], 0),
        (b"app.latency:1|ms\napp.latency:2|ms\r\n\n", [(1.0, 1.0), (2.0, 1.0)], 0),
        (b"app.latency:3|ms|@0.1", [(3.0, 10.0)], 0),
        (b"app.latency:3|ms|@0.5|#env:prod,x", [(3.0, 2.0)], 0),
        (b"app.latency:0.25|h", [(250.0, 1.0)], 0),
        (b"app.latency:0.25:0.5|d|#x|c:abc|T1700000000", [(250.0, 1.0), (500.0, 1.0)], 0),
        (b"app.latency:1e-3|d", [(1.0, 1.0)], 0),
        (b"app.latency:3|c", [], 0),
        (b"app.latency:3|g\nother:3|ms\nother:x|ms", [], 0),
        (b"_e{5,4}:title|text\n_sc|name|0", [], 0),
        (b"app.latency:3", [], 1),
        (b"app.latency|ms", [], 1),
        (b":3|ms", [], 1),
        (b"app.latency:|ms", [], 1),
        (b"app.latency:3|", [], 1),
        (b"app.latency:-3|ms", [], 1),
        (b"app.latency:nan|ms\napp.latency:inf|ms\napp.latency:1_0|ms", [], 3),
        ("app.latency:١٢|ms".encode(), [], 1),
        (b"app.latency:3|ms|@0", [], 1),
        (b"app.latency:3|ms|@2", [], 1),
        (b"app.latency:3|ms|@x", [], 1),
        (b"\x00\xff\xfe", [], 1),
        (b"app.latency:1:x:2|ms", [(1.0, 1.0), (2.0, 1.0)], 1),
        (b"", [], 0),
    ],
)
def test_lines(datagram: bytes, latencies: list[tuple[float, float]], malformed: int) -> None:
    found, counts = took(datagram)
    assert (found, counts.malformed) == (latencies, malformed)


@pytest.mark.parametrize(
    ("values", "latencies", "malformed"),
    [
        (
            b"5664|ms:6176|ms:6240|ms|@0.5:6304|ms",
            [(5664.0, 1.0), (6176.0, 1.0), (6240.0, 2.0), (6304.0, 1.0)],
            0,
        ),
        (b"1|ms:2|h:3|c", [(1.0, 1.0), (2000.0, 1.0)], 0),
        (b"3|c:1|ms", [(1.0, 1.0)], 0),
        (b"1:2|ms|@0.5:3|ms", [(1.0, 2.0), (2.0, 2.0), (3.0, 1.0)], 0),
        (b"1|ms:2|ms|#env:prod,a:b", [(1.0, 1.0), (2.0, 1.0)], 0),
        (b"1|ms|@0.5:2|ms|@0.25|#env:prod", [(1.0, 2.0), (2.0, 4.0)], 0),
        (b"1|ms:2", [], 1),
        (b"1|ms:2|ms|@x:3|ms", [], 1),
        (b"1|ms:", [], 1),
        (b"1|ms|#env:prod:2|ms", [], 1),
        (b"1|ms::2|ms", [(1.0, 1.0), (2.0, 1.0)], 1),
    ],
)
def test_several_values_with_types_of_their_own(
    values: bytes, latencies: list[tuple[float, float]], malformed: int
) -> None:
    found, counts = took(b"app.latency:" + values)
    assert (found, counts.malformed) == (latencies, malformed)


def test_tags_must_all_be_there() -> None:
    wanted = StatsdFilter(metric=b"a", tags=frozenset({b"env:prod", b"x:1"}))
    lines = b"a:1|ms|#x:1,env:prod,y\na:2|ms|#env:prod\na:3|ms\na:4|ms|#env:prod,x:11"
    found, counts = took(lines, wanted)
    assert found == [(1.0, 1.0)]
    assert (counts.malformed, counts.ignored_tags) == (0, 3)


@pytest.mark.parametrize(
    "line",
    [
        b"lat:12|ms|#host:a",
        b"lat,host=a:12|ms",
        b"lat,env=b,host=a:12|ms",
        b"lat;host=a;env=b:12|ms",
        b"lat#env=b,host=a:12|ms",
        b"lat[host=a,env=b]:12|ms",
        b"lat,env=b:12|ms|#host:a",
    ],
)
def test_tags_in_the_name_are_understood(line: bytes) -> None:
    assert took(line, TAGGED)[0] == [(12.0, 1.0)]
    assert took(line, StatsdFilter(metric=b"lat"))[0] == [(12.0, 1.0)]
    other = took(line, StatsdFilter(metric=b"lat", tags=frozenset({b"host:b"})))
    assert (other[0], other[1].ignored_tags) == ([], 1)


@pytest.mark.parametrize("line", [b"lat[host=a:12|ms", b"late,host=a:12|ms", b"la,host=a:12|ms"])
def test_names_that_only_begin_alike_are_others(line: bytes) -> None:
    found, counts = took(line, TAGGED)
    assert (found, counts.ignored_names, counts.malformed) == ([], 1, 0)


def test_a_name_that_is_configured_with_its_tags_is_that_name() -> None:
    assert took(b"lat;host=a:3|ms", StatsdFilter(metric=b"lat;host=a"))[0] == [(3.0, 1.0)]


def test_what_is_ignored_is_counted_by_its_reason() -> None:
    _, counts = took(b"app.latency:3|g\nother,host=a:3|ms\nother:3|h\nx:1|c\nother:2|ms:3|ms")
    assert counts == LatencyCounts(ignored_types=1, ignored_names=3, names=("other",))


@pytest.mark.parametrize("rate", [b"0.000001", b"0.0009", b"1e-300"])
def test_a_sample_rate_that_outvotes_all_others_is_malformed(rate: bytes) -> None:
    found, counts = took(b"app.latency:9|ms|@" + rate)
    assert (found, counts.malformed) == ([], 1)
    ((latency_ms, weight),) = took(b"app.latency:9|ms|@0.001")[0]
    assert (latency_ms, round(weight, 6)) == (9.0, 1000.0)


def test_the_first_malformed_line_is_shown_without_its_numbers_and_tags() -> None:
    _, counts = took(b"app.latency:12x|ms|#user:alice\napp.latency:zz|ms\nu\x1b[31m")
    assert (counts.malformed, counts.first_malformed) == (3, "app.latency:00x|ms")
    assert took(b"u\x1b[31m" + b"x" * 500)[1].first_malformed.startswith("u?[00mxxx")
    assert len(took(b"x" * 5000)[1].first_malformed) == 100


def test_frequent_names_stay_whatever_else_is_sent() -> None:
    names = FrequentNames()
    for number in range(20_000):
        names.note(b"made up %d" % number)
        if number % 10 == 0:
            names.note(b"app.request")
    assert names.shown()[0] == "app.request"
    assert len(names._counts) <= NAMES


@given(st.binary(max_size=200))
def test_hostile_datagrams_never_raise(noise: bytes) -> None:
    took(b"app.latency:" + noise)
    took(b"app.latency," + noise)
    took(noise)
