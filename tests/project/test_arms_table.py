"""The page of every arm is made from results of comparisons."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

from example_results import arm, comparison, figure, metrics

from stallward.evaluation.results.comparison import ArmFacts

ROOT = Path(__file__).parents[2]


def test_it_has_every_arm_with_its_intervals_and_says_who_was_left_out() -> None:
    make_page = runpy.run_path(str(ROOT / "scripts/arms_table.py"))["page"]
    met = figure(0.5, 0.4, 0.6)
    result = comparison(
        {
            "none": arm(metrics(slo_attainment=met)),
            "oomd": arm(facts=ArmFacts(controller="oomd", terminated_processes=3)),
        }
    )
    left_out = replace(result.method, left_out={"ws-flush": "'ws-flush' needs cachestat."})
    text = make_page([replace(result, method=left_out), replace(result, scenario="other")])
    lines = text.splitlines()
    assert lines[0] == "# Every arm, live"
    assert [line for line in lines if line.startswith("## ")] == ["## small", "## other"]
    assert "- Left out: 'ws-flush' needs cachestat." in lines
    (none, _) = [line for line in lines if line.startswith("| `none`")]
    assert none.startswith("| `none` | 50 % [40..60 %] | 1.00 [0.90..1.10] |")
    first = [line for line in lines if line.startswith("| `")]
    assert first[0].startswith("| `oomd`"), "the best stands first"
    assert first[0].endswith("| 3 |")
    assert max(len(line) for line in lines if not line.startswith("|")) <= 100
