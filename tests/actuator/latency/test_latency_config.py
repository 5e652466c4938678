"""The ``[latency]`` table and what it names: variants, selectors, addresses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml, parse_config
from stallward.actuator.errors import ConfigError
from stallward.actuator.latency.config import (
    GrpcLatency,
    LatencyConfig,
    LinesLatency,
    PrometheusLatency,
    StatsdLatency,
    split_url,
)
from stallward.actuator.latency.prometheus.selector import Matcher, Selector, parse_selector
from stallward.actuator.runtime.addresses import is_loopback, parse_address

MINIMAL = """
[node]
zone = "stallward/1"
[protected]
group = "stallward/1/app"
[[background]]
name = "hog0"
group = "stallward/1/hog0"
[service]
socket = "/run/stallward.sock"
[journal]
path = "/var/lib/stallward/journal"
"""
URL = "http://127.0.0.1:9100/metrics"


def config_with(table: str, *, pod: bool = False) -> DaemonConfig:
    application = 'pod = { selector = "app=cache" }' if pod else 'group = "stallward/1/app"'
    minimal = MINIMAL.replace('group = "stallward/1/app"', application)
    return parse_config(f"{minimal}\n[latency]\n{table}")


@pytest.mark.parametrize(
    ("table", "latency"),
    [
        ('path = "/l"\nlatency = "0"', LinesLatency(path=Path("/l"), latency="0")),
        ('source = "lines"\npath = "/l"', LinesLatency(path=Path("/l"))),
        (
            f"source = 'prometheus'\nurl = '{URL}'\nmetric = 'a_seconds{{x=\"y\"}}'\nperiod_s = 1",
            PrometheusLatency(url=URL, metric='a_seconds{x="y"}', period_s=1.0),
        ),
        (
            'source = "prometheus"\nport = 9100\nmetric = "a"',
            PrometheusLatency(port=9100, metric="a"),
        ),
        (
            'source = "statsd"\nmetric = "app.latency"\ntags = ["env:prod"]\nunit = "us"',
            StatsdLatency(metric="app.latency", tags=("env:prod",), unit="us"),
        ),
        (
            'source = "statsd"\nmetric = "a"\nlisten = "/run/s"\nallowed_users = ["app", "33"]',
            StatsdLatency(metric="a", listen="/run/s", allowed_users=("app", "33")),
        ),
        (
            'path = "/l"\nlatency = "l"\nunit = "u"\nfailed_words = ["-"]',
            LinesLatency(path=Path("/l"), latency="l", unit="u", failed_words=("-",)),
        ),
        ('source = "grpc"', GrpcLatency()),
    ],
)
def test_each_source_has_its_keys(table: str, latency: LatencyConfig) -> None:
    config = config_with(table, pod="port" in table)
    assert config.latency == latency
    assert config.latencies_of_pods == ("port" in table,)
    assert parse_config(config_toml(config)) == config


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('source = "promethius"', r"source is 'promethius'. Did you mean 'prometheus'\?"),
        ("source = 3", r"source is 3. Choose one of: 'lines', 'prometheus', 'statsd', 'grpc'"),
        (
            f"url = '{URL}'",
            r"latency\.url does not apply to source = 'lines'. It belongs to .*'prometheus'",
        ),
        (
            'source = "grpc"\nlisten = "127.0.0.1:1"',
            r"listen does not apply to source = 'grpc'. It belongs to source = 'statsd'",
        ),
        (
            'source = "lines"\npath = "/l"\nmetric = "x"',
            "belongs to source = 'prometheus' or 'statsd'",
        ),
        ('source = "statsd"\nmetrik = "x"', r"unknown key 'metrik'. Did you mean 'metric'\?"),
        ('source = "statsd"', r"latency\.metric is missing"),
        ('source = "lines"', r"latency\.path is missing"),
        ('source = "statsd"\nmetric = "a:b"', "cannot be in a StatsD line"),
        ('source = "statsd"\nmetric = "a"\ntags = ["x|y"]', "cannot be in a StatsD line"),
        ('source = "statsd"\nmetric = "a,host=b"', "metric without tags"),
        ('source = "statsd"\nmetric = "a"\nallowed_users = ["app"]', "needs a Unix socket"),
        (
            'source = "statsd"\nmetric = "a"\nlisten = "/s"\nallowed_users = [" "]',
            "without a name",
        ),
        ('source = "statsd"\nmetric = "a"\nlisten = "0.0.0.0:8125"', "allow_remote = true"),
        ('source = "statsd"\nmetric = "a"\nlisten = "8125"', "not an address"),
        ('source = "statsd"\nmetric = "a"\nunit = "m"', r"unit is 'm'. .*'ms'"),
        ("source = 'prometheus'\nurl = 'http://10.0.0.1/m'\nmetric = 'x'", "allow_remote = true"),
        ("source = 'prometheus'\nurl = 'https://localhost/m'\nmetric = 'x'", "plain HTTP"),
        ("source = 'prometheus'\nmetric = 'x'", "needs either url or port"),
        (f"source = 'prometheus'\nurl = '{URL}'\nport = 1\nmetric = 'x'", "either url or port"),
        ("source = 'prometheus'\nport = 0\nmetric = 'x'", "port is 0, outside 1..65535"),
        ("source = 'prometheus'\nport = 1\npath = '/a b'\nmetric = 'x'", "latency.path is"),
        ("source = 'prometheus'\nport = 1\nmetric = 'x'", "the protected application is none"),
        (f"source = 'prometheus'\nurl = '{URL}'\nmetric = '1x'", "does not start with"),
        (f"source = 'prometheus'\nurl = '{URL}'\nmetric = 'x'\nperiod_s = 0", "outside 0.05"),
        (f"source = 'prometheus'\nurl = '{URL}'\nmetric = 'x_bucket'", "Leave out _bucket: x"),
    ],
)
def test_a_mistake_is_refused_with_a_hint(table: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_with(table)


def test_another_machine_is_scraped_only_if_that_is_wanted() -> None:
    config = PrometheusLatency(url="http://10.0.0.7:80/m", metric="x", allow_remote=True)
    assert split_url(config.url or "") == ("10.0.0.7", 80, "/m")


@pytest.mark.parametrize(
    ("address", "path", "url"),
    [
        ("10.0.0.7", "/metrics", "http://10.0.0.7:91/metrics"),
        ("fd00::7", "stats?a=b", "http://[fd00::7]:91/stats?a=b"),
    ],
)
def test_a_pod_is_asked_where_it_is(address: str, path: str, url: str) -> None:
    assert PrometheusLatency(port=91, path=path, metric="x").url_at(address) == url


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        (URL, ("127.0.0.1", 9100, "/metrics")),
        ("http://localhost", ("localhost", 80, "/")),
        ("http://[::1]:99/a?b=c", ("::1", 99, "/a?b=c")),
        ("http://", None),
        ("http:///metrics", None),
        ("http://a:b@c/", None),
        ("http://a:0/", None),
        ("http://a:99999/", None),
        ("http://a/\r\nx: y", None),
        ("ftp://a/", None),
    ],
)
def test_urls(url: str, parts: tuple[str, int, str] | None) -> None:
    if parts is None:
        with pytest.raises(ConfigError, match="not an address that can be scraped"):
            split_url(url)
    else:
        assert split_url(url) == parts


def test_a_selector_is_read_as_in_promql() -> None:
    text = r"""http_seconds { handler = "/a\"b\\", code=~'2\d\d',zone!="x", } """
    selector = parse_selector(text)
    assert selector == Selector(
        name="http_seconds",
        matchers=(
            Matcher(label="handler", operator="=", value='/a"b\\'),
            Matcher(label="code", operator="=~", value=r"2\d\d"),
            Matcher(label="zone", operator="!=", value="x"),
        ),
    )
    assert selector.matches({"handler": '/a"b\\', "code": "204"})
    assert not selector.matches({"handler": '/a"b\\', "code": "2040"})
    assert not selector.matches({"handler": '/a"b\\', "code": "204", "zone": "x"})
    assert parse_selector('x{a!~"b|c"}').matches({"a": "bc"})
    assert not parse_selector('x{a!~"b|c"}').matches({"a": "c"})


@pytest.mark.parametrize(
    "text",
    ["", "9", "x{", "x}", "x{a}", "x{a=b}", 'x{a="b"', 'x{a="b" c="d"}', 'x{a="b"}y', 'x{,a="b"}',
     'x{a=~"("}', 'x{le="1"}'],
)  # fmt: skip
def test_an_invalid_selector_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_selector(text)


@given(st.text(alphabet="abx_{}=~!\",\\ '|(", max_size=40))
def test_hostile_selectors_are_refused_or_read(text: str) -> None:
    try:
        selector = parse_selector(text)
    except ConfigError:
        return
    selector.matches({"a": "b"})


@pytest.mark.parametrize(
    ("text", "bindable", "local"),
    [
        ("127.0.0.1:9180", ("127.0.0.1", 9180), True),
        ("localhost:1", ("127.0.0.1", 1), True),
        ("[::1]:9180", ("::1", 9180), True),
        ("0.0.0.0:9180", ("0.0.0.0", 9180), False),
        ("[::]:9180", ("::", 9180), False),
        ("/run/m.sock", "/run/m.sock", True),
    ],
)
def test_addresses(text: str, bindable: str | tuple[str, int], local: bool) -> None:
    address = parse_address(text, "x")
    assert (address.bindable, address.is_local) == (bindable, local)
    assert parse_address(str(address), "x") == address


@given(st.text(max_size=30))
def test_hostile_addresses_are_refused_or_read(text: str) -> None:
    is_loopback(text)
    for parse in (lambda: parse_address(text, "x"), lambda: split_url(text)):
        try:
            parse()
        except ConfigError:
            continue


def test_metrics_are_for_this_machine_unless_that_is_wanted() -> None:
    config = config_with('source = "grpc"')
    for metrics in ("127.0.0.1:9180", "/run/stallward/metrics.sock"):
        replace(config, service=replace(config.service, metrics=metrics))
    with pytest.raises(ConfigError, match="metrics_public = true"):
        replace(config, service=replace(config.service, metrics="0.0.0.0:9180"))
    public = replace(config.service, metrics="0.0.0.0:9180", metrics_public=True)
    assert parse_config(config_toml(replace(config, service=public))).service == public
    with pytest.raises(ConfigError, match=r"service\.metrics is 'x', not an address"):
        replace(config, service=replace(config.service, metrics="x"))
