"""Reports write numbers, intervals and labels as text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from example_results import arm, comparison, exactly, figure, metrics

from stallward.evaluation.report.html import method_facts, render_report
from stallward.evaluation.report.text import (
    Kind,
    about_applications,
    application_rows,
    cell,
    headline,
    number,
    result_rows,
    seconds,
    short_names,
    target,
)
from stallward.evaluation.results.comparison import (
    ApplicationMetrics,
    ArmFacts,
    ArmResult,
    ComparisonResult,
    Metrics,
)
from stallward.evaluation.results.serialise import from_json, to_json


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "ms", "-"),
        (1.234, "ms", "1.23"),
        (12.34, "ms", "12.3"),
        (866.1, "ms", "866"),
        (0.5, "share", "50 %"),
        (0.023, "share", "2.3 %"),
        (1.0, "share", "100 %"),
        (-0.031, "ratio", "-0.03x"),
        (112.4, "ratio", "+112x"),
        (8.91e13, "ms", "9e13"),
        (4.4e6, "ratio", "4e6x"),
    ],
)
def test_numbers(value: float | None, kind: Kind, text: str) -> None:
    assert number(value, kind) == text


def test_cells_carry_their_interval_or_none() -> None:
    assert cell(figure(0.5, 0.4, 0.62), "share") == "50 % [40..62 %]"
    assert cell(figure(5.0), "ms") == "5.00"


def test_a_target_names_its_quantile() -> None:
    table = comparison({}, slo_ms=60.0).table
    assert target(replace(table, slo_quantile=0.999)) == "p99.9 at most 60.0 ms"
    assert target(table) == "p95 at most 60.0 ms", "results of versions without it"


def _arm(
    p95: float, work: float, met: float, *, terminated: int = 0, limit_kills: int = 0
) -> ArmResult:
    facts = ArmFacts(controller="x", terminated_processes=terminated, limit_kills=limit_kills)
    return arm(_metrics(p95, work, met), facts)


def _metrics(p95: float, work: float, met: float) -> Metrics:
    return metrics(p95_ms=exactly(p95), background_work=exactly(work), slo_attainment=exactly(met))


def _result(terminated: int = 0, limit_kills: int = 0) -> ComparisonResult:
    arms = {
        "none": _arm(866.0, 0.9, 0.05),
        "latd": _arm(10.0, 0.1, 0.99, terminated=terminated, limit_kills=limit_kills),
        "ppo": _arm(11.0, 0.6, 0.97),
    }
    return comparison(arms, ample=_metrics(9.0, 0.95, 1.0), alone_p95_ms=7.8)


def test_the_headline_names_the_best_trade_and_its_price() -> None:
    text = headline(_result())
    assert "7.80 ms alone and 866 ms beside the background" in text
    assert "ppo brings it to 11.0 ms while the background does 60 % of its work" in text
    assert "latd 10.0 ms at 10 %" in text


def test_no_arm_helps_only_where_none_lowers_p95() -> None:
    none, idle = _arm(400.0, 0.95, 0.0), _arm(398.0, 0.9, 0.0)
    text = headline(comparison({"none": none, "static": idle, "partition": _arm(40.0, 0.5, 0.0)}))
    assert "partition brings it to 40.0 ms while the background does 50 % of its work" in text
    assert text.endswith("; static 398 ms at 90 %.")
    text = headline(comparison({"none": none, "static": idle, "partition": _arm(390.0, 0.5, 0.0)}))
    assert "No arm helps: static has 398 ms" in text


def test_rows_list_references_and_arms_in_order() -> None:
    headers, rows = result_rows(_result())
    assert [row[0] for row in rows] == ["alone", "ample", "none", "latd", "ppo"]
    assert all(len(row) == len(headers) for row in rows)
    work = headers.index("background")
    assert (rows[0][work], rows[1][work]) == ("", "95 % [95..95 %]")
    assert "ended" not in headers


def test_rows_have_the_number_of_processes_that_an_arm_ended() -> None:
    result = _result(terminated=3)
    headers, rows = result_rows(result)
    assert headers[-1] == "ended"
    assert [row[-1] for row in rows] == ["", "", "0", "3", "0"]
    assert "latd 10.0 ms at 10 % (3 processes terminated)" in headline(result)


def test_a_kill_under_a_limit_counts_against_the_arm_that_set_it() -> None:
    result = _result(limit_kills=2)
    headers, rows = result_rows(result)
    assert headers[-1] == "ended"
    assert [row[-1] for row in rows] == ["", "", "0", "2", "0"]
    assert "latd 10.0 ms at 10 % (2 processes killed under its limits)" in headline(result)
    names = {fact.name: fact.text for fact in method_facts(result)}
    assert names["† killed by the kernel under an arm's limit"].startswith("latd: 2 in ")


def test_a_block_may_have_been_run_again_for_either_reason() -> None:
    facts = ArmFacts(controller="latd", invalid_blocks=2)
    shown = {one.name: one.text for one in method_facts(comparison({"latd": arm(facts=facts)}))}
    assert shown["invalid blocks"].startswith("latd 2 (")
    assert "ran out of memory or the host was busy" in shown["invalid blocks"]


def test_each_of_several_applications_has_a_row_under_every_condition() -> None:
    def of(name: str, slo_ms: float, met: float) -> ApplicationMetrics:
        return ApplicationMetrics(
            application=name,
            slo_ms=slo_ms,
            slo_quantile=0.95,
            slo_attainment=exactly(met),
            p95_ms=figure(1.5),
            p99_ms=figure(3.0),
        )

    one = _result()
    both = {name: (of("cache", 2, 0.5), of("web", 5, 0.25)) for name in ("ample", "none")}
    several = replace(one, table=replace(one.table, applications=both))
    rows = application_rows(several)
    assert [row[:3] for row in rows] == [
        ("ample", "cache", "2.00"),
        ("ample", "web", "5.00"),
        ("none", "cache", "2.00"),
        ("none", "web", "5.00"),
    ]
    assert rows[-1][3:] == ("25 % [25..25 %]", "1.50", "3.00")
    assert "those of cache" in about_applications(several)
    names = {fact.name: fact.text for fact in method_facts(several)}
    assert names["SLO"] == "cache p95 at most 2.00 ms, web p95 at most 5.00 ms"
    latencies = {name: np.linspace(5.0, 50.0, 200) for name in ("alone", "ample", *one.table.arms)}
    page = render_report(several, latencies, {})
    assert "Each application" in page
    assert "<td>web</td><td>5.00</td>" in page
    assert (application_rows(one), about_applications(one)) == ([], "")
    assert "Each application" not in render_report(one, latencies, {})
    assert from_json(ComparisonResult, to_json(several)) == several
    assert "applications" not in to_json(one)


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("none#2", "none#2"),
        ("static:pause=0,limit=0.4", "static:pause=0,limit=0.4"),
        ("onnx:path=/a/b/p.onnx", "onnx:p.onnx"),
        ("onnx:path=/a/a-very-long-name-of-a-policy.onnx", "onnx:a-very-long-name-of-…"),
    ],
)
def test_long_labels_are_shortened(label: str, shown: str) -> None:
    assert short_names(["none", label])[label] == shown


def test_no_two_arms_have_the_same_name() -> None:
    long = "onnx:path=/a/a-very-long-name-of-a-policy"
    for one, other in (
        ("onnx:path=monday/best.onnx", "onnx:path=tuesday/best.onnx"),
        (f"{long}-1.onnx", f"{long}-2.onnx"),
        (f"{long}.onnx", f"{long}.onnx#2"),
    ):
        assert short_names([one, other]) == {one: one, other: other}
        text = headline(comparison({one: _arm(9.0, 0.5, 1.0), other: _arm(9.5, 0.5, 1.0)}))
        assert f"{one} brings it to" in text
        assert f"{other} 9.50 ms" in text


@pytest.mark.parametrize(
    ("value", "text"), [(7.56673, "7.6 s"), (30.0, "30 s"), (0.0, "0 s"), (86_400.0, "86400 s")]
)
def test_lengths_have_one_decimal_place(value: float, text: str) -> None:
    assert seconds(value) == text
