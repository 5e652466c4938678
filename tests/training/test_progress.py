"""Long steps report their progress while they run."""

from __future__ import annotations

import time

import pytest

from stallward.training.progress import part, timed


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_timed_step_reports_while_it_runs_and_not_after() -> None:
    reports: list[tuple[str, float]] = []
    report = part(lambda message, share: reports.append((message, share)), 0.5, 1.0)
    with timed(report, "block", 2.0):
        time.sleep(1.3)
    assert reports[0] == ("block", 0.5)
    assert reports[-1][1] > 0.7, "half of the step had passed, in the second half of the whole"
    count = len(reports)
    time.sleep(1.1)
    assert len(reports) == count


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_step_that_takes_longer_than_expected_is_not_done() -> None:
    reports: list[float] = []
    with timed(lambda _message, share: reports.append(share), "block", 0.1):
        time.sleep(1.1)
    assert reports[-1] < 1.0
