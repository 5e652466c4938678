"""A request that failed is never a fast one, whatever the program writes for it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from stallward.actuator.errors import ConfigError
from stallward.actuator.latency.line_format import LineFormat, parse_status

PAGE = Path(__file__).parents[3] / "docs/reference/latency.md"
WORD = LineFormat(latency="0", ok="1", separator=",")


def recipes() -> dict[str, dict[str, Any]]:
    """The settings in the page, by program."""
    blocks = PAGE.read_text(encoding="utf-8").split("```toml\n")[1:]
    block = next(one for one in blocks if one.startswith("[nginx]"))
    return tomllib.loads(block.partition("```")[0])


def settings(recipe: dict[str, Any]) -> LineFormat:
    lists = {name: tuple(value) for name, value in recipe.items() if isinstance(value, list)}
    return LineFormat(**{**recipe, **lists})


CADDY = '{"level":"info","request":{"uri":"/"},"duration":%s,"size":10,"status":%d}'
ENVOY = '[2026-11-29T20:17:00.310Z] "GET /a HTTP/2" %s 154 0 %d 100 "10.0.0.1" "curl" "a" "b" "c"'
HAPROXY = "haproxy[1]: 10.0.1.2:3 [06/Feb/2026:12:14:14.655] in st/s1 10/0/%s - - ---- 1/1/0 0/0"
LINES = {
    "nginx": (
        '::1 - - [29/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 612 "-" "curl" 0.250',
        250.0,
        '::1 - - [29/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 499 0 "-" "curl" 0.001',
    ),
    "caddy": (CADDY % ("4.5e-05", 200), 0.045, CADDY % ("0.0001", 502)),
    "traefik": (
        '10.0.0.1 - - [29/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 2 "-" "-" 1 "r" "http://a" 12ms',
        12.0,
        '10.0.0.1 - - [29/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 502 2 "-" "-" 1 "r" "-" 0ms',
    ),
    "traefik-json": (
        '{"DownstreamStatus":200,"Duration":12000000,"OriginDuration":1}',
        12.0,
        '{"DownstreamStatus":504,"Duration":1000,"OriginDuration":1}',
    ),
    "envoy": (ENVOY % ("204 -", 226), 226.0, ENVOY % ("503 UF", 1)),
    "haproxy": (HAPROXY % "30/69/+109 200 2750", 109.0, HAPROXY % "-1/-1/2 503 212"),
    "apache": (
        '::1 - - [29/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 - 850',
        0.85,
        '::1 - - [29/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 503 299 85',
    ),
    "postgresql": (
        "2026-11-29 10:00:00 UTC [1] LOG:  duration: 1053.089 ms  statement: SELECT 1",
        1053.089,
        "2026-11-29 10:00:00 UTC [1] ERROR:  canceling statement due to statement timeout",
    ),
    "pgbench": ("0 199 2241 0 1175850568 995598", 2.241, "0 81 failed 0 1175850569 5"),
    "jmeter": (
        "1,45,GET /,200,OK,t 1,text,true,10",
        45.0,
        '2,1,GET /,Non HTTP response,"Connection refused, a",t 1,text,false,0',
    ),
    "k6": (
        "http_req_duration,1595325560,45.75,,,,true,,GET,http://a/,HTTP/1.1,default,,200,,,http://a/,",
        45.75,
        "http_req_duration,1595325560,0.75,,refused,1212,false,,GET,http://a/,,default,,0,,,http://a/,",
    ),
    "gatling": (
        "REQUEST\t\tq\t1700000000010\t1700000000022\tOK\t ",
        12.0,
        "REQUEST\t\tq\t1700000000010\t1700000000012\tKO\tstatus.find.is(200)",
    ),
    "vegeta": ("1700000000000000000,200,12000000,0,5,,", 12.0, "1700000000000000000,0,1000,0,0,EOF,"),
    "ghz": ("12.5,OK,", 12.5, "0.2,Unavailable,connection refused"),
    "hey": (
        "0.0120,0.001,0.0,0.0,0.01,0.0,200,0.1",
        12.0,
        "0.0002,0.001,0.0,0.0,0.01,0.0,503,0.1",
    ),
    "gin": (
        '[GIN] 2026/11/29 - 10:00:00 | 200 |     850.2µs |  ::1 | GET      "/"',
        0.8502,
        '[GIN] 2026/11/29 - 10:00:00 | 503 |       3.2µs |  ::1 | GET      "/"',
    ),
}  # fmt: skip


def test_every_recipe_of_the_page_has_its_lines() -> None:
    assert recipes().keys() == LINES.keys()


@pytest.mark.parametrize("program", LINES)
def test_a_recipe_reads_what_was_answered_and_counts_what_failed(program: str) -> None:
    good, latency_ms, failed = LINES[program]
    line_format = settings(recipes()[program])
    assert line_format.latency_ms(good) == pytest.approx(latency_ms)
    assert line_format.latency_ms(failed) is None


@pytest.mark.parametrize("times", ["3.001, 0.002", "3.001 : 0.002"])
def test_a_request_that_nginx_sent_again_is_not_as_fast_as_the_last_try(times: str) -> None:
    line = f'::1 - - [29/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 612 "-" "curl" {times}'
    with pytest.raises(ValueError, match="does not match"):
        settings(recipes()["nginx"]).latency_ms(line)


def test_the_phases_of_a_prepared_statement_are_not_requests_of_their_own() -> None:
    """PostgreSQL logs the time of each on a line of its own; the first two are short."""
    line_format = settings(recipes()["postgresql"])
    begin = "2026-11-29 10:00:00 UTC [1] LOG:  duration:"
    for phase in ("parse <unnamed>: SELECT $1", "bind S_1/C_1: SELECT $1"):
        with pytest.raises(ValueError, match="does not match"):
            line_format.latency_ms(f"{begin} 0.052 ms  {phase}")
    for phase in ("  execute S_1: SELECT $1", "  execute fetch from S_1/C_1: SELECT $1", ""):
        assert line_format.latency_ms(f"{begin} 53.1 ms{phase}") == pytest.approx(53.1)


@pytest.mark.parametrize(
    "word",
    ["KO", "FAILED", "Timeout", "503", "599", "999", "-1", "0", "000", "0.0", "false", "No", ""],
)
def test_what_says_that_a_request_failed_is_no_latency(word: str) -> None:
    assert WORD.latency_ms(f"0.001,{word},x") is None


@pytest.mark.parametrize("word", ["OK", "true", "1", "1.0", "200", "204", "301", "404", " ok "])
def test_what_says_that_a_request_was_answered_is_one(word: str) -> None:
    assert WORD.latency_ms(f"0.001,{word},x") == 1.0


@pytest.mark.parametrize("word", ["Unheard-of", "NOK", "nan", "200x"])
def test_a_word_that_nobody_knows_is_neither_fast_nor_failed(word: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        WORD.latency_ms(f"0.001,{word},x")
    known = LineFormat(latency="0", ok="1", separator=",", ok_words=(word.upper(),))
    assert known.latency_ms(f"0.001,{word},x") == 1.0


def test_which_status_means_failure_can_be_configured() -> None:
    own = LineFormat(latency="0", ok="1", failed_status=("429", "500-599", "900-"))
    failed = [
        own.latency_ms(f"0.001 {code}") is None for code in (428, 429, 499, 500, 599, 600, 901)
    ]
    assert failed == [False, True, False, True, True, False, True]


@pytest.mark.parametrize("text", ["", "x", "5xx", "599-500", "-5", "500-x", "1e3"])
def test_what_is_no_range_of_codes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a range"):
        parse_status(text)
    with pytest.raises(ConfigError, match="failed_status"):
        LineFormat(latency="0", failed_status=(text,))


def test_a_status_that_the_pattern_cuts_is_read_whole() -> None:
    cut = LineFormat(latency="l", pattern=r"(?P<ok>\d+) (?P<l>[0-9.]+)$")
    assert cut.latency_ms("x -1 0.001") is None


def test_a_group_that_took_no_part_says_nothing() -> None:
    maybe = LineFormat(latency="l", pattern=r"(?P<l>[0-9.]+)(?: (?P<ok>\w+))?$")
    assert maybe.latency_ms("0.001") == 1.0
    assert maybe.latency_ms("0.001 KO") is None
