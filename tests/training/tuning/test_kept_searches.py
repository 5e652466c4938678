"""Finished searches are kept: an interrupted command goes on, and nothing else takes them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from stallward.agent.controllers.pi import PiThresholds
from stallward.agent.controllers.rule import RuleThresholds
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import FittedTwin, save_fitted
from stallward.evaluation.cli import main
from stallward.training.errors import WorkerError
from stallward.training.parallel.local_processes import IN_THIS_PROCESS
from stallward.training.parallel.storage import parts_of
from stallward.training.pipeline import train as pipeline
from stallward.training.progress import Report
from stallward.training.selection.rollout import Outcome
from stallward.training.tuning import search
from stallward.training.tuning import search as kept_searches
from stallward.training.tuning.search import KeptSearches, SearchResult, tune
from stallward.training.tuning.settings import TuneSettings, find_tunable

TWIN = small_twin()
BRIEF = TuneSettings(
    total_steps=8_000,
    episodes=8,
    seconds=2.0,
    evaluation_episodes=8,
    evaluation_seconds=2.0,
    finalists=1,
    seeds=3,
    judged_episodes=8,
)
OUTCOME = Outcome(
    score=1 / 3,
    score_low=0.1,
    progress=0.5,
    window_violated=0.0,
    excess=1e-17,
    slow=0.25,
    switches_per_s=2.0,
)


def result(seed: int) -> SearchResult:
    thresholds = RuleThresholds(latency_high=0.7 + 0.01 * seed)
    return SearchResult(seed=seed, thresholds=thresholds, outcome=OUTCOME, steps=7, generations=2)


def kept_in(
    folder: Path,
    *,
    rule: str = "rule",
    twins: Sequence[FittedTwin] = (TWIN,),
    settings: TuneSettings = BRIEF,
) -> KeptSearches:
    return KeptSearches(folder, find_tunable(rule), twins, settings)


def test_a_kept_search_is_what_it_was(tmp_path: Path) -> None:
    kept = kept_in(tmp_path / "parts")
    assert kept.load(1) is None
    kept.save(result(1))
    assert kept.load(1) == result(1)
    assert kept.load(2) is None
    assert kept_in(tmp_path / "parts").load(1) == result(1)
    more = replace(BRIEF, seeds=9, judged_episodes=99)
    assert kept_in(tmp_path / "parts", settings=more).load(1) == result(1), (
        "how many there are, and how one is chosen, is no part of a search"
    )


def test_searches_with_another_setting_twin_rule_or_version_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_in(tmp_path).save(result(1))
    scenario = replace(TWIN.scenario, zone_bytes=TWIN.scenario.zone_bytes + 4096)
    for other in (
        kept_in(tmp_path, settings=replace(BRIEF, total_steps=8_001)),
        kept_in(tmp_path, settings=replace(BRIEF, seed=2)),  # the synthetic scenarios differ
        kept_in(tmp_path, settings=replace(BRIEF, max_seconds=9.0)),
        kept_in(tmp_path, twins=(replace(TWIN, scenario=scenario),)),
        kept_in(tmp_path, twins=(TWIN, TWIN)),
        kept_in(tmp_path, rule="pi"),
    ):
        assert other.load(1) is None
        other.save(replace(result(1), thresholds=other._rule.thresholds()))
    assert kept_in(tmp_path).load(1) == result(1), "another one took its place"
    pi = kept_in(tmp_path, rule="pi").load(1)
    assert pi is not None
    assert isinstance(pi.thresholds, PiThresholds)
    monkeypatch.setattr(kept_searches, "versions_here", lambda: {"numpy": "0.1"})
    assert kept_in(tmp_path).load(1) is None


def test_a_file_that_is_damaged_or_renamed_is_no_search(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    kept.save(result(1))
    (file,) = tmp_path.iterdir()
    whole = file.read_text()
    renamed = file.with_name(file.name.replace("seed-1", "seed-2"))
    renamed.write_text(whole)
    assert kept.load(2) is None
    content = json.loads(whole)
    content["thresholds"]["latency_high"] = 1e9
    for text in (whole[:100], "{}", "[]", "\x00", json.dumps(content)):
        file.write_text(text)
        assert kept.load(1) is None, text


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_interrupted_searches_go_on_and_find_what_they_would_have_found_at_once(
    tmp_path: Path,
) -> None:
    brief = replace(BRIEF, seeds=2)
    at_once = tune("rule", [TWIN], brief, executor=IN_THIS_PROCESS)
    messages: list[str] = []

    def interrupt(message: str, _share: float) -> None:
        messages.append(message)
        if "seed 2, generation 1" in message:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune("rule", [TWIN], brief, interrupt, folder=tmp_path, executor=IN_THIS_PROCESS)
    assert [message for message in messages if "seed 1" in message]
    assert len(list(tmp_path.iterdir())) == 1, "the first seed was finished"
    messages.clear()
    goes_on = tune(
        "rule",
        [TWIN],
        brief,
        lambda message, _share: messages.append(message),
        folder=tmp_path,
        executor=IN_THIS_PROCESS,
    )
    assert goes_on == at_once
    assert not [message for message in messages if "seed 1" in message], "it was searched again"
    assert [message for message in messages if "seed 2" in message]


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_command_whose_worker_dies_goes_on_from_its_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    searched: list[int] = []
    dies = True

    def fake(
        _rule: str,
        _twins: Sequence[FittedTwin],
        _settings: TuneSettings,
        seed: int,
        _max_seconds: float,
        _report: Report,
    ) -> SearchResult:
        if seed == 3 and dies:
            raise WorkerError("The worker of the search of seed 3 died 3 times.")
        searched.append(seed)
        return result(seed)

    monkeypatch.setattr(search, "_search", fake)
    monkeypatch.setattr(pipeline, "TuneSettings", partial(TuneSettings, judged_episodes=8))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # jobs run in this process
    twin, storage = tmp_path / "small.json", tmp_path / "storage"
    save_fitted(twin, TWIN)
    command = ["tune", "rule", "--twin", str(twin), "--judged-on", str(twin), "--composed", "0"]
    command += ["--seeds", "3", "--storage", f"file://{storage}"]
    here, there = tmp_path / "here/rule.toml", tmp_path / "there/rule.toml"
    assert main([*command, "--out", str(here)]) == 2
    assert "seed 3 died" in capsys.readouterr().err
    assert not here.exists()
    stored = sorted(path.name for path in (storage / "rule.toml.parts").iterdir())
    assert [name.partition("-seed-")[2][0] for name in stored] == ["1", "2"]
    dies = False
    assert main([*command, "--out", str(there)]) == 0
    assert searched == [1, 2, 3], "a finished search was made again"
    assert len(list(parts_of(there).iterdir())) == 3
    assert (storage / "rule.toml").read_bytes() == there.read_bytes()
    assert "seeds = [1, 2, 3]" in there.read_text()
