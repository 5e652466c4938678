"""Training and tuning on a real Ray of two workers give what this process gives by itself."""

from __future__ import annotations

import os
import signal
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from brief_training import BRIEF, TWO_SEEDS
from shared_ray import MARKS

from stallward.env.testing import small_twin
from stallward.training.parallel.executor import Session
from stallward.training.parallel.local_processes import IN_THIS_PROCESS
from stallward.training.ppo.saved import load_policy
from stallward.training.ppo.train import train
from stallward.training.progress import Report
from stallward.training.tuning.search import tune
from stallward.training.tuning.settings import TuneSettings

if TYPE_CHECKING:
    from stallward.training.parallel.ray_tasks import RayTasks

pytest_plugins = ("shared_ray",)
pytestmark = [*MARKS, pytest.mark.usefixtures("by_value"), pytest.mark.reaches()]

TWIN = small_twin()


def _until_killed(work: Any, folder: Path, report: Report) -> Any:
    """Do a job, but at the first try only as far as its first decisions."""

    def tell(message: str, share: float) -> None:
        if "decisions" in message and not any(folder.iterdir()):
            (folder / f"{os.getpid()}").touch()
            report(message, share)
            time.sleep(600.0)  # until the test kills this process
        report(message, share)

    return work(tell)


@dataclass
class _Killing:
    """Kills the process of the first job in the middle of it."""

    executor: RayTasks
    folder: Path
    messages: list[str] = field(default_factory=list)

    @property
    def shares_files(self) -> bool:
        return True

    def workers(self, jobs: int) -> int:
        return self.executor.workers(jobs)

    def open(self) -> AbstractContextManager[Session]:
        return self.executor.open()

    def run(self, jobs, report, *, keep=None):  # type: ignore[no-untyped-def]
        killed: set[str] = set()

        def kill(message: str, share: float) -> None:
            report(message, share)
            self.messages.append(message)
            for started in {path.name for path in self.folder.iterdir()} - killed:
                killed.add(started)
                os.kill(int(started), signal.SIGKILL)

        first = replace(jobs[0], work=partial(_until_killed, jobs[0].work, self.folder))
        return self.executor.run([first, *jobs[1:]], kill, keep=keep)


def policies(folder: Path) -> list[dict[str, bytes]]:
    """The weights of both seeds, to the bit."""
    found = [load_policy(folder / f"seeds/{seed}").parameters for seed in (1, 2)]
    return [{name: array.tobytes() for name, array in one.items()} for one in found]


def test_a_training_that_was_interrupted_gives_the_same_policies_although_a_worker_is_killed(
    on_ray: RayTasks, tmp_path: Path
) -> None:
    here = train([TWIN], TWO_SEEDS, folder=tmp_path / "here", executor=IN_THIS_PROCESS)
    (tmp_path / "killed").mkdir()
    killing = _Killing(on_ray, tmp_path / "killed")
    train([TWIN], BRIEF, folder=tmp_path / "there", executor=killing)
    assert "seed 1: its worker died; it is tried again" in killing.messages
    messages: list[str] = []
    there = train(
        [TWIN],
        TWO_SEEDS,
        lambda message, _: messages.append(message),
        folder=tmp_path / "there",
        executor=on_ray,
    )
    assert not any(message.startswith("seed 1") for message in messages)
    assert policies(tmp_path / "there") == policies(tmp_path / "here")
    assert there.evaluation == here.evaluation
    assert there.policy.provenance["seeds"] == [1, 2]
    assert there.policy.provenance["merits"] == here.policy.provenance["merits"]
    assert list((tmp_path / "there/tensorboard").rglob("events*"))


def test_a_search_finds_the_same_thresholds_as_locally(on_ray: RayTasks) -> None:
    settings = TuneSettings(
        total_steps=25_000,
        episodes=16,
        seconds=4.0,
        evaluation_episodes=16,
        evaluation_seconds=4.0,
        finalists=2,
        seeds=2,
        judged_episodes=16,
    )
    assert tune("rule", [TWIN], settings, executor=on_ray) == tune(
        "rule", [TWIN], settings, executor=IN_THIS_PROCESS
    )
