"""The histograms on a page: every way to write them, and what is said about the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_pages import BOUNDS, page, parse

from stallward.actuator.latency.prometheus.histogram import (
    HistogramParser,
    PageKind,
    kind_of,
    masked,
)
from stallward.actuator.latency.prometheus.increase import HistogramIncrease
from stallward.actuator.latency.prometheus.selector import parse_selector


@pytest.mark.parametrize("generate", [generate_latest, generate_openmetrics])
def test_pages_of_the_official_library_are_read(
    generate: Callable[[CollectorRegistry], bytes],
) -> None:
    registry = CollectorRegistry()
    histogram = Histogram("t_seconds", 'a "help"', ["path"], registry=registry, buckets=BOUNDS)
    odd = 'a"b\\c\nd}e,f='
    for value in (0.001, 0.02, 0.03, 0.2, 7.0):
        histogram.labels(odd).observe(value)
    parsed = parse(generate(registry))
    assert (parsed.malformed, len(parsed.series)) == (0, 1)
    ((labels, series),) = parsed.series.items()
    assert labels == (("path", odd),)
    assert series.buckets == {0.005: 1, 0.01: 1, 0.05: 3, 0.1: 3, 0.5: 4, math.inf: 5}
    assert series.total == pytest.approx(7.251)
    assert series.created is not None


def test_the_official_parser_agrees_on_every_bucket() -> None:
    registry = CollectorRegistry()
    histogram = Histogram("t_seconds", "x", ["a", "b"], registry=registry)
    for i in range(200):
        histogram.labels(str(i % 3), str(i % 5)).observe(i / 100.0)
    body = generate_latest(registry)
    theirs = {
        (tuple(sorted((k, v) for k, v in s.labels.items() if k != "le")), float(s.labels["le"])): (
            s.value
        )
        for family in text_string_to_metric_families(body.decode())
        for s in family.samples
        if s.name == "t_seconds_bucket"
    }
    ours = {
        (labels, bound): count
        for labels, series in parse(body).series.items()
        for bound, count in series.buckets.items()
    }
    assert ours == theirs


@pytest.mark.parametrize(
    ("line", "malformed"),
    [
        ('t_seconds_bucket{le="0.1"} 1 1700000000000', 0),
        ('t_seconds_bucket{le="0.1"} 1 # {trace_id="}"} 0.05 1.5', 0),
        (' t_seconds_bucket{le="0.1"} 1', 0),
        ('t_seconds_bucket {le="0.1",} 1.0e0', 0),
        ('t_seconds_bucket{ le = "1e-1" , } 1', 0),
        ("t_secondsish 3", 0),
        ("# TYPE t_seconds_bucket 1", 0),
        ('t_seconds_bucket{le="0.1"} NaN', 1),
        ('t_seconds_bucket{le="0.1"} -1', 1),
        ('t_seconds_bucket{le="0.1"} 1x', 1),
        ('t_seconds_bucket{le="0.1"} 1_0', 1),
        ('t_seconds_bucket{le="nan"} 1', 1),
        ('t_seconds_bucket{le="x"} 1', 1),
        ("t_seconds_bucket 1", 1),
        ('t_seconds_bucket{le="0.1" 1', 1),
        ('t_seconds_bucket{le="0.1",le="0.2"} 1', 1),
        ('t_seconds_bucket{le=0.1} 1', 1),
        ("t_seconds_sum x", 1),
    ],
)  # fmt: skip
def test_odd_lines_are_read_or_counted(line: str, malformed: int) -> None:
    good = 't_seconds_bucket{le="0.5"} 2\nt_seconds_bucket{le="+Inf"} 3\n'
    parsed = parse(f"{line}\n{good}")
    assert parsed.malformed == malformed
    assert parsed.series[()].buckets.items() >= {0.5: 2.0, math.inf: 3.0}.items()


def test_a_page_without_a_histogram_has_no_series() -> None:
    for body in ("", "other 1\n", 't_seconds{quantile="0.9"} 1\n', 't_seconds_bucket{le="1"} 1\n'):
        assert parse(body).series == {}
    assert parse('t_seconds_bucket{le="+Inf"} 1\n').series == {}
    torn = page(1, 2, 3)
    assert parse(torn[: torn.index("+Inf")]).series == {}


@given(st.binary(max_size=200))
def test_hostile_pages_never_raise(noise: bytes) -> None:
    parsed = parse(b"t_seconds_bucket" + noise + b"\n" + page(1, 2).encode() + noise)
    increase = HistogramIncrease(1e3)
    increase.take(parsed, 0.0, 1000.0)
    increase.take(parsed, 0.1, 1000.1)


QUOTED = [
    # name and labels in quotes, as Prometheus 3 writes them
    ('{"d.x"}', '{"d.x_bucket","le"="0.1"} 3\n{"d.x_bucket","le"="+Inf"} 4\n'),
    ('{"d.x"}', '{"d.x_bucket",le="0.1"} 3\n{"d.x_bucket",le="+Inf"} 4 # {t="}"} 1\n'),
    ('{"d.x"}', '{le="0.1","d.x_bucket"} 3\n{le="+Inf","d.x_bucket",} 4 1700000000000\n'),
    ('{"d"}', '{"d_bucket","le"="0.1"} 3\n{"d_bucket","le"="+Inf"} 4\n'),
    ("d", 'd_bucket{"http.route"="/a",le="0.1"} 3\nd_bucket{"http.route"="/a",le="+Inf"} 4\n'),
    (
        'd{"http.route"="/a"}',
        'd_bucket{"http.route"="/a",le="0.1"} 3\nd_bucket{"http.route"="/a",le="+Inf"} 4\n'
        'd_bucket{"http.route"="/b",le="0.1"} 9\nd_bucket{"http.route"="/b",le="+Inf"} 9\n',
    ),
    (r'{"a\"b\\c"}', r'{"a\"b\\c_bucket",le="0.1"} 3' "\n" r'{"a\"b\\c_bucket",le="+Inf"} 4' "\n"),
    ('{"größe"}', '{"größe_bucket",le="0.1"} 3\n{"größe_bucket",le="+Inf"} 4\n'),
    # what clients write for those who do not ask for quotes
    ('{"d.x"}', 'd_x_bucket{le="0.1"} 3\nd_x_bucket{le="+Inf"} 4\n'),
    ('{"d.x","http.route"="/a"}', page(3, 4, name="d_x", labels='http_route="/a"')),
]


@pytest.mark.parametrize(("selector", "body"), QUOTED)
def test_quoted_names_are_read(selector: str, body: str) -> None:
    parsed = parse(body, selector)
    assert parsed.malformed == 0
    (series,) = parsed.series.values()
    assert sorted(series.buckets.values()) == [3.0, 4.0]


@pytest.mark.parametrize(
    "body",
    [
        '{"e_bucket",of="d_bucket",le="1"} 3\n',
        '{"d_buckets",le="1"} 3\n',
        '{"d_bucket"\n',
    ],
)
def test_a_quoted_name_elsewhere_is_no_bucket(body: str) -> None:
    good = page(1, 2, name="d")
    assert parse(body + good, "d").series == parse(good, "d").series


@pytest.mark.parametrize(
    "line",
    [
        '{"d_bucket","e_bucket",le="0.1"} 3',
        'd_bucket{"e_bucket",le="0.1"} 3',
        '{"d_bucket",le="0.1"',
        '{"d_bucket","le"} 3',
    ],
)
def test_a_torn_or_twice_named_line_is_counted(line: str) -> None:
    parsed = parse(f"{line}\n{page(1, 2, name='d')}", "d")
    assert parsed.malformed == 1
    assert parsed.first_bad


VMRANGE = """\
d_bucket{path="/a",vmrange="0...1.000e-09"} 1
d_bucket{path="/a",vmrange="1.000e-03...1.136e-03"} 3
d_bucket{path="/a",vmrange="1.136e-03...1.292e-03"} 5
d_bucket{path="/a",vmrange="1.000e+18...+Inf"} 1
d_sum{path="/a"} 0.01
d_count{path="/a"} 10
"""


def test_ranges_of_victoriametrics_are_read() -> None:
    parsed = parse(VMRANGE, "d")
    assert parsed.malformed == 0
    (series,) = parsed.series.values()
    assert series.ranges == {
        (0.0, 1e-9): 1.0,
        (1e-3, 1.136e-3): 3.0,
        (1.136e-3, 1.292e-3): 5.0,
        (1e18, math.inf): 1.0,
    }
    assert series.requests == 10.0


@pytest.mark.parametrize("span", ["", "1", "1...", "...1", "2...1", "NaN...1", "1...x", "1..2"])
def test_a_range_that_is_none_is_counted(span: str) -> None:
    parsed = parse(f'd_bucket{{vmrange="{span}"}} 1\n' + VMRANGE, "d")
    assert parsed.malformed == 1
    assert len(parsed.series) == 1


NATIVE = 'd_bucket{le="+Inf"} 257\nd_sum 56.6\nd_count 257\n'


@pytest.mark.parametrize(
    ("body", "natives"),
    [
        (NATIVE, 1),
        ('d_bucket{a="1",le="+Inf"} 2\nd_bucket{a="2",le="+Inf"} 3\n', 2),
        ("d {count:17,sum:3.3,schema:3,positive_spans:[0:2],positive_buckets:[5,7]}\n", 1),
        ('d{a="b"} {count:59,sum:120,schema:7,zero_threshold:1e-4}\n', 1),
    ],
)
def test_native_histograms_are_recognised(body: str, natives: int) -> None:
    parsed = parse(body, "d")
    assert (parsed.series, parsed.without_buckets, parsed.malformed) == ({}, natives, 0)


COMPOSITE = 'd%s {count:17,sum:32.3,bucket:[0.1:8,1.0:17,+Inf:17]} 1.5 st@1690000000.5 # {t="x"} 1'


def test_a_histogram_in_one_line_is_read() -> None:
    """OpenMetrics 2.0."""
    body = COMPOSITE % '{a="b"}' + "\n" + COMPOSITE % '{a="{count:1}"}' + "\n"
    body += '{"d",a="c"} {count:3,sum:1,bucket:[0.1:3,+Inf:3],schema:3}\n'
    parsed = parse(body, "d")
    one = parsed.series[("a", "b"),]
    assert one.buckets == {0.1: 8.0, 1.0: 17.0, math.inf: 17.0}
    assert (one.total, one.count, one.created) == (32.3, 17.0, 1690000000.5)
    assert [key[0][1] for key in parsed.series] == ["b", "{count:1}", "c"]
    assert (parsed.without_buckets, parsed.malformed) == (0, 0)
    assert list(parse(body, 'd{a=~"b|x"}').series) == [(("a", "b"),)]
    assert kind_of(body.encode()) is None


@pytest.mark.parametrize(
    "value",
    [
        "{count:17,sum:3.3,bucket:[0.1:8,+Inf:17]",
        "{count:17,sum:3.3,bucket:[0.1:8,+Inf:x]}",
        "{count:17,sum:3.3,bucket:[0.1:8,0.1:9,+Inf:17]}",
        "{count:17,sum:3.3,bucket:[x:8,+Inf:17]}",
        "{count:17,count:18,bucket:[0.1:8,+Inf:17]}",
        "{count:17,sum:3.3,bucket:[0.1:-8,+Inf:17]}",
    ],
)
def test_a_malformed_histogram_in_one_line_is_counted(value: str) -> None:
    assert parse(f"d {value}\n", "d").malformed >= 1


def test_a_summary_in_one_line_is_no_histogram() -> None:
    parsed = parse("d {count:17,sum:3.3,quantile:[0.5:0.1,0.99:0.3]}\n", "d")
    assert (parsed.series, parsed.without_buckets, parsed.malformed, parsed.seen) == ({}, 0, 0, 1)


def test_a_classic_histogram_beside_a_native_one_is_read() -> None:
    parsed = parse(NATIVE + page(1, 2, name="d", labels='a="b"'), "d")
    assert list(parsed.series) == [(("a", "b"),)]
    assert (parsed.without_buckets, parsed.malformed) == (1, 0)


def test_a_last_bucket_that_is_left_out_holds_all_observations() -> None:
    body = 'd_bucket{le="0.1"} 3\nd_sum 2\nd_count 5\n'
    assert parse(body, "d").series[()].buckets == {0.1: 3.0, math.inf: 5.0}
    torn = body.replace("d_count 5", "d_count 2")
    parsed = parse(torn, "d")
    assert (parsed.series, parsed.malformed) == ({}, 1)
    assert "+Inf" in parsed.first_bad


@pytest.mark.parametrize(
    "change",
    [
        lambda body: "\ufeff" + body,
        lambda body: body.replace("\n", "\r\n"),
        lambda body: body.replace("t_s", "  t_s"),
        lambda body: body.replace("t_s", "\t t_s"),
        lambda body: "# EOF\n" + body + "# EOF\n",
        lambda body: "<br />\n<b>Warning</b>: x\n" + body,
        lambda body: body.replace("} ", "} 0x") + body,
    ],
    ids=["byte order mark", "CRLF", "spaces", "tab", "EOF", "a warning of PHP", "bad lines"],
)
def test_what_surrounds_a_histogram_does_not_matter(change: Callable[[str], str]) -> None:
    body = page(1, 2, 3, total=0.5)
    assert parse(change(body)).series == parse(body).series


def test_a_count_beyond_all_counts_is_malformed() -> None:
    for value in ("1e15", "18446744073709551616", "1e999", "9" * 400):
        parsed = parse(f't_seconds_bucket{{le="0.5"}} {value}\n' + page(1, 2))
        assert parsed.malformed == 1


def test_the_start_of_the_process_is_found() -> None:
    start = "process_start_time_seconds"
    for text, seconds in (
        (f"# HELP {start} x\n# TYPE {start} gauge\n{start} 1.7640503285e+09\n", 1764050328.5),
        (f'{start}{{application="a"}} 1.5e9 1700000000000\n', 1.5e9),
        (f"{start} 1\n{start}{{a='b'}} 2\n", 1.0),
        (f'{start}{{pid="1"}} 1\n{start}{{pid="2"}} 2\n', None),
        (f"{start} NaN\n", None),
        (f"{start}_of_another 5\nmy_{start} 5\n", None),
        ("", None),
    ):
        good = page(1, 2, started=None)
        assert parse(text + good).started_s == seconds
        assert parse(good + text).started_s == seconds


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('d_bucket{user="ann",le="0.25"} x', 'd_bucket{user="...",le="0.00"} x'),
        ('{"d_bucket","le"="<7"} 12.5.1', '{"d_bucket","le"="<0"} 00.0.0'),
        ('d_bucket{path="/a\\"b",le=0.1} 1', 'd_bucket{path="...",le="..."} 0'),
        ('d_bucket{path="<b', 'd_bucket{path="..."'),
        ("d_bucket \x1b[31m", "d_bucket ?[00m"),
        ("d_bucket{" + "x" * 500, "d_bucket{" + "x" * 91),
    ],
)
def test_a_bad_line_is_shown_without_anything_personal(line: str, shown: str) -> None:
    assert masked(line) == shown
    assert parse(line + "\n", "d").first_bad == shown


MEBIBYTE = 1 << 20
HOSTILE = {
    "line feeds": b"\n" * (8 * MEBIBYTE),
    "spaces": b" " * (8 * MEBIBYTE),
    "spaces in lines": (b" " * 4095 + b"\n") * 2048,
    "open braces": b"{" * (8 * MEBIBYTE),
    "open quotes": b'{"' * (4 * MEBIBYTE),
    "one line": b't_seconds_bucket{a="' + b"\\\\" * (4 * MEBIBYTE) + b'"} 1\n',
    "long lines": (b't_seconds_bucket{a="' + b"\\\\" * 8000 + b"\n") * 512,
    "digits": (b"t_seconds_bucket " + b"9" * 16_000 + b"x\n") * 512,
    "labels": (b"t_seconds_bucket{" + b'a="",' * 3000 + b"} 1\n") * 512,
    "many labels": (
        b"t_seconds_bucket{" + b",".join(b'a%d=""' % i for i in range(1500)) + b"} 1\n"
    )
    * 512,
    "quoted names": (b'{"t_seconds_bucket",' + b'"a"' * 4000 + b"\n") * 512,
    "short lines": b"t_seconds_bucket 1\n" * 400_000,
    "buckets": b"".join(b't_seconds_bucket{le="%d"} 1\n' % i for i in range(250_000)),
    "series": b"".join(b't_seconds_bucket{a="%d",le="1"} 1\n' % i for i in range(200_000)),
    "starts": b"process_start_time_seconds" * 300_000,
    "braces": b"{} " * (2 * MEBIBYTE),
}


@pytest.mark.slow
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_page_takes_long(body: bytes) -> None:
    parser = HistogramParser(parse_selector("t_seconds"))
    began_s = time.process_time()
    parsed = parser.parse(body[: 8 * MEBIBYTE], time.monotonic() + 0.5)
    assert time.process_time() - began_s < 2.0
    assert parsed.complete or parsed.seen


def test_a_page_is_given_up_at_its_deadline() -> None:
    body = page(1, 2).encode()
    parser = HistogramParser(parse_selector("t_seconds"))
    assert parser.parse(body, time.monotonic() + 60.0).complete
    assert not parser.parse(body, time.monotonic() - 1.0).complete


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", PageKind.EMPTY),
        (b"\xef\xbb\xbf\r\n", PageKind.EMPTY),
        (b"\x1f\x8b\x08\x00\x00", PageKind.COMPRESSED),
        (b"\x28\xb5\x2f\xfd\x04", PageKind.COMPRESSED),
        (b"<!DOCTYPE html><html>\n<title>Sign in</title>", PageKind.HTML),
        (b"\xef\xbb\xbf\n <html>", PageKind.HTML),
        (b'{"status":"UP"}', PageKind.JSON),
        (b'[{"a": 1}]', PageKind.JSON),
        (b"\x1b\n\x05d_sum\x12\x04help\x18\x00", PageKind.PROTOBUF),
        (page(1, 2).encode("utf-16"), PageKind.UTF16),
        (page(1, 2).encode("utf-16-be"), PageKind.UTF16),
        (b"\x89PNG\r\n\x1a\n\x00\x00", PageKind.BINARY),
        (b"OK\n", PageKind.TEXT),
        (b"# HELP a b\n# EOF\n", PageKind.TEXT),
        (b"a 1\n", None),
        (b'{"a.b"} 1\n', None),
        (b'{"a.b",c="d"} NaN 5\n', None),
        (b'  a{b="c"}\t+Inf\n', None),
    ],
)
def test_a_page_without_metrics_is_recognised(body: bytes, kind: PageKind | None) -> None:
    assert parse(body).kind == kind


PAGES_OF_CLIENTS = {
    "Go": """\
