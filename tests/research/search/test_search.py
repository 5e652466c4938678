"""A search in processes of this machine: interrupted, and with a worker killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from in_this_process import InThisProcess

from stallward.agent.errors import UsageError
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import save_fitted
from stallward.research.search.search import RECIPE_FILE, Found, search_recipes
from stallward.research.search.space import load_space, recipe_of
from stallward.research.search.trials import TABLE_FILE, TRIALS_FILE
from stallward.training.parallel.choose import kept_at
from stallward.training.parallel.executor import Executor
from stallward.training.parallel.local_processes import LocalProcesses
from stallward.training.ppo.recipe import read_recipe
from stallward.training.progress import Report, silent

pytestmark = [pytest.mark.slow, pytest.mark.reaches("evaluation/stallward/evaluation/cli")]

SPACE = """
[settings]
learning_rate = { low = 3e-4, high = 3e-3, logarithmic = true }
n_epochs = { values = [2, 3] }

[recipe]
n_envs = 64
n_steps = 16
batch_size = 256
critic_rollouts = 1

[budget]
trials = 3
decisions = 4096

[scheduler]
kind = "none"  # which trials asha stops depends on which are faster
judgements = 2
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A space of short trainings, and a small twin."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "space.toml").write_text(SPACE)
    save_fitted(folder / "small.json", small_twin())
    return folder / "space.toml", str(folder / "small.json")


def searched(
    files: tuple[Path, str], out: Path, executor: Executor, report: Report = silent
) -> Found:
    space, twin = files
    return search_recipes(
        load_space(space),
        [twin],
        out=out,
        judged_on=[twin],
        synthetic=0,
        executor=executor,
        report=report,
    )


@pytest.fixture(scope="module")
def searched_at_once(files: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The search without an interruption, in this process."""
    return searched(files, tmp_path_factory.mktemp("once") / "out", InThisProcess())


def same(one: Found, other: Found) -> bool:
    """Whether two searches tried the same, and found the same."""
    return all(
        (a.settings, a.judgements, a.worth) == (b.settings, b.judgements, b.worth)
        for a, b in zip(one.log.trials, other.log.trials, strict=True)
    )


def states(out: Path) -> list[str]:
    """What has become of the trials so far; the file is replaced as a whole."""
    file = out / TRIALS_FILE
    return (
        [one["state"] for one in json.loads(file.read_text()).get("trials", [])]
        if file.exists()
        else []
    )


def test_an_interrupted_search_goes_on_elsewhere_and_a_killed_worker_is_tried_again(
    searched_at_once: Found, files: tuple[Path, str], tmp_path: Path
) -> None:
    storage, here, there = f"file://{tmp_path / 'storage'}", tmp_path / "here", tmp_path / "there"
    program = "import sys; from stallward.evaluation.cli import main; sys.exit(main(sys.argv[1:]))"
    space, twin = files
    options = ["--composed", "0", "--twin", twin, "--judged-on", twin, "--out", str(here)]
    with subprocess.Popen(
        [sys.executable, "-c", program, "search", str(space), *options, "--storage", storage],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline_s = time.monotonic() + 240.0
        while "finished" not in states(here):
            assert time.monotonic() < deadline_s
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert not (here / RECIPE_FILE).exists()
    before = json.loads((here / TRIALS_FILE).read_text())["trials"]

    killed: list[int] = []

    def kill_once(message: str, _share: float) -> None:
        if "merit" in message and not killed:
            below = psutil.Process().children(recursive=True)
            killed.extend(one.pid for one in below if "spawn_main" in " ".join(one.cmdline()))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with kept_at(storage, there):
        found = searched(files, there, LocalProcesses(2), kill_once)
    assert killed
    assert sum(trial.failures for trial in found.log.trials) >= 1
    assert same(found, searched_at_once)
    kept = [one["number"] for one in before if one["state"] == "finished"]
    assert [found.log.trials[n].seconds for n in kept] == [before[n]["seconds"] for n in kept]
    assert found.log.trials[0].settings == {"learning_rate": 1e-3, "n_epochs": 3}
    best = found.log.best()
    assert best is not None
    assert [judgement.decisions for judgement in best.judgements] == [2048, 4096]
    assert read_recipe(found.recipe) == recipe_of(load_space(space), best.settings)
    assert "| 0 | 0.001 | 3 | finished | 4,096 |" in (there / TABLE_FILE).read_text()
    assert len(json.loads((tmp_path / "storage" / TRIALS_FILE).read_text())["trials"]) == 3


def test_a_directory_of_something_else_is_refused(files: tuple[Path, str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match="exists already"):
        searched(files, tmp_path, LocalProcesses(1))
