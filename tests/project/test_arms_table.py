"""The page of every arm is made from results of comparisons."""

from __future__ import annotations

import runpy
from dataclasses import replace
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import pytest
from example_results import arm, comparison, figure, metrics

from stallward.evaluation.results.comparison import ArmFacts

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


def test_it_has_every_arm_and_says_who_was_left_out() -> None:
    script = runpy.run_path(str(ROOT / "scripts/arms_table.py"))
    make_page, make_table = script["page"], script["table"]
    met = figure(0.5, 0.4, 0.6)
    result = comparison(
        {
            "none": arm(metrics(slo_attainment=met)),
            "oomd": arm(facts=ArmFacts(controller="oomd", terminated_processes=3)),
        }
    )
    left_out = replace(result.method, left_out={"ws-flush": "'ws-flush' needs cachestat."})
    text = make_page(
        [replace(result, method=left_out), replace(result, scenario="other")],
        {"small": date(2026, 11, 28), "other": date(2026, 11, 29)},
    )
    assert "2026-11-28." in text.partition("## other")[0]
    assert "2026-11-29." in text.partition("## other")[2]
    lines = text.splitlines()
    assert lines[0] == "# Every arm, live"
    assert [line for line in lines if line.startswith("## ")] == ["## small", "## other"]
    assert "- Left out: 'ws-flush' needs cachestat." in lines
    (none, _) = [line for line in lines if line.startswith("| `none`")]
    assert none.startswith("| `none` | 50 % | 1.00 |")
    first = [line for line in lines if line.startswith("| `")]
    assert first[0].startswith("| `oomd`"), "the best stands first"
    assert first[0].endswith("| 3 |")
    assert max(len(line) for line in lines if not line.startswith("|")) <= 100
    head, *rows = make_table(result).splitlines()
    assert head == 'arm,met,"p50, ms","p95, ms","p99, ms",work,ended'
    assert rows[-1].startswith("none,50 % [40..60 %],1.00 [0.90..1.10],")
    assert len(rows) == 2 + 2, "the references, and each arm"


def test_the_picture_has_a_row_for_each_arm_and_marks_only_what_was_measured() -> None:
    draw = runpy.run_path(str(ROOT / "scripts/arms_picture.py"))["arms_picture"]
    good = arm(metrics(slo_attainment=figure(1.0), background_work=figure(0.5)))
    bad = arm(metrics(slo_attainment=figure(0.25), background_work=figure(0.75)))
    both, one = comparison({"bad": bad, "good": good}), comparison({"good": good})
    drawn = ElementTree.fromstring(draw([both, replace(one, scenario="other")]))
    texts = [element.text for element in drawn.iter(f"{SVG}text")]
    assert [text for text in texts if text in {"good", "bad"}] == ["good", "bad"]
    assert {"small", "other"} <= set(texts)
    marks = list(drawn.iter(f"{SVG}circle"))[2:]  # after the key
    assert len(marks) == 2 * (2 + 1), "an arm that was left out of a comparison has no mark"
    met_of_good, met_of_bad = (float(marks[i].attrib["cx"]) for i in (1, 3))
    assert met_of_bad < met_of_good
