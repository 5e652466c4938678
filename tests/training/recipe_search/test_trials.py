"""The log of a search survives the disk, and its table says who is best."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.training.errors import SearchError
from stallward.training.recipe_search.table import TABLE_FILE, comparison, table, write_table
from stallward.training.recipe_search.trials import (
    TRIALS_FILE,
    Judgement,
    Trial,
    TrialLog,
    Worth,
    load_log,
    number_of,
    save_log,
)


def finished(number: int, merit: float, fresh: float) -> Trial:
    return Trial(
        number=number,
        settings={"learning_rate": 1e-3 * (number + 1), "n_epochs": 3},
        state="finished",
        judgements=(Judgement(decisions=100, merit=0.1), Judgement(decisions=200, merit=merit)),
        worth=Worth(merit=merit, low=merit - 0.1, fresh_merit=fresh, fresh_low=fresh - 0.1),
        seconds=12.0,
    )


STOPPED = Trial(
    number=2,
    settings={"learning_rate": 2e-3, "n_epochs": 4},
    state="stopped early",
    judgements=(Judgement(decisions=100, merit=0.9),),
)
FAILED = Trial(
    number=3,
    settings={"learning_rate": 3e-3, "n_epochs": 2},
    state="failed",
    failures=3,
    error="the worker died",
)
LOG = TrialLog(
    identity="abc",
    spent_s=30.0,
    trials=(finished(0, 0.3, 0.31), finished(1, 0.4, 0.29), STOPPED, FAILED),
)


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert load_log(tmp_path) is None
    save_log(tmp_path, LOG)
    assert load_log(tmp_path) == LOG
    assert [path.name for path in tmp_path.iterdir()] == [TRIALS_FILE]


def test_a_damaged_log_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / TRIALS_FILE).write_text('{"identity": 3}')
    with pytest.raises(SearchError, match=TRIALS_FILE):
        load_log(tmp_path)


def test_only_a_trial_that_made_all_decisions_can_be_the_best() -> None:
    best = LOG.best()
    assert best is not None
    assert best.number == 1


def test_the_first_of_equally_good_trials_is_the_best() -> None:
    log = TrialLog(identity="abc", trials=(finished(0, 0.3, 0.3), finished(1, 0.3, 0.3)))
    best = log.best()
    assert best is not None
    assert best.number == 0


def test_a_trial_replaces_what_was_known_of_it() -> None:
    log = LOG.with_trial(finished(3, 0.2, 0.2))
    assert [trial.number for trial in log.trials] == [0, 1, 2, 3]
    assert log.trials[3].state == "finished"


def test_the_table_has_the_best_first_and_the_errors_below(tmp_path: Path) -> None:
    headers, rows = table(LOG)
    assert headers[:3] == ["trial", "learning_rate", "n_epochs"]
    assert [row[0] for row in rows] == ["1", "0", "2", "3"]
    write_table(tmp_path, LOG)
    text = (tmp_path / TABLE_FILE).read_text()
    assert "| 1 | 0.002 | 3 | finished | 200 | 0.400 | 0.300 | 0.290 | 12 |" in text
    assert "Trial 3 failed: the worker died" in text


def test_whether_a_trial_beat_the_recipe_is_said() -> None:
    assert "On fresh nodes it is not better, 0.290 and 0.310" in comparison(LOG)
    better = LOG.with_trial(finished(1, 0.4, 0.41))
    assert "On fresh nodes it is better, 0.410 and 0.310" in comparison(better)
    itself = LOG.with_trial(finished(1, 0.2, 0.9))
    assert comparison(itself).startswith("No trial was better than trial 0")
    assert comparison(TrialLog(identity="abc")) == "No trial has finished."


def test_the_number_of_a_trial_is_the_end_of_its_name() -> None:
    assert number_of("1d9f8_00012") == 12