# HELP t_seconds Latency.
# TYPE t_seconds histogram
t_seconds_bucket{code="200",method="get",le="0.005"} 3
t_seconds_bucket{code="200",method="get",le="+Inf"} 4
t_seconds_sum{code="200",method="get"} 0.07
t_seconds_count{code="200",method="get"} 4
""",
    "Java and Micrometer": """\
# TYPE t_seconds histogram
t_seconds_bucket{outcome="SUCCESS",uri="/api/{id}",le="0.005",} 3.0
t_seconds_bucket{outcome="SUCCESS",uri="/api/{id}",le="+Inf",} 4.0
t_seconds_count{outcome="SUCCESS",uri="/api/{id}",} 4.0
t_seconds_sum{outcome="SUCCESS",uri="/api/{id}",} 0.07
# TYPE t_seconds_max gauge
t_seconds_max{outcome="SUCCESS",uri="/api/{id}",} 0.05
""",
    "Node.js": """\
t_seconds_bucket{le="0.005",method="GET"} 3
t_seconds_bucket{le="+Inf",method="GET"} 4
t_seconds_sum{method="GET"} 0.07
t_seconds_count{method="GET"} 4

""",
    "OpenMetrics": """\
# TYPE t_seconds histogram
# UNIT t_seconds seconds
t_seconds_bucket{le="0.005"} 3.0 # {trace_id="KOO5S4vxi0o"} 0.004
t_seconds_bucket{le="+Inf"} 4.0 1520879607.789 # {trace_id="oHg5SJ",span="} 9"} 0.05 1520879607.7
t_seconds_count 4.0
t_seconds_sum 0.07
t_seconds_created 1520430000.123
# EOF
""",
    "Envoy": """\
