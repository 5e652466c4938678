"""The experiment of DASEC: runs, resuming, figures and the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from invented_applications import TIMES, InventedApplications

from stallward.env.errors import SandboxError
from stallward.evaluation.cli import main
from stallward.evaluation.errors import PlanError
from stallward.evaluation.report.experiment_page import render_experiment_page
from stallward.evaluation.results.serialise import load
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.dasec.experiment import (
    DasecExperimentRequest,
    run_dasec_experiment,
)
from stallward.papers.experiments.dasec.page import dasec_page, headline
from stallward.papers.experiments.dasec.result import DasecExperimentResult
from stallward.papers.experiments.dasec.steps import ARMS, RATIOS
from stallward.papers.experiments.dasec.tables import latency_table, summary_table, thread_table
from stallward.papers.experiments.dasec.texts import ARM_LABELS, NOT_REPEATED
from stallward.papers.experiments.runs import RESULT_FILE

pytestmark = pytest.mark.reaches()

ALL = 4 * (1 + len(ARMS) * len(RATIOS))


def request(out: Path, **changed: object) -> DasecExperimentRequest:
    base = DasecExperimentRequest(out=out, repeats=3, minutes=10.0, cpus=2)
    return replace(base, **changed)  # type: ignore[arg-type]


def run(
    out: Path, runner: InventedApplications | None = None, **changed: object
) -> DasecExperimentResult:
    runner = runner or InventedApplications()
    return run_dasec_experiment(request(out, **changed), opener=runner.opened)


def test_latencies_are_compared_within_each_repeat(tmp_path: Path) -> None:
    """Repeats differ by far more than controllers do, and each has its own noise."""
    result = run(tmp_path / "out")
    assert result.done_runs == result.planned_runs == 3 * ALL
    for application, by_ratio in result.beside.items():
        alone = result.alone[application]
        assert (alone.runs, alone.mean_times_alone.value) == (3, 1.0)
        for at in by_ratio:
            for arm, figures in at.arms.items():
                times = TIMES.get(arm, 1.0)
                assert figures.mean_ratio.value == pytest.approx(times)
                assert figures.p99_ratio.value == pytest.approx(times)
                grown = (1 + at.ratio) * times
                assert figures.mean_times_alone.value == pytest.approx(grown, rel=0.05)
                assert figures.answered_share == pytest.approx(0.5 if at.ratio == 4 else 1.0)
                assert figures.batch_ratio.value == pytest.approx(1.0)
            none, bvt = at.arms["none"], at.arms["bvt"]
            assert none.mean_ratio.low is None, "it is its own base"
            assert bvt.mean_ratio.low == pytest.approx(bvt.mean_ratio.high)
            assert bvt.mean_ms.low is not None
            assert bvt.mean_ms.low < 0.9 * (bvt.mean_ms.value or 0.0), "repeats differ"


def test_a_controller_is_summed_up_over_applications_and_ratios(tmp_path: Path) -> None:
    result = run(tmp_path / "out")
    assert "none" not in result.summary
    assert set(result.summary) == set(ARMS) - {"none"}
    dasec = result.summary["dasec"]
    assert dasec.cases == 4 * len(RATIOS)
    assert dasec.mean_lower.value == pytest.approx(0.5)
    assert dasec.p99_lower.value == pytest.approx(0.5)
    assert dasec.batch_lower.value == pytest.approx(0.0)
    rows = {row[0]: row for row in summary_table(result).rows}
    assert rows["source: DASEC"][1:3] == ("46 %", "52 %")
    assert rows["only latency"][1].startswith("40 %")
    assert "the mean latency is 50 % lower (source: 46 % lower)" in headline(result)


@pytest.mark.slow
def test_what_was_interrupted_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    first, second = InventedApplications(interrupt_at=7), InventedApplications()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", first)
    result = run(tmp_path / "out", second)
    assert len(first.ran) + len(second.ran) == result.planned_runs
    assert result == run(tmp_path / "out", InventedApplications(interrupt_at=0))
    assert result == load(DasecExperimentResult, tmp_path / "out" / RESULT_FILE)


@pytest.mark.slow
def test_a_part_of_the_runs_has_a_result_and_a_page(tmp_path: Path) -> None:
    """As after any number of minutes."""
    for finished in (1, 2, 5, 30):
        out = tmp_path / str(finished)
        with pytest.raises(KeyboardInterrupt):
            run(out, InventedApplications(interrupt_at=finished))
        result = run(out, InventedApplications(interrupt_at=0), minutes=0.0)
        assert (result.done_runs, result.planned_runs) == (finished, 3 * ALL)
        assert "<svg" in render_experiment_page(dasec_page(result)) or finished < 30
        latency_table(result)


def test_only_what_was_asked_for_is_prepared_and_run(tmp_path: Path) -> None:
    runner = InventedApplications()
    result = run(tmp_path / "out", runner, applications=("ordered",), repeats=1)
    assert runner.prepared == ["ordered"]
    assert {setting.application for setting in runner.ran} == {"ordered"}
    assert list(result.alone) == list(result.beside) == ["ordered"]
    assert result.summary["dasec"].cases == len(RATIOS)
    assert result.beside["ordered"][0].arms["dasec"].p99_ms.low is None, "one repeat: no interval"


def test_more_applications_add_to_what_is_there(tmp_path: Path) -> None:
    run(tmp_path / "out", applications=("ordered",), repeats=1)
    runner = InventedApplications()
    result = run(tmp_path / "out", runner, applications=("memcached", "ordered"), repeats=1)
    assert {setting.application for setting in runner.ran} == {"memcached"}
    assert list(result.alone) == ["memcached", "ordered"]


def test_a_folder_of_another_division_or_seed_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "out", applications=("ordered",), repeats=1)
    for changed in ({"seed": 2}, {"division": "group"}, {"cpus": 4}):
        with pytest.raises(PlanError, match="with other settings"):
            run(tmp_path / "out", **changed)


def test_time_that_is_over_begins_nothing(tmp_path: Path) -> None:
    with pytest.raises(ReplicationError, match="No run is finished"):
        run(tmp_path / "out", minutes=0.0)


def test_a_node_that_cannot_run_it_says_why_and_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path / "out", applications=("ordered",), repeats=1)

    @contextmanager
    def refused() -> Iterator[InventedApplications]:
        raise SandboxError("No groups here.", next_step="Boot with cgroups.")
        yield  # a context manager has one

    with pytest.raises(SandboxError, match="No groups"):
        run_dasec_experiment(request(tmp_path / "out"), opener=refused)
    again = run(tmp_path / "out", InventedApplications(interrupt_at=0), minutes=0.0)
    assert again.done_runs == ALL // 4


@pytest.mark.slow
def test_the_page_has_the_figures_of_the_source_and_ours(tmp_path: Path) -> None:
    result = run(tmp_path / "out", repeats=2)
    page = render_experiment_page(dasec_page(result))
    # mean and p99 beside the source, then both of each application
    assert page.count("<svg") == 2 + 2 * 4
    for text in (
        "published: 0.54 x",
        "published: 0.48 x",
        "thread by thread",
        NOT_REPEATED[0][:40],
    ):
        assert text in page
    counts = {row[:3]: row[3:] for row in thread_table(result).rows}
    assert counts["ordered", "2", "none"] == (
        "4", "0.10", "0.40", "1.0", "20 %", "0 %", "5 %"
    )  # fmt: skip


def test_every_controller_has_a_name_and_a_place_in_the_table(tmp_path: Path) -> None:
    assert list(ARM_LABELS) == list(ARMS)
    result = run(tmp_path / "out", repeats=1, applications=("classifier",))
    shown = [row[2] for row in latency_table(result).rows if row[1] == "4"]
    assert shown == [ARM_LABELS[arm] for arm in ARMS]


@pytest.mark.slow
def test_threads_that_were_not_seen_are_left_out(tmp_path: Path) -> None:
    result = run(tmp_path / "out", InventedApplications(watched=False), repeats=1)
    assert not thread_table(result).rows
    assert "<svg" in render_experiment_page(dasec_page(result))


def test_the_command_shows_what_is_finished_and_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    base = DasecExperimentRequest(out=out, applications=("memcached",), repeats=1)
    run_dasec_experiment(base, opener=InventedApplications().opened)
    argv = ["experiment", "dasec", "--out", str(out), "--repeats", "2", "--minutes", "0"]
    assert main([*argv, "--applications", "memcached"]) == 0
    shown = capsys.readouterr()
    assert "50 % lower (source: 46 % lower)" in shown.out
    assert f"{ALL // 4} of {ALL // 2} runs are finished" in shown.out + shown.err
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert main([*argv, "--applications", "masstree"]) != 0
    assert "'masstree' is no application" in capsys.readouterr().err
