"""A search on a real Ray of two workers: interrupted, gone on with, and with a worker killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from shared_ray import MARKS, command_line

from stallward.agent.errors import UsageError
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import save_fitted
from stallward.training.errors import SearchError
from stallward.training.parallel.choose import kept_at
from stallward.training.pipeline import search as pipeline
from stallward.training.pipeline.search import Found, search_recipes
from stallward.training.ppo.recipe import read_recipe
from stallward.training.progress import Report, silent
from stallward.training.recipe_search.space import Space, load_space, recipe_of
from stallward.training.recipe_search.table import TABLE_FILE
from stallward.training.recipe_search.trials import load_log

if TYPE_CHECKING:
    from stallward.training.parallel.ray_tasks import RayTasks

pytest_plugins = ("shared_ray",)
pytestmark = [
    *MARKS,
    pytest.mark.usefixtures("on_ray"),
    pytest.mark.reaches("evaluation/stallward/evaluation/cli"),
]

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
def twin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a small twin."""
    file = tmp_path_factory.mktemp("twin") / "small.json"
    save_fitted(file, small_twin())
    return str(file)


@pytest.fixture(scope="module")
def space_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A space of short trainings."""
    file = tmp_path_factory.mktemp("space") / "space.toml"
    file.write_text(SPACE)
    return file


@pytest.fixture
def space(space_file: Path) -> Space:
    """The same, as it is read."""
    return load_space(space_file)


def searched(
    space: Space,
    twin: str,
    out: Path,
    report: Report = silent,
    store: Callable[[], None] = lambda: None,
) -> Found:
    return search_recipes(
        space,
        [twin],
        out=out,
        judged_on=[twin],
        synthetic=0,
        report=report,
        store=store,
    )


@pytest.fixture(scope="module")
def searched_at_once(
    space_file: Path, twin: str, on_ray: RayTasks, tmp_path_factory: pytest.TempPathFactory
) -> Found:
    """The same search without an interruption."""
    return searched(load_space(space_file), twin, tmp_path_factory.mktemp("once") / "out")


def workers() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "ray::ImplicitFunc" in command_line(child)]


def interrupted(
    space_file: Path, twin: str, out: Path, *options: str, number: signal.Signals = signal.SIGINT
) -> int:
    """Search by the command, and interrupt it when the first trial is over."""
    program = "import sys; from stallward.evaluation.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "search", str(space_file), "--composed", "0"]
    with subprocess.Popen(
        [*command, "--twin", twin, "--judged-on", twin, "--out", str(out), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline_s = time.monotonic() + 240.0
        while not ((log := load_log(out)) and log.over()):
            assert time.monotonic() < deadline_s
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        os.killpg(process.pid, number)  # as a terminal does
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
        assert "Traceback" not in errors
    return process.returncode


def test_an_interrupted_search_goes_on_elsewhere_and_a_killed_worker_is_tried_again(
    searched_at_once: Found, space_file: Path, twin: str, tmp_path: Path
) -> None:
    space, storage = load_space(space_file), f"file://{tmp_path / 'storage'}"
    here, there = tmp_path / "here", tmp_path / "there"
    assert interrupted(space_file, twin, here, "--storage", storage) == 130
    before = load_log(here)
    assert before is not None
    assert not (here / pipeline.RECIPE_FILE).exists()
    killed: list[int] = []

    def kill_once(message: str, _share: float) -> None:
        number = re.match(r"trial (\d+)", message)
        if number and int(number[1]) not in before.over() and not killed:
            killed.extend(worker.pid for worker in workers())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with kept_at(storage, there) as store:
        found = searched(space, twin, there, kill_once, store)
    after = found.log.over()
    assert {number: after[number] for number in before.over()} == before.over(), "it ran again"
    assert killed
    assert sum(trial.failures for trial in after.values()) >= 1
    assert after[0].settings == {"learning_rate": 1e-3, "n_epochs": 3}
    for trial, expected in zip(found.log.trials, searched_at_once.log.trials, strict=True):
        assert trial.settings == expected.settings
        assert trial.judgements == expected.judgements
        assert trial.worth == expected.worth
        assert [j.decisions for j in trial.judgements] == [2048, 4096]
    best = found.log.best()
    assert best is not None
    assert read_recipe(found.recipe) == recipe_of(space, best.settings)
    assert "| 0 | 0.001 | 3 | finished | 4,096 |" in (there / TABLE_FILE).read_text()
    stored = json.loads((tmp_path / "storage" / "trials.json").read_text())
    assert len(stored["trials"]) == 3


def test_a_search_on_a_cluster_ends_by_sigterm_and_the_cluster_stays(
    searched_at_once: Found, space_file: Path, twin: str, tmp_path: Path
) -> None:
    import ray  # noqa: PLC0415 - only where it is installed

    out = tmp_path / "out"
    address = str(ray.get_runtime_context().gcs_address)
    code = interrupted(space_file, twin, out, "--ray", address, number=signal.SIGTERM)
    assert code == 143
    before = load_log(out)
    assert before is not None
    assert 0 < len(before.over()) < 3
    after = searched(load_space(space_file), twin, out).log
    assert [trial.worth for trial in after.trials] == [
        trial.worth for trial in searched_at_once.log.trials
    ]


def test_another_space_and_a_damaged_state_are_refused(
    searched_at_once: Found, space: Space, twin: str
) -> None:
    out = searched_at_once.recipe.parent
    with pytest.raises(SearchError, match="of another space"):
        searched(replace(space, budget=replace(space.budget, trials=9)), twin, out)
    (state,) = (out / "tune").glob("experiment_state-*.json")
    state.write_text(state.read_text()[:100])
    with pytest.raises(SearchError, match=f"{state.name} cannot be read.*Remove"):
        searched(space, twin, out)


def test_a_search_whose_time_runs_out_says_so(space: Space, twin: str, tmp_path: Path) -> None:
    short = replace(space, budget=replace(space.budget, minutes=0.001))
    with pytest.raises(SearchError, match=r"No trial finished in budget\.minutes = 0\.001"):
        searched(short, twin, tmp_path / "out")


def test_what_fails_in_every_trial_is_the_error_of_the_search(
    space: Space, twin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "versions_here", lambda: {"Python": "2.7.18"})
    two = replace(space, budget=replace(space.budget, trials=2))
    with pytest.raises(SearchError, match=r"No trial finished; 2 failed.*has Python"):
        searched(two, twin, tmp_path / "out")
    log = load_log(tmp_path / "out")
    assert log is not None
    assert [(t.state, t.failures) for t in log.trials] == [("failed", 3), ("failed", 3)]


def test_a_directory_of_something_else_is_refused(space: Space, twin: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match="exists already"):
        searched(space, twin, tmp_path)
