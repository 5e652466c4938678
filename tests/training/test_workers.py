"""Work side by side: in order, reported together, and its errors come through."""

from __future__ import annotations

import os
from functools import partial

import pytest

from stallward.training.workers import Job, Report, side_by_side, worker_count


def _square(number: int, report: Report) -> tuple[int, int]:
    report(f"job {number}", 0.5)
    report(f"job {number}", 1.0)
    return number * number, os.getpid()


def _fail(report: Report) -> tuple[int, int]:
    raise ValueError("this one cannot be done")


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order_and_reports_are_of_the_whole(workers: int) -> None:
    heard: list[tuple[str, float]] = []
    jobs = [partial(_square, n) for n in range(4)]
    found = side_by_side(jobs, lambda *said: heard.append(said), workers=workers)
    assert [square for square, _ in found] == [0, 1, 4, 9]
    assert ({pid for _, pid in found} == {os.getpid()}) == (workers == 1)
    assert sorted({message for message, _ in heard}) == [f"job {n}" for n in range(4)]
    shares = [share for _, share in heard]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_through(workers: int) -> None:
    jobs: list[Job[tuple[int, int]]] = [partial(_square, 1), _fail]
    with pytest.raises(ValueError, match="cannot be done"):
        side_by_side(jobs, lambda *_: None, workers=workers)


def test_there_are_no_more_workers_than_jobs_or_processors() -> None:
    assert worker_count(1) == 1
    assert 1 <= worker_count(10_000) <= (os.cpu_count() or 1)