# TYPE t_seconds histogram
t_seconds_bucket{envoy_http_conn_manager_prefix="in",le="0.005"} 3
t_seconds_bucket{envoy_http_conn_manager_prefix="in",le="+Inf"} 4
t_seconds_sum{envoy_http_conn_manager_prefix="in"} 0.07000000000000000666133814775094
t_seconds_count{envoy_http_conn_manager_prefix="in"} 4

""",
    "Rust and OpenTelemetry": """\
t_seconds_bucket{http_route="/a",otel_scope_name="x",otel_scope_version="",le="5e-3"} 3
t_seconds_bucket{http_route="/a",otel_scope_name="x",otel_scope_version="",le="inf"} 4
t_seconds_sum{http_route="/a",otel_scope_name="x",otel_scope_version=""} 7e-2
t_seconds_count{http_route="/a",otel_scope_name="x",otel_scope_version=""} 4
""",
}


@pytest.mark.parametrize("body", PAGES_OF_CLIENTS.values(), ids=PAGES_OF_CLIENTS.keys())
def test_pages_of_the_common_clients_are_read(body: str) -> None:
    parsed = parse(body)
    (series,) = parsed.series.values()
    assert parsed.malformed == 0
    assert series.buckets == {0.005: 3.0, math.inf: 4.0}
    assert series.total == 0.07
    assert series.count == 4.0
