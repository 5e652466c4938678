"""The demo's time budget, what it clears, and what it says first."""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from stallward.evaluation.demo.run import (
    _BURN_IN_S,
    _SWITCH_S,
    CALIBRATION_S,
    DemoSettings,
    _clear,
    _first_line,
    plan_budget,
    run_demo,
    why_not_live,
)
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.results.comparison import load_result
from stallward.models.registry import load_policy
from stallward.training.progress import Report, silent


@pytest.mark.parametrize("minutes", [6.0, 8.0, 10.5, 20.0, 40.0])
def test_the_stages_fit_into_the_time(minutes: float) -> None:
    budget = plan_budget(60.0 * minutes, live=True)
    around_s = _BURN_IN_S + _SWITCH_S
    blocks_s = 6 * budget.rounds * (budget.block_s + around_s)
    blocks_s += max(budget.block_s, CALIBRATION_S) + around_s
    assert budget.fit_s + budget.train_s + blocks_s <= 60.0 * minutes
    assert budget.rounds >= 1
    assert budget.block_s >= 6.0


def test_the_default_time_gives_four_rounds() -> None:
    budget = plan_budget(60.0 * DemoSettings(out=Path("out")).minutes, live=True)
    assert budget.rounds == 4
    assert budget.fit_s >= 45.0
    assert budget.train_s >= 180.0


def test_too_little_time_still_gives_one_round() -> None:
    assert plan_budget(60.0, live=True).rounds == 1


def test_a_second_demo_clears_the_first_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    (out / "compare" / "blocks").mkdir(parents=True)
    (out / "compare" / "plan.json").write_text("{}")
    (out / "result.json").write_text("{}")
    (out / "notes.txt").write_text("mine")
    (out / "keep").mkdir()
    _clear(out)
    assert sorted(p.name for p in out.iterdir()) == ["keep", "notes.txt"]


def test_a_folder_called_compare_that_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "compare").mkdir()
    (tmp_path / "compare" / "mine").write_text("x")
    _clear(tmp_path)
    assert (tmp_path / "compare" / "mine").exists()


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("x")
    with pytest.raises(EvaluationError, match="is a file"):
        _clear(tmp_path / "demo")


def test_the_first_line_says_which_node_and_whether_it_is_the_twin(tmp_path: Path) -> None:
    assert _first_line(tmp_path, "").startswith("Comparing live")
    text = _first_line(tmp_path, "not root")
    assert text.startswith("Comparing on the twin, not live (not root)")
    assert "CPUs" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root can run live blocks")
def test_without_root_the_twin_is_used() -> None:
    assert why_not_live() == "not root"


@pytest.mark.slow
def test_the_whole_way_once_on_the_twin(tmp_path: Path) -> None:
    said: list[str] = []
    stages: list[str] = []

    def progress(name: str) -> AbstractContextManager[Report]:
        stages.append(name)
        return nullcontext(silent)

    settings = DemoSettings(out=tmp_path / "demo", minutes=0.3, twin=True)
    result = run_demo(settings, say=said.append, progress=progress)
    assert said[0].startswith("Comparing on the twin, not live (as asked with --twin)")
    assert [name.split()[0] for name in stages] == ["1/4", "2/4", "3/4", "4/4"]
    assert result.mode == "twin"
    assert set(result.table.arms) == {"none", "latd", "ppo"}
    assert load_result(settings.out) == result
    report = (settings.out / "report.html").read_text(encoding="utf-8")
    assert "<svg" in report
    assert not re.search(r"(src|href)=.https?:", report), "not self-contained"
    load_policy(settings.out / "policy.onnx")
