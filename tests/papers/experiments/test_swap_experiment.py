"""The experiments on swap assignment: runs, resuming, figures and the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from invented_batches import InventedRunner

from stallward.evaluation.errors import PlanError
from stallward.evaluation.report.experiment_page import render_experiment_page
from stallward.evaluation.results.serialise import load
from stallward.papers.controllers.contention import read_contention
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.runs import RESULT_FILE
from stallward.papers.experiments.swap.configurations import CASE_STUDIES
from stallward.papers.experiments.swap.experiment import SwapExperimentRequest, run_swap_experiment
from stallward.papers.experiments.swap.page import (
    NOT_REPEATED,
    alpha_table,
    case_study_table,
    headline,
    larger_table,
    swap_page,
)
from stallward.papers.experiments.swap.result import SwapExperimentResult

pytestmark = pytest.mark.reaches()


def request(out: Path, **changed: object) -> SwapExperimentRequest:
    base = SwapExperimentRequest(out=out, part="case-study", repeats=3, minutes=10.0)
    return replace(base, **changed)  # type: ignore[arg-type]


def run(
    out: Path, runner: InventedRunner | None = None, **changed: object
) -> SwapExperimentResult:
    runner = runner or InventedRunner()
    return run_swap_experiment(request(out, **changed), opener=runner.opened)


def test_the_case_study_has_its_figures(tmp_path: Path) -> None:
    result = run(tmp_path / "out")
    assert result.done_runs == result.planned_runs == 2 * 2 + 1 + 3 * 6
    found = result.case_study
    assert found is not None
    both = found.arms["both"]
    assert both.runs == 3
    assert both.total_s.value == pytest.approx(18.0, rel=0.05)
    assert both.lower.value == pytest.approx(1 - 18 / 24, abs=0.03)
    assert both.lower.low is not None
    assert both.lower.high is not None
    assert both.lower.low < 0.25 < both.lower.high
    assert found.arms["average"].lower.value == pytest.approx(1 - 36 / 24, abs=0.05)
    # alone 2 s: (4/2 + 5/2 + 9/2) / 3 - 1
    assert both.lengthened.value == pytest.approx(2.0, rel=0.05)
    assert found.arms["none"].lower.value == pytest.approx(0.0, abs=1e-9)


def test_degrees_order_the_applications_before_any_controller_runs(tmp_path: Path) -> None:
    runner = InventedRunner()
    result = run(tmp_path / "out", runner)
    assert [label for _, label, _ in runner.ran[:5]] == ["none"] * 5
    assert result.case_study is not None
    degrees = {one.name: one.degree for one in result.case_study.applications}
    assert degrees["T1"] > degrees["T2"] > degrees["T3"] > 0
    path = Path(runner.specs["both"].partition("path=")[2])
    measured = read_contention(path)
    assert {one.name: one.memory_bytes >> 20 for one in measured.applications} == {
        "T1": 96, "T2": 96, "T3": 96,
    }  # fmt: skip


def test_what_was_interrupted_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    first, second = InventedRunner(interrupt_at=9), InventedRunner()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", first)
    result = run(tmp_path / "out", second)
    assert len(first.ran) + len(second.ran) == result.planned_runs
    assert result == run(tmp_path / "out", InventedRunner(interrupt_at=0)), "nothing was missing"
    assert result == load(SwapExperimentResult, tmp_path / "out" / RESULT_FILE)


def test_a_run_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    run(tmp_path / "out")
    broken = next((tmp_path / "out" / "runs").iterdir())
    broken.write_text(broken.read_text()[:20])
    runner = InventedRunner()
    run(tmp_path / "out", runner)
    assert len(runner.ran) == 1


def test_runs_without_counted_faults_stay_readable(tmp_path: Path) -> None:
    before = run(tmp_path / "out", repeats=1)
    for path in (tmp_path / "out" / "runs").iterdir():
        stored = json.loads(path.read_text())
        del stored["major_faults"]
        path.write_text(json.dumps(stored))
    old = run(tmp_path / "out", InventedRunner(interrupt_at=0), repeats=1).case_study
    assert old is not None
    assert before.case_study is not None
    assert old.arms["both"].total_s == before.case_study.arms["both"].total_s
    assert {row[-1] for row in case_study_table(old).rows[2:]} == {"- / - / -"}
    both = run(tmp_path / "out", repeats=2).case_study
    assert both is not None
    assert both.arms["both"].major_faults == {"T1": 1000, "T2": 2000, "T3": 3000}


def test_more_repeats_are_added_to_what_is_there(tmp_path: Path) -> None:
    run(tmp_path / "out", repeats=1)
    runner = InventedRunner()
    result = run(tmp_path / "out", runner, repeats=2)
    assert len(runner.ran) == 6
    assert result.case_study is not None
    assert result.case_study.arms["both"].runs == 2


def test_time_that_is_over_begins_nothing(tmp_path: Path) -> None:
    with pytest.raises(ReplicationError, match="No run is finished"):
        run(tmp_path / "out", minutes=0.0)
    runner = InventedRunner()
    run(tmp_path / "out", runner)
    result = run(tmp_path / "out", repeats=9, minutes=0.0)
    assert result.done_runs == len(runner.ran) < result.planned_runs


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "out")
    with pytest.raises(PlanError, match="with other settings"):
        run(tmp_path / "out", seed=2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(PlanError, match="not empty"):
        run(tmp_path / "full")
    with pytest.raises(PlanError, match="is a file"):
        run(tmp_path / "full" / "file")


def test_all_of_it_is_summarised_over_configurations(tmp_path: Path) -> None:
    result = run(tmp_path / "out", part="all", repeats=1)
    assert len(result.larger) == 24
    both = result.larger_summary["both"]
    # slots 0..3 have base[0], base[1], base[2] and base[0] again
    assert both.lower.value == pytest.approx(1 - (4 + 5 + 9 + 4) / (10 + 9 + 5 + 10), abs=0.02)
    assert both.most_lower is not None
    assert both.lower.value is not None
    assert both.most_lower >= both.lower.value
    assert both.most_lower_in in {one.name for one in result.larger}
    page = render_experiment_page(swap_page(result))
    for text in (
        "16.6 %",
        "41.3 %",
        "Same workload, low computing",
        "circles the most",
        *NOT_REPEATED[:1],
    ):
        assert text in page
    assert page.count("<svg") == 2 + 1 + 4
    assert len(larger_table(result).rows) == 5


def test_the_page_has_the_documents_figures_and_ours(tmp_path: Path) -> None:
    result = run(tmp_path / "out")
    assert result.case_study is not None
    table = case_study_table(result.case_study)
    theirs = dict(zip(table.headers, table.rows[1], strict=True))
    assert theirs["T1"] == "13.82 s"
    assert theirs["total"] == "49.49 s"
    assert [row[0] for row in table.rows[2:]] == [*result.case_study.arms]
    assert {row[-1] for row in table.rows[2:]} == {"1,000 / 2,000 / 3,000"}
    assert "the document has 16.6 %" in headline(result)


def test_given_shares_run_with_every_order(tmp_path: Path) -> None:
    runner = InventedRunner()
    result = run(tmp_path / "out", runner, part="alpha")
    assert result.done_runs == result.planned_runs == 3 * (2 * 2 + 1) + 3 * 3 * 7
    assert result.case_study is None
    assert runner.specs["alpha 0.3"].startswith("swap-assign:cpu=0,alpha=0.3,path=")
    assert [one.name for one in result.alpha] == list(CASE_STUDIES)
    found = result.alpha[2].arms
    assert found["alpha 0.3"].runs == 3
    assert found["alpha 0.3"].lower.value == pytest.approx(1 - 18 / 24, abs=0.03)
    table = alpha_table(result.alpha)
    assert [row[:2] for row in table.rows[7:9]] == [("random", "none"), ("random", "alpha 0")]
    assert table.rows[7][-1] == "1,000 / 2,000 / 3,000"
    assert "With the order zipf the total is lowest for alpha 0.3" in headline(result)
    page = render_experiment_page(swap_page(result))
    assert page.count("<svg") == 3
    assert "That application is T3 (scan), T3 (random), T3 (zipf)" in page


def test_given_shares_take_the_runs_that_the_case_study_has(tmp_path: Path) -> None:
    run(tmp_path / "out", repeats=1)
    runner = InventedRunner()
    result = run(tmp_path / "out", runner, part="alpha", repeats=1)
    assert len(runner.ran) == result.planned_runs - (2 * 2 + 1 + 1)


def test_a_result_can_be_read_as_json(tmp_path: Path) -> None:
    run(tmp_path / "out", repeats=1)
    found = json.loads((tmp_path / "out" / RESULT_FILE).read_text())
    assert found["case_study"]["arms"]["both"]["lower"]["low"] is None, "one repeat: no interval"
