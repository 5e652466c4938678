"""Pages escape all text that they get, and load their libraries late."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from example_results import arm, comparison
from jinja2 import UndefinedError

from stallward.actuator.cli.output import table_lines
from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageCell,
    PageSection,
    PageTable,
    render_experiment_page,
)
from stallward.evaluation.report.html import render_report
from stallward.evaluation.report.page import render_template
from stallward.evaluation.report.text import Opening
from stallward.evaluation.results.comparison import Contrast
from stallward.evaluation.results.interval import Interval

HOSTILE = 'onnx:"<script>alert(1)</script>&'


def test_labels_and_names_are_escaped_wherever_a_report_shows_them() -> None:
    result = replace(comparison({HOSTILE: arm()}), scenario="<i>&")
    result = replace(result, method=replace(result.method, summary="<b>bold</b>"))
    latencies = {name: np.linspace(5.0, 50.0, 200) for name in ("alone", "ample", HOSTILE)}
    page = render_report(result, latencies, {})
    assert page.count("<script>") == 1, "a script was added to that of the page"
    assert "<b>bold</b>" not in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<title>stallward: &lt;i&gt;&amp;</title>" in page
    assert 'data-for="onnx:&#34;&lt;script&gt;' in page


def test_a_report_may_open_with_a_small_table_and_its_explanation() -> None:
    result = comparison({"none": arm()})
    latencies = {name: np.linspace(5.0, 50.0, 200) for name in ("alone", "ample", "none")}
    opening = Opening(
        headline="It is <better>.",
        headers=("arm", "p95 ms"),
        rows=(("none", "7.5"),),
        target="Target: 60 ms.",
        notes=("First note.", "Second note."),
    )
    page = render_report(result, latencies, {}, opening)
    assert "It is &lt;better&gt;.</h1>" in page
    assert page.index("In short") < page.index("7.5") < page.index("All figures")
    assert page.index("First note.") < page.index("Second note.")
    assert "In short" not in render_report(result, latencies, {})


def test_a_difference_is_grey_if_its_interval_contains_no_effect() -> None:
    sure, unsure = (Interval(value=1.2, low=low, high=1.4) for low in (1.1, 0.9))
    pair = Contrast(
        arm="a",
        against="b",
        mean_ratio=sure,
        p50_ratio=sure,
        p95_ratio=unsure,
        p99_ratio=Interval(value=1.2, low=None, high=None),
        background_work_ratio=sure,
        slo_attainment_difference=Interval(value=0.0, low=-0.1, high=0.1),
    )
    result = comparison({"a": arm(), "b": arm()})
    result = replace(result, table=replace(result.table, contrasts=(pair,)))
    latencies = {name: np.linspace(5.0, 50.0, 200) for name in ("alone", "ample", "a", "b")}
    page = render_report(result, latencies, {})
    assert page.count('<td class="sure">') == 2
    assert page.count('<td class="unsure">') == 3


def test_a_table_of_a_page_has_intervals_below_its_figures() -> None:
    rows = [("a<b", PageCell("3 ms", "2 to 4")), ("c", "-")]
    table = PageTable(headers=("arm", "p95"), rows=rows)
    page = render_experiment_page(
        ExperimentPage(
            experiment="x", source="", headline="", sections=[PageSection(title="", table=table)]
        )
    )
    assert "<td>a&lt;b<small>&nbsp;</small></td>" in page
    assert "<td>3 ms<small>2 to 4</small></td>" in page
    assert "<td>c</td><td>-</td>" in page
    assert table_lines(table.headers, table.rows)[2] == "a<b  3 ms (2 to 4)"


def test_a_template_without_a_value_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="scenario"):
        render_template("report.html.j2")


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_comparing_loads_neither_templates_nor_statistics_before_it_needs_them() -> None:
    code = (
        "import sys, stallward.evaluation.comparison.compare, stallward.evaluation.report.html\n"
        "print([name for name in ('jinja2', 'scipy.stats') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
