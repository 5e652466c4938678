"""The demo clears its own files only, says what it will do, and runs once from end to end."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from stallward.env.scenario.file import load_scenario, shipped_files
from stallward.evaluation.arms import REFERENCES
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.demo import run
from stallward.evaluation.demo.run import (
    CONDITIONS,
    TWIN_BLOCKS,
    WIDTH,
    DemoSettings,
    _clear,
    _first_lines,
    _request,
    run_demo,
    why_not_live,
)
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.results.comparison import load_result
from stallward.models.registry import load_policy
from stallward.training.progress import Report, silent


def test_a_second_demo_clears_the_first_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    (out / "compare" / "blocks").mkdir(parents=True)
    (out / "compare" / "plan.json").write_text("{}")
    (out / "result.json").write_text("{}")
    (out / "notes.txt").write_text("mine")
    (out / "keep").mkdir()
    _clear(out)
    assert sorted(p.name for p in out.iterdir()) == ["keep", "notes.txt"]


def test_a_foreign_folder_called_compare_is_kept(tmp_path: Path) -> None:
    (tmp_path / "compare").mkdir()
    (tmp_path / "compare" / "mine").write_text("x")
    _clear(tmp_path)
    assert (tmp_path / "compare" / "mine").exists()


def test_what_another_command_made_by_the_same_name_is_kept(tmp_path: Path) -> None:
    """``train`` and ``export`` write ``build/run`` and ``build/policy.onnx`` by default."""
    policy = tmp_path / "run" / "policy.zip"
    policy.parent.mkdir()
    policy.write_text("mine")
    (tmp_path / "policy.onnx").write_text("mine")
    with pytest.raises(EvaluationError, match=r"run exists, and no demo made it.* --out"):
        _clear(tmp_path)
    assert policy.read_text() == (tmp_path / "policy.onnx").read_text() == "mine"


def test_a_demo_that_was_interrupted_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(settings: DemoSettings, *_: object) -> None:
        (settings.out / "run").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_make_policy", interrupted)
    settings = DemoSettings(out=tmp_path / "demo", minutes=1.0, twin=True)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_demo(settings, say=lambda _: None, progress=lambda _: nullcontext(silent))


@pytest.mark.reaches("recordings/")
def test_the_recordings_of_a_scenario_of_ones_own_are_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(run.shipped_recordings() / "detector-anon-none-s1", tmp_path / "rec")
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(info | {"scenario": "mine"}))
    shutil.copy(shipped_files()["detector-anon"], tmp_path / "mine.toml")
    fitted: list[list[Path]] = []

    def fit(places: list[Path], **_: object) -> None:
        fitted.append(places)
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "fit_twin", fit)
    settings = DemoSettings(
        out=tmp_path / "demo", minutes=1.0, twin=True, scenario=str(tmp_path / "mine.toml"),
        recordings=folder,
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        run_demo(settings, say=lambda _: None, progress=lambda _: nullcontext(silent))
    assert fitted == [[folder]]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("x")
    with pytest.raises(EvaluationError, match="is a file"):
        _clear(tmp_path / "demo")


def test_the_first_lines_name_the_node_the_steps_and_the_time(tmp_path: Path) -> None:
    scenario = load_scenario("detector-anon")
    settings = DemoSettings(out=tmp_path, minutes=9.0)
    where, what = _first_lines(settings, scenario, "")
    assert where.startswith("Comparing live")
    assert "CPUs" in where
    assert what.startswith("detector-anon: ")
    assert what.endswith("It takes at most 9 minutes.")
    where, what = _first_lines(settings, scenario, "not root")
    assert where.startswith("Comparing on the twin, not live (not root)")
    assert what.endswith("It takes a few minutes.")


def test_the_arms_are_the_shipped_ones_and_the_fresh_policy(tmp_path: Path) -> None:
    settings = DemoSettings(out=tmp_path, minutes=9.0)
    request = _request(settings, tmp_path / "policy.onnx", "live", TWIN_BLOCKS)
    assert [arm.label for arm in request.arms] == ["none", "latd", "partition", "ppo", "fresh"]
    arms = {arm.label: arm for arm in request.arms}
    assert arms["ppo"].arguments == {"path": "default"}, "the shipped one"
    assert arms["fresh"].runs_policy
    assert request.policy == str(tmp_path / "policy.onnx")
    assert len(REFERENCES) + len(request.arms) == CONDITIONS


@pytest.mark.parametrize(
    ("round_s", "rounds"),
    [(100.0, 4), (130.0, 3), (200.0, 2), (400.0, 1), (9000.0, 1)],
    ids=lambda value: f"{value:g}",
)
def test_no_round_begins_that_would_end_after_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round_s: float, rounds: int
) -> None:
    now_s, once_s = 1000.0, 40.0
    ran: list[int] = []

    def compare(request: ComparisonRequest, _report: Report) -> SimpleNamespace:
        nonlocal now_s
        now_s += round_s + (0.0 if ran else once_s)
        ran.append(request.rounds)
        return SimpleNamespace(result=None)

    monkeypatch.setattr(run, "run_comparison", compare)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now_s))
    settings = DemoSettings(out=tmp_path, minutes=9.0)
    request = _request(settings, tmp_path / "policy.onnx", "live", TWIN_BLOCKS)
    assert not request.repeat_disturbed
    deadline_s = now_s + 460.0
    run._compare(request, deadline_s, once_s, silent)
    assert ran == list(range(1, rounds + 1))
    assert rounds == 1 or now_s <= deadline_s


@pytest.mark.skipif(os.geteuid() == 0, reason="root can run live blocks")
def test_without_root_the_twin_is_used() -> None:
    assert why_not_live() == "not root"


@pytest.mark.reaches("recordings/", "models/")
@pytest.mark.slow
def test_the_demo_runs_once_on_the_twin(tmp_path: Path) -> None:
    messages: list[str] = []
    stages: list[str] = []

    def progress(name: str) -> AbstractContextManager[Report]:
        stages.append(name)
        return nullcontext(silent)

    settings = DemoSettings(out=tmp_path / "demo", minutes=0.3, twin=True)
    result = run_demo(settings, say=messages.append, progress=progress)
    assert [one for one in messages if "\n" in one] == [], "a line is printed as one line"
    assert messages[0].startswith("Comparing on the twin, not live (as asked with --twin)")
    assert [name.split()[0] for name in stages] == ["1/4", "2/4", "3/4", "4/4"]
    assert result.mode == "twin"
    assert set(result.table.arms) == {"none", "latd", "partition", "ppo", "fresh"}
    assert load_result(settings.out) == result
    report = (settings.out / "report.html").read_text(encoding="utf-8")
    assert "<svg" in report
    sentence = next(text for text in messages if text.startswith("On the twin, without control"))
    assert " ".join(sentence.split()) in " ".join(html.unescape(report).split())
    *texts, _files = messages
    assert max(len(line) for text in texts for line in text.splitlines()) <= WIDTH
    assert not re.search(r"(src|href)=.https?:", report), "the report loads other files"
    load_policy(settings.out / "policy.onnx")
