"""Columns as CSV writers and access logs write them, and lines as terminals show them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.latency.line_format import LineFormat, columns
from stallward.actuator.latency.line_source import LineSource

JTL = LineFormat(latency="1", ok="7", separator=",", latency_unit_s=1e-3)


@pytest.mark.parametrize(
    ("line", "separator", "found"),
    [
        ('"SET","19920.32","0.183"', ",", ["SET", "19920.32", "0.183"]),
        ('1,"a, b",2', ",", ["1", "a, b", "2"]),
        ('1, "a, b" ,2', ",", ["1", "a, b", "2"]),
        ('"a ""b"", c",2', ",", ['a "b", c', "2"]),
        ('"",2', ",", ["", "2"]),
        ('1;"a;b"', ";", ["1", "a;b"]),
        ('1\t"a\tb"', "\t", ["1", "a\tb"]),
        ('5",6,7"', ",", ['5"', "6", '7"']),
        ('"open,2', ",", ['"open', "2"]),
        ('a"b"c', '"', ["a", "b", "c"]),
        (
            'a "GET /x HTTP/1.1" 200 "0.001"',
            None,
            ["a", '"GET', "/x", 'HTTP/1.1"', "200", "0.001"],
        ),
    ],
)
def test_quotes_group_columns_only_between_separators(
    line: str, separator: str | None, found: list[str]
) -> None:
    assert columns(line, separator) == found


@given(st.text(alphabet='a",; 1'), st.sampled_from([None, ",", ";", '"']))
def test_without_quotes_a_line_is_split_as_ever(line: str, separator: str | None) -> None:
    plain = line.replace('"', "")
    assert columns(plain, separator) == plain.split(separator)
    assert len(columns(line, separator)) <= len(line.split(separator))


def test_a_failure_whose_message_holds_the_separator_is_a_failure() -> None:
    assert JTL.latency_ms("1,45,GET /,200,OK,t 1,text,true,10") == 45.0
    line = '2,30000,GET /,Non HTTP response,"Read timed out, host",t 1,text,false,0'
    assert JTL.latency_ms(line) is None


def test_a_number_in_quotes_is_a_number() -> None:
    assert LineFormat(latency="1").latency_ms('GET "0.001"') == 1.0


def test_a_number_may_be_the_word_for_a_failure() -> None:
    """HAProxy writes -1 for a request that was given up, and + before a time that goes on."""
    haproxy = LineFormat(
        pattern=r" (?:-?\d+/){4}(?P<total>[+-]?\d+) ",
        latency="total",
        latency_unit_s=1e-3,
        failed_words=("-1",),
    )
    assert haproxy.latency_ms("x 10/0/-1/-1/-1 503 y") is None
    assert haproxy.latency_ms("x 10/0/30/69/+1234 200 y") == 1234.0


def test_a_carriage_return_ends_a_line(tmp_path: Path) -> None:
    """Load generators rewrite the line in which they show how far they are."""
    path = tmp_path / "log"
    path.write_bytes(b"")
    line_format = LineFormat(pattern=r"avg_msec=(?P<l>\S+)", latency="l", latency_unit_s=1e-3)
    source = LineSource(path, line_format)
    with path.open("ab", buffering=0) as file:
        file.write(b"SET: rps=1.0 avg_msec=0.5 (overall: 0.5)\rSET: rps=1.0 avg_ms")
        assert source.read(1.0).max_ms == 0.5
        file.write(b"ec=2.5 (overall: 0.5)\r\n")
        assert source.read(1.1).max_ms == 2.5
    assert source.counts.malformed == 0
    source.close()
