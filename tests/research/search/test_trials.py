"""Trials of invented worth: who is stopped, tried again and left, and what the table says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from in_this_process import InThisProcess

from stallward.research.errors import SearchError
from stallward.research.search.run import Outcome, Runner
from stallward.research.search.space import (
    Budget,
    SamplerSettings,
    SchedulerSettings,
    Space,
    Values,
)
from stallward.research.search.study import Study
from stallward.research.search.trials import (
    JOURNAL_FILE,
    TABLE_FILE,
    TRIALS_FILE,
    Judgement,
    Trial,
    TrialLog,
    Worth,
    comparison,
    table,
)
from stallward.training.errors import WorkerError
from stallward.training.progress import Report, silent

pytestmark = pytest.mark.slow  # for the import of torch and Optuna

SPACE = Space(
    settings={
        "ent_coef": Values(low=0.001, high=0.2, logarithmic=True),
        "n_epochs": Values(values=(2, 3, 4)),
        "critic_rollouts": Values(low=1.0, high=9.0),
    },
    budget=Budget(decisions=400, trials=8),
    scheduler=SchedulerSettings(kind="none"),
)


def trial(merits: Sequence[float], report: Report) -> Outcome:
    """A trial that is judged four times."""
    judgements: list[Judgement] = []
    for merit in merits:
        judgements.append(Judgement(decisions=100 * (len(judgements) + 1), merit=merit))
        report(json.dumps([asdict(one) for one in judgements]), 0.0)
    last = merits[-1]
    worth = Worth(merit=last, low=last, fresh_merit=last / 2, fresh_low=last / 2)
    return judgements, worth


def by_entropy(settings: Mapping[str, float], report: Report) -> Outcome:
    """The less entropy, the better."""
    return trial([share - settings["ent_coef"] for share in (0.3, 0.4, 0.5, 0.6)], report)


def run(
    folder: Path,
    space: Space = SPACE,
    work: Any = by_entropy,
    *,
    at_once: int = 1,
    report: Report = silent,
) -> TrialLog:
    study = Study(folder, space, seed=3, identity="abc")
    Runner(study, work, space, report=report, store=lambda: None).run(InThisProcess(at_once))
    return study.log


def states(log: TrialLog) -> list[str]:
    return [trial.state for trial in log.trials]


def with_scheduler(kind: Any, **budget: Any) -> Space:
    return replace(
        SPACE,
        scheduler=SchedulerSettings(kind=kind),
        budget=replace(SPACE.budget, **budget),
    )


def test_the_same_seed_tries_the_same_whatever_the_number_of_workers(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "three").mkdir()
    one, three = run(tmp_path / "one"), run(tmp_path / "three", at_once=3)
    tried = [trial.settings for trial in one.trials]
    assert tried == [trial.settings for trial in three.trials]
    assert tried[0] == {"ent_coef": 0.004, "n_epochs": 3, "critic_rollouts": 10}, "as shipped"
    assert len({settings["ent_coef"] for settings in tried}) == 8
    for settings in tried[1:]:
        assert 0.001 <= settings["ent_coef"] <= 0.2
        assert settings["n_epochs"] in {2, 3, 4}
        assert settings["critic_rollouts"] in range(1, 10)
        assert isinstance(settings["critic_rollouts"], int)
    assert states(one) == ["finished"] * 8


def test_tpe_learns_from_the_trials_that_are_over(tmp_path: Path) -> None:
    space = replace(with_scheduler("none", trials=40), sampler=SamplerSettings(kind="tpe"))
    tried = [trial.settings["ent_coef"] for trial in run(tmp_path, space).trials]
    early, late = sorted(tried[1:11]), sorted(tried[30:])
    assert late[5] < early[5] / 2, "little entropy is better"


@pytest.mark.parametrize("kind", ["asha", "median"])
def test_a_worse_trial_is_stopped_though_the_better_ones_are_of_an_earlier_command(
    kind: str, tmp_path: Path
) -> None:
    better = run(
        tmp_path,
        with_scheduler(kind, trials=4),
        lambda _settings, report: trial([0.5, 0.6, 0.7, 0.8], report),
    )
    assert states(better) == ["finished"] * 4
    worse = run(
        tmp_path,
        with_scheduler(kind, trials=6),
        lambda _settings, report: trial([-1.0, 2.0, 2.0, 2.0], report),
    )
    assert states(worse) == ["finished"] * 4 + ["stopped early"] * 2
    assert worse.trials[5].judgements == (Judgement(decisions=100, merit=-1.0),)
    assert worse.trials[:4] == better.trials
    assert states(run(tmp_path, with_scheduler(kind, trials=6))) == states(worse), "it is over"


@pytest.mark.parametrize("kind", ["asha", "median"])
def test_neither_the_first_trial_nor_one_that_has_ended_is_stopped(
    kind: str, tmp_path: Path
) -> None:
    started = 0

    def fading(_settings: Mapping[str, float], report: Report) -> Outcome:
        nonlocal started
        started += 1
        if started == 1:  # the shipped recipe, told last
            return trial([-1.0, -1.0, -1.0, -1.0], report)
        return trial([1.0, 1.0, 1.0, 0.5 if started > 4 else 1.0], report)

    log = run(tmp_path, with_scheduler(kind, trials=5), fading, at_once=1 + (kind == "asha"))
    assert states(log)[0] == "finished"
    assert log.trials[0].worth is not None
    assert log.trials[4].state == "finished"


def test_an_interrupted_search_goes_on_and_tries_the_same(tmp_path: Path) -> None:
    (tmp_path / "once").mkdir()
    (tmp_path / "twice").mkdir()

    def interrupt(message: str, _share: float) -> None:
        if message == "trial 2: finished":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "twice", at_once=2, report=interrupt)
    study = Study(tmp_path / "twice", SPACE, seed=3, identity="abc")
    assert states(study.log) == ["finished", "finished", "finished", "waiting"]
    ran: list[float] = []

    def noted(settings: Mapping[str, float], report: Report) -> Outcome:
        ran.append(settings["ent_coef"])
        return by_entropy(settings, report)

    twice, once = run(tmp_path / "twice", work=noted), run(tmp_path / "once")
    assert ran == [trial.settings["ent_coef"] for trial in once.trials[3:]]
    for one, other in zip(twice.trials, once.trials, strict=True):
        assert replace(one, seconds=0.0) == replace(other, seconds=0.0)
    assert (tmp_path / "twice" / TABLE_FILE).read_text().count("finished") == 8


def test_a_trial_that_was_interrupted_competes_once(tmp_path: Path) -> None:
    space, merits = with_scheduler("asha", trials=4), [0.5, 0.9, 0.9, 0.4, 0.7]

    def next_one(_settings: Mapping[str, float], report: Report) -> Outcome:
        return trial([merits.pop(0), 1.0, 1.0, 1.0], report)

    def interrupt(message: str, _share: float) -> None:
        if message.startswith("trial 1: 100,"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, space, next_one, report=interrupt)
    log = run(tmp_path, space, next_one)
    # Of 0.5, 0.9, 0.4 and 0.7 the two best go on. If 0.9 counted twice, 0.7 would not.
    assert states(log) == ["finished", "finished", "stopped early", "finished"]


def test_a_trial_that_always_dies_is_tried_three_times_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    tries: list[float] = []

    def dying(settings: Mapping[str, float], report: Report) -> Outcome:
        if settings["critic_rollouts"] != 10:
            return by_entropy(settings, report)
        tries.append(1)
        report(json.dumps([{"decisions": 100, "merit": 0.1}]), 0.0)
        raise WorkerError("Its worker died.", next_step="Give it more memory.")

    log = run(tmp_path, work=dying)
    assert states(log) == ["failed", *["finished"] * 7]
    assert (len(tries), log.trials[0].failures) == (3, 3)
    assert "Trial 0 failed: Its worker died." in (tmp_path / TABLE_FILE).read_text()
    assert comparison(log).endswith("trial 0, the recipe itself, did not finish.")
    again = run(tmp_path)
    assert states(again) == ["finished"] * 8
    assert again.trials[0].failures == 3


def test_trials_whose_time_runs_out_are_left_and_a_longer_search_goes_on(tmp_path: Path) -> None:
    short = with_scheduler("none", minutes=1e-9)
    assert states(run(tmp_path, short)) == []

    def slower(settings: Mapping[str, float], report: Report) -> Outcome:
        if settings["critic_rollouts"] != 10:
            report(json.dumps([{"decisions": 100, "merit": 0.1}]), 0.0)
        return by_entropy(settings, report)

    def late(message: str, _share: float) -> None:
        if message == "trial 0: finished":
            runner._began_s -= 3600.0

    hour = with_scheduler("none", minutes=60.0)
    runner = Runner(
        Study(tmp_path, hour, seed=3, identity="abc"),
        slower,
        hour,
        report=late,
        store=lambda: None,
    )
    runner.run(InThisProcess(at_once=2))
    log = Study(tmp_path, hour, seed=3, identity="abc").log
    assert states(log) == ["finished", "out of time"]
    assert log.spent_s >= 3600.0
    assert states(run(tmp_path, hour)) == ["finished", "out of time"], "the hour is over"
    assert states(run(tmp_path)) == ["finished"] * 8


def test_what_cannot_go_on_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(SearchError, match=r"is of a search of another space.*--out"):
        Study(tmp_path, SPACE, seed=3, identity="another")
    (tmp_path / JOURNAL_FILE).write_text('{"identity": 3}\n')
    with pytest.raises(SearchError, match=rf"{JOURNAL_FILE} cannot be read: .*--out"):
        Study(tmp_path, SPACE, seed=3, identity="abc")
    (tmp_path / JOURNAL_FILE).unlink()
    with pytest.raises(SearchError, match=r"begun by an older version, with Ray Tune.*--out"):
        Study(tmp_path, SPACE, seed=3, identity="abc")


def finished(number: int, merit: float, fresh: float) -> Trial:
    return Trial(
        number=number,
        settings={"learning_rate": 1e-3 * (number + 1), "n_epochs": 3},
        state="finished",
        judgements=(Judgement(decisions=100, merit=0.1), Judgement(decisions=200, merit=merit)),
        worth=Worth(merit=merit, low=merit - 0.1, fresh_merit=fresh, fresh_low=fresh - 0.1),
        seconds=12.0,
    )


def log_of(*trials: Trial) -> TrialLog:
    stopped = Trial(
        number=2,
        settings={"learning_rate": 2e-3, "n_epochs": 4},
        state="stopped early",
        judgements=(Judgement(decisions=100, merit=0.9),),
    )
    return TrialLog(identity="abc", trials=(*trials, stopped))


def test_only_a_trial_that_made_all_decisions_can_be_the_best() -> None:
    best = log_of(finished(0, 0.3, 0.31), finished(1, 0.4, 0.29)).best()
    assert best is not None
    assert best.number == 1


def test_the_first_of_equally_good_trials_is_the_best() -> None:
    best = log_of(finished(0, 0.3, 0.3), finished(1, 0.3, 0.3)).best()
    assert best is not None
    assert best.number == 0


def test_the_table_has_the_best_first() -> None:
    headers, rows = table(log_of(finished(0, 0.3, 0.31), finished(1, 0.4, 0.29)))
    assert headers[:3] == ["trial", "learning_rate", "n_epochs"]
    assert [row[0] for row in rows] == ["1", "0", "2"]
    assert rows[0] == ["1", "0.002", "3", "finished", "200", "0.400", "0.300", "0.290", "12"]


def test_the_table_has_all_digits_of_a_whole_number() -> None:
    settings = {"batch_size": 16_384, "learning_rate": 1.23456e-3, "n_epochs": 3}
    one = replace(finished(0, 0.3, 0.31), settings=settings)
    _, rows = table(TrialLog(identity="abc", trials=(one,)))
    assert rows[0][1:4] == ["16,384", "0.001235", "3"]


def test_whether_a_trial_beat_the_recipe_is_said() -> None:
    def said(fresh: float) -> str:
        return comparison(log_of(finished(0, 0.3, 0.31), finished(1, 0.4, fresh)))

    assert "On fresh nodes it is not better, 0.290 and 0.310" in said(0.29)
    assert "On fresh nodes it is better, 0.410 and 0.310" in said(0.41)
    itself = comparison(log_of(finished(0, 0.3, 0.31), finished(1, 0.2, 0.9)))
    assert itself.startswith("No trial was better than trial 0")
    assert comparison(TrialLog(identity="abc")) == "No trial has finished."
    assert TRIALS_FILE == "trials.json"
