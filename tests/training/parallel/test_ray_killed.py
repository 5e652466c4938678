"""The one test on a real Ray that every run has: a worker is killed in the middle of a job."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from shared_ray import MARKS

from stallward.training.parallel.executor import Job
from stallward.training.progress import Report

if TYPE_CHECKING:
    from stallward.training.parallel.ray_tasks import RayTasks

pytest_plugins = ("shared_ray",)
pytestmark = [*MARKS, pytest.mark.usefixtures("by_value")]


def _square(number: int, _report: Report) -> int:
    return number * number


def _die_at_first(folder: Path, report: Report) -> str:
    report("working", 0.5)
    attempts = len(list(folder.iterdir()))
    (folder / f"{os.getpid()}").touch()
    if not attempts:
        time.sleep(600.0)  # until the test kills this process
    return f"done at attempt {attempts + 1}"


def test_a_job_whose_worker_is_killed_in_the_middle_is_tried_again(
    on_ray: RayTasks, tmp_path: Path
) -> None:
    messages: list[str] = []

    def kill() -> None:
        while not (started := list(tmp_path.iterdir())):
            time.sleep(0.02)
        os.kill(int(started[0].name), signal.SIGKILL)

    killer = Thread(target=kill)
    killer.start()
    jobs: list[Job[Any]] = [
        Job("3 squared", partial(_square, 3)),
        Job("the victim", partial(_die_at_first, tmp_path)),
    ]
    square, victim = on_ray.run(jobs, lambda message, _: messages.append(message))
    killer.join()
    assert (square, victim) == (9, "done at attempt 2")
    assert "the victim: its worker died; it is tried again" in messages
