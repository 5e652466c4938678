"""Latencies with their units, as logs of many programs have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.latency.line_format import LineFormat, duration_s, parse_number

COLUMN = LineFormat(latency="1", latency_unit_s=1e-3)
NUMBER_ONLY = LineFormat(latency="l", pattern=r"took=(?P<l>[\d.]+)", latency_unit_s=1e-3)
GROUP = LineFormat(
    latency="l", pattern=r"took=(?P<l>[\d.]+) ?(?P<unit>[a-zµμ]+)?", latency_unit_s=1e-3
)
LAST = LineFormat(latency="l", pattern=r"(?P<l>[\d.]+)m?s$", latency_unit_s=1e-3)
WHOLE = LineFormat(latency="l", pattern=r"took=(?P<l>\S+)", latency_unit_s=1e-3)

SPELLINGS = [
    ("6.45837ms", 6.45837),
    ("1.053089843s", 1053.089843),
    ("850.2\u00b5s", 0.8502),
    ("850.2\u03bcs", 0.8502),
    ("850.2us", 0.8502),
    ("1m2.5s", 62_500.0),
    ("1h0m0.5s", 3_600_500.0),
    ("2h", 7_200_000.0),
    ("35ns", 35e-6),
    ("0s", 0.0),
    (".5s", 500.0),
]


@pytest.mark.parametrize("line_format", [COLUMN, NUMBER_ONLY, GROUP, WHOLE])
@pytest.mark.parametrize(("text", "latency_ms"), SPELLINGS)
def test_a_latency_is_read_by_its_own_unit(
    line_format: LineFormat, text: str, latency_ms: float
) -> None:
    if line_format is not COLUMN and text.startswith("."):
        return  # the patterns find only what begins with a digit
    line = f"x {text} y" if line_format is COLUMN else f"x took={text} y"
    assert line_format.latency_ms(line) == pytest.approx(latency_ms)


@pytest.mark.parametrize("line_format", [COLUMN, NUMBER_ONLY, GROUP, WHOLE])
def test_a_bare_number_beside_others_keeps_the_configured_unit(line_format: LineFormat) -> None:
    line = "x 12.5 y" if line_format is COLUMN else "x took=12.5"
    assert line_format.latency_ms(line) == 12.5


@pytest.mark.parametrize(("text", "latency_ms"), [("12ms", 12.0), ("1.05s", 1050.0)])
def test_a_unit_that_the_pattern_leaves_out_counts(text: str, latency_ms: float) -> None:
    assert LAST.latency_ms(f"GET / {text}") == pytest.approx(latency_ms)


def test_the_last_part_of_a_duration_is_not_taken_for_all_of_it() -> None:
    assert LAST.latency_ms("GET / 1m2.5s") == 62_500.0


@pytest.mark.parametrize(
    ("line", "latency_ms"),
    [
        ("took=12.5 ms", 12.5),
        ("took=1.5 s", 1500.0),
        ("took=850 µs", 0.85),
        ("took=3 min", 180_000.0),
        ("took=7 msec", 7.0),
        ("took=8", 8.0),
    ],
)
def test_a_group_named_unit_is_the_unit(line: str, latency_ms: float) -> None:
    assert GROUP.latency_ms(line) == pytest.approx(latency_ms)


def test_a_column_may_be_the_unit() -> None:
    columns = LineFormat(latency="0", unit="1")
    assert columns.latency_ms("12.5 ms") == 12.5
    assert columns.latency_ms("12.5 s") == 12_500.0
    with pytest.raises(ValueError, match="missing"):
        columns.latency_ms("12.5")


@pytest.mark.parametrize(
    ("line_format", "line"),
    [
        (COLUMN, "x 1.5x"),
        (COLUMN, "x ms"),
        (COLUMN, "x 1s2m"),
        (COLUMN, "x 1s1s"),
        (COLUMN, "x -1s"),
        (COLUMN, "x 1_0ms"),
        (COLUMN, "x \u0661s"),
        (COLUMN, "x 1s5"),
        (COLUMN, "x 850.2\ufffds"),
        (GROUP, "took=12 apples"),
        (NUMBER_ONLY, "took=850.2\ufffds"),
        (NUMBER_ONLY, "took=850.2\u00b5"),
    ],
)
def test_a_unit_that_is_not_known_is_malformed(line_format: LineFormat, line: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        line_format.latency_ms(line)


FOUND = LineFormat(latency="l", pattern=r"in \W*(?P<l>[0-9.]+)", latency_unit_s=1e-3)


@pytest.mark.parametrize(
    ("text", "latency_ms"),
    [
        ("1.2345e-05", 1.2345e-05),
        ("1.5E+1", 15.0),
        ("1.5 s", 1500.0),
        ("45 µs", 0.045),
        ("12\u00a0ms", 12.0),
        ("1m 2s", 62_000.0),
        ("1h 1m 2s", 3_662_000.0),
        ("1m 200s", 60_000.0),
        ("2 days", 172_800_000.0),
        ("12", 12.0),
        ("12.", 12.0),
        ("+12", 12.0),
        ("[12]", 12.0),
        ('\\"12\\"', 12.0),
        ("12;", 12.0),
        ("12/0/5", 12.0),
        ("12,34", 12.0),
        ("12 ticks", 12.0),
        ("12 kB", 12.0),
        ("12 s=3", 12.0),
        ("12:8080", 12.0),
        ("\x0112\x01", 12.0),
    ],
)  # fmt: skip
def test_a_number_that_a_pattern_finds_is_read_whole(text: str, latency_ms: float) -> None:
    assert FOUND.latency_ms(f"served in {text}") == pytest.approx(latency_ms)
    assert FOUND.latency_ms(f"served in {text} for x") == pytest.approx(latency_ms)


@pytest.mark.parametrize(
    "text",
    [
        *("45%", "12kB", "12x", "1_000", "1.2.3", "1e", "12MS", "$12", "-12", "1\u0662", "12°"),
        *("12-13", "0:01:30", "1:30", "1,5 s", "1,234ms", "12 \ufffds", "12\ufffds", "12ms3"),
        *("0x1F", "x12"),
    ],
)
def test_a_number_with_something_else_around_it_is_malformed(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        FOUND.latency_ms(f"served in {text}")


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r".*(?P<l>[0-9.]+)ms", "took 12.5ms"),
        (r"(?P<l>\d+) ms", "took 12.5 ms"),
        (r"(?P<l>[0-9.]+) ms", "took 12.5 ms"),
        (r"took (?P<l>\d+)", "took 12.5ms"),
    ],
)
def test_a_pattern_that_cuts_a_number_gets_all_of_it(pattern: str, line: str) -> None:
    assert LineFormat(latency="l", pattern=pattern).latency_ms(line) == pytest.approx(12.5)


@pytest.mark.parametrize("line", ["host7m", "x1.5kB"])
def test_a_number_within_a_name_is_no_latency(line: str) -> None:
    digits = LineFormat(latency="l", pattern=r"(?P<l>\d+\.?\d*)", latency_unit_s=1e-3)
    with pytest.raises(ValueError, match="attached"):
        digits.latency_ms(line)


def test_a_time_is_read_whole_and_has_no_unit() -> None:
    times = LineFormat(pattern=r"from (?P<s>\d+)\S* to (?P<e>\d+)", start="s", end="e")
    assert times.latency_ms("from 1.5e3 to 1500.25 s") == 250.0
    with pytest.raises(ValueError, match="attached"):
        times.latency_ms("from 1 to 2s")
    split = LineFormat(
        pattern=r"(?P<s>\S+) (?P<e>\d+)\.(?P<us>\d+)", start="s", end="e", end_us="us"
    )
    assert split.latency_ms("7 7.250000") == pytest.approx(250.0), "each part is a number"


@pytest.mark.parametrize("word", ["skipped", "failed", "serialization", "deadlock", "TIMEOUT"])
def test_words_in_the_place_of_a_latency_are_failed_requests(word: str) -> None:
    pgbench = LineFormat(latency="2", latency_unit_s=1e-6)
    assert pgbench.latency_ms("0 81 4321 0 1700000000 5") == pytest.approx(4.321)
    assert pgbench.latency_ms(f"0 81 {word} 0 1700000000 5") is None
    times = LineFormat(start="0", end="1")
    assert times.latency_ms(f"17.5 {word}") is None


def test_which_words_mean_failure_can_be_configured() -> None:
    own = LineFormat(latency="0", failed_words=("-", "-1", "Broken"))
    assert own.latency_ms("-") is None
    assert own.latency_ms("-1") is None
    assert own.latency_ms("broken") is None
    with pytest.raises(ValueError, match=r".+"):
        own.latency_ms("skipped")
    with pytest.raises(ValueError, match=r".+"):
        LineFormat(latency="0").latency_ms("-1")


@given(st.text(max_size=20))
def test_hostile_texts_are_refused_or_read(text: str) -> None:
    for parse in (parse_number, duration_s):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert value == value  # noqa: PLR0124 - no NaN
        assert text.isascii() or "µ" in text or "μ" in text
