"""The experiments of the latd thesis: runs, resuming, figures and the page."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from invented_detector import IMAGES, InventedDetector

from stallward.env.errors import SandboxError, WorkloadError
from stallward.env.sandbox.block import make_workplace
from stallward.evaluation.cli import main
from stallward.evaluation.errors import PlanError
from stallward.evaluation.report.experiment_page import render_experiment_page
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import load
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.charts import BesideRow, beside_chart
from stallward.papers.experiments.latd.experiment import LatdExperimentRequest, run_latd_experiment
from stallward.papers.experiments.latd.page import NOT_REPEATED, headline, latd_page
from stallward.papers.experiments.latd.result import LatdExperimentResult
from stallward.papers.experiments.latd.steps import ISOLATED, SCENARIOS
from stallward.papers.experiments.latd.tables import memory_table, scenario_table, sweep_table
from stallward.papers.experiments.runs import RESULT_FILE

pytestmark = pytest.mark.reaches()


def request(out: Path, **changed: object) -> LatdExperimentRequest:
    base = LatdExperimentRequest(out=out, part="scenarios", repeats=3, minutes=10.0)
    return replace(base, **changed)  # type: ignore[arg-type]


def run(
    out: Path, runner: InventedDetector | None = None, **changed: object
) -> LatdExperimentResult:
    runner = runner or InventedDetector()
    return run_latd_experiment(request(out, **changed), opener=runner.opened)


def test_the_scenarios_have_their_figures(tmp_path: Path) -> None:
    result = run(tmp_path / "out")
    assert result.done_runs == result.planned_runs == 3 * 9
    alone = result.scenarios["isolated"].figures
    assert (alone.runs, alone.images) == (3, 3 * IMAGES)
    assert alone.p50_ms.value == pytest.approx(20.0, rel=0.02)
    assert alone.p50_ms.value < alone.p95_ms.value < alone.p98_ms.value < alone.p99_ms.value  # type: ignore[operator]
    assert alone.work_mib_per_s is None
    assert (alone.times_isolated.value, alone.times_isolated.low) == (1.0, None)
    for name, times in (("anon-again", 20.0), ("file-again", 10.0), ("latd-cgroup", 2.0)):
        figures = result.scenarios[name].figures
        assert figures.times_isolated.value == pytest.approx(times, rel=0.05)
        assert figures.times_isolated.low is not None
        assert figures.times_isolated.low < times < (figures.times_isolated.high or 0.0)
        assert figures.miss_share.value == pytest.approx(100 * times / (900 + 100 * times))
    assert result.scenarios["latd"].figures.terminated == 3
    assert result.scenarios["file-again"].figures.terminated == 0


def test_memory_is_compared_before_and_after_the_hog_starts(tmp_path: Path) -> None:
    result = run(tmp_path / "out", repeats=1)
    rows = {row[0]: row for row in memory_table(result).rows}
    assert rows["anon"][1:4] == ("184 to 92", "300 to 200", "1736 to 868")
    assert rows["isolated"][3] == "", "there is no hog"


def test_the_sweeps_go_by_value_and_share_runs_with_the_scenarios(tmp_path: Path) -> None:
    runner = InventedDetector()
    result = run(tmp_path / "out", runner, part="all", repeats=1)
    assert len({setting.name for setting in runner.ran}) == len(runner.ran), "nothing runs twice"
    for hog, times in (("anon-again", 20.0), ("file-again", 10.0)):
        rise = {
            point.value: point.figures.times_isolated.value for point in result.utilisation[hog]
        }
        assert list(rise) == sorted(rise)
        assert rise[0.95] == pytest.approx(1.0, rel=0.1)
        assert rise[0.99] == pytest.approx(times, rel=0.1)
    assert [point.value for point in result.swappiness] == [20, 40, 60, 80, 90, 100]
    assert len(sweep_table(result.utilisation, "wanted", share=True).rows) == 15


def test_what_was_interrupted_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    first, second = InventedDetector(interrupt_at=5), InventedDetector()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", first)
    result = run(tmp_path / "out", second)
    assert len(first.ran) + len(second.ran) == result.planned_runs
    assert result == run(tmp_path / "out", InventedDetector(interrupt_at=0)), "nothing was missing"
    assert result == load(LatdExperimentResult, tmp_path / "out" / RESULT_FILE)


def test_time_that_is_over_begins_nothing(tmp_path: Path) -> None:
    with pytest.raises(ReplicationError, match="No run is finished"):
        run(tmp_path / "out", minutes=0.0)
    run(tmp_path / "out", repeats=1)
    result = run(tmp_path / "out", InventedDetector(interrupt_at=0), repeats=2, minutes=0.0)
    assert (result.done_runs, result.planned_runs) == (9, 18)
    assert result.scenarios["anon"].figures.p95_ms.low is None, "one repeat: no interval"


def test_a_node_that_cannot_run_it_says_why_and_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path / "out", repeats=1)

    @contextmanager
    def refused() -> Iterator[InventedDetector]:
        raise SandboxError("The kernel refused to use a swap file.", next_step="Enable swap.")
        yield  # a context manager has one

    with pytest.raises(SandboxError, match="swap file"):
        run_latd_experiment(request(tmp_path / "out", repeats=2), opener=refused)
    again = run(tmp_path / "out", InventedDetector(interrupt_at=0), repeats=1)
    assert again.done_runs == 9


@pytest.mark.parametrize("module", ["onnx", "onnxruntime"])
def test_a_program_that_is_absent_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == module else found(name)
    )
    with pytest.raises(WorkloadError, match=f"python:{module}") as raised:
        make_workplace(SCENARIOS[ISOLATED].scenario(), tmp_path)
    assert f"pip install {module}" in raised.value.next_step
    assert not any(tmp_path.iterdir())


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "out", repeats=1)
    with pytest.raises(PlanError, match="with other settings"):
        run(tmp_path / "out", seed=2)


@pytest.mark.slow
def test_the_page_has_the_figures_of_the_thesis_and_ours(tmp_path: Path) -> None:
    result = run(tmp_path / "out", part="all", repeats=2)
    table = scenario_table(result)
    theirs = {
        row[0]: (row[6], row[7], row[9]) for row in table.rows if any((row[6], row[7], row[9]))
    }
    assert theirs == {
        "isolated": ("40 ms", "1 x", "9 %"),
        "anon": ("600 ms", "20 x", "38.64 %"),
        "file-once": ("", "", "9.69 %"),
        "file-again": ("320 ms", "10 x", "34.92 %"),
        "latd": ("70 ms", "2 x", ""),
        "latd-cgroup": ("40 ms", "1 x", ""),
    }
    assert "2.0 times under latd beside that (thesis: 2)" in headline(result)
    page = render_experiment_page(latd_page(result))
    # beside each other, distributions, over time, memory, two sweeps
    assert page.count("<svg") == 2 + 1 + 9 + 9 + 2
    for text in (
        "detector 1.72 to 1.62 GB",
        "thesis: the rise",
        "thesis: best",
        "p98",
        *NOT_REPEATED[:1],
    ):
        assert text in page


def test_an_interval_that_is_far_too_wide_leaves_the_values_readable() -> None:
    wide = Interval(value=50.0, low=0.01, high=90_000.0)
    narrow = Interval(value=20.0, low=19.0, high=21.0)
    rows = [
        BesideRow(label=label, colour="var(--c0)", ours=ours, theirs=40.0)
        for label, ours in (("wide", wide), ("narrow", narrow))
    ]
    drawn = beside_chart(rows, unit=" ms", log=True, label="latencies")
    assert ">100 ms<" in drawn
    assert ">1000 ms<" not in drawn


@pytest.mark.parametrize("part", ["utilisation", "swappiness"])
def test_a_page_of_one_sweep_alone_can_be_written(tmp_path: Path, part: str) -> None:
    result = run(tmp_path / "out", part=part, repeats=1)
    assert not result.scenarios
    page = render_experiment_page(latd_page(result))
    assert page.count("<svg") == 1


@pytest.mark.slow
def test_lookups_that_were_not_counted_are_unknown_not_zero(tmp_path: Path) -> None:
    result = run(tmp_path / "out", InventedDetector(counts=False), repeats=1)
    assert result.scenarios["anon"].figures.miss_share.value is None
    page = render_experiment_page(latd_page(result))
    assert "not counted: page cache by eBPF: not permitted" in page


@pytest.mark.slow
def test_the_command_shows_what_is_finished_and_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run(out, part="all", repeats=1)
    argv = ["experiment", "latd", "--out", str(out), "--repeats", "2", "--minutes", "0"]
    assert main(argv) == 0
    shown = capsys.readouterr()
    assert "38.64 %" in shown.out
    assert "2.0 times under latd beside that (thesis: 2)" in shown.out
    assert "28 of 56 runs are finished" in shown.out + shown.err
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert main([*argv, "--part", "none"]) == 2
