"""Selectors with quoted names, as Prometheus 3 has them."""

from __future__ import annotations

import pytest

from stallward.actuator.errors import ConfigError
from stallward.actuator.latency.config import PrometheusLatency
from stallward.actuator.latency.prometheus.selector import (
    Matcher,
    Selector,
    parse_selector,
    underscored,
)


@pytest.mark.parametrize(
    ("text", "name", "labels"),
    [
        ('{"d.x"}', "d.x", ()),
        ("{'d.x'}", "d.x", ()),
        ("{`d.x`,}", "d.x", ()),
        (' { "d.x" , "http.route" = "/a" } ', "d.x", (("http.route", "/a"),)),
        ('{"http.route"="/a","d.x"}', "d.x", (("http.route", "/a"),)),
        ('d{"http.route"="/a"}', "d", (("http.route", "/a"),)),
        ("d{'http.route'=`/a\\b`}", "d", (("http.route", "/a\\b"),)),
        ('{__name__="d",a="b"}', "d", (("a", "b"),)),
        (r'{"d\"\\\n\u263a\U0001f600"}', 'd"\\\n\u263a\U0001f600', ()),
        ('{"größe","länge"="ä"}', "größe", (("länge", "ä"),)),
        ("d{}", "d", ()),
    ],
)
def test_quoted_names_are_read(text: str, name: str, labels: tuple[tuple[str, str], ...]) -> None:
    matchers = tuple(Matcher(label=label, operator="=", value=value) for label, value in labels)
    assert parse_selector(text) == Selector(name=name, matchers=matchers)
    PrometheusLatency(url="http://127.0.0.1:1/", metric=text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "does not name one metric"),
        ('{a="b"}', "does not name one metric"),
        ('{"d","e"}', "does not name one metric"),
        ('d{"e"}', "does not name one metric"),
        ('{""}', "does not name one metric"),
        ('{__name__=~"d.*"}', "does not name one metric"),
        ('{"d.x"', "not a selector"),
        ('"d.x"', "does not start with"),
        ("d.x", "not a selector"),
        ('d{""="a"}', "not a selector"),
        ('d{a="\\q"}', "not a selector"),
        ('d{a="\\ud800"}', "not a selector"),
        ('d{a="\\U00110000"}', "not a selector"),
        ('d{"le"="1"}', "'le': every bucket is needed"),
        ('d{vmrange="1"}', "'vmrange': every bucket is needed"),
        ('{"d.x_bucket"}', "names one series"),
    ],
)
def test_what_names_no_metric_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        parse_selector(text)
    assert raised.value.next_step or "bucket" in raised.value.cause


def test_a_dotted_name_is_told_to_be_quoted() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_selector("http.server.duration")
    assert '{"name.with.dots"}' in raised.value.next_step


def test_a_label_is_also_found_as_clients_write_it_without_quotes() -> None:
    selector = parse_selector('d{"http.route"="/a"}')
    assert selector.matches({"http.route": "/a"})
    assert selector.matches({"http_route": "/a"})
    assert not selector.matches({"http.route": "/b", "http_route": "/a"})
    assert not selector.matches({"http": "/a"})


@pytest.mark.parametrize(
    ("name", "written"), [("a.b-c", "a_b_c"), ("9a", "_a"), ("größe", "gr__e"), ("a:b_c", "a:b_c")]
)
def test_names_without_quotes_are_those_of_the_clients(name: str, written: str) -> None:
    assert underscored(name) == written
