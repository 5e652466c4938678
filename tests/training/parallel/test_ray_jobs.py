"""Jobs on a real Ray of two workers end as in local processes, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import jobs_one_by_one
import pytest
from shared_ray import MARKS

from stallward.training.errors import ClusterError, DatasetError, WorkerError
from stallward.training.parallel.executor import Job
from stallward.training.parallel.ray_cluster import open_ray
from stallward.training.progress import Report, silent

if TYPE_CHECKING:
    from stallward.training.parallel.ray_tasks import RayTasks

pytest_plugins = ("shared_ray",)
pytestmark = [*MARKS, pytest.mark.usefixtures("by_value"), pytest.mark.reaches()]


def _square(number: int, report: Report) -> int:
    report(f"job {number}", 0.5)
    return number * number


def _meet(number: int, folder: Path, report: Report) -> tuple[int, int]:
    """Wait until another job has begun and the report has come; returns square and process."""
    (folder / str(number)).touch()
    while len(list(folder.glob("?"))) < 2:
        time.sleep(0.02)
    square = _square(number, report)
    while not (folder / f"job {number}").exists():
        time.sleep(0.02)
    return square, os.getpid()


def test_results_come_in_order_from_two_workers_and_are_kept_at_once(
    on_ray: RayTasks, tmp_path: Path
) -> None:
    kept: dict[int, int] = {}
    results = on_ray.run(
        [Job(f"{n} squared", partial(_meet, n, tmp_path)) for n in range(4)],
        lambda message, _: (tmp_path / message).touch(),
        keep=lambda number, result: kept.update({number: result[0]}),
    )
    assert [square for square, _ in results] == [0, 1, 4, 9]
    assert kept == {0: 0, 1: 1, 2: 4, 3: 9}
    workers = {pid for _, pid in results}
    assert os.getpid() not in workers
    assert len(workers) == 2
    assert {path.name for path in tmp_path.glob("job *")} == {f"job {n}" for n in range(4)}
    assert (on_ray.workers(1), on_ray.workers(9)) == (1, 2)


def _fail(_report: Report) -> int:
    raise DatasetError("This one cannot be done.", next_step="Do another.")


def _break(_report: Report) -> int:
    raise ZeroDivisionError("a bug")


def test_errors_come_through_as_from_local_processes(on_ray: RayTasks) -> None:
    with pytest.raises(DatasetError) as mistake:
        on_ray.run([Job("one squared", partial(_square, 1)), Job("a failure", _fail)], silent)
    assert str(mistake.value) == "This one cannot be done. Do another."
    with pytest.raises(ZeroDivisionError) as bug:
        on_ray.run([Job("a bug", _break)], silent)
    assert "in _break" in bug.value.__notes__[0]


def _die(folder: Path, _report: Report) -> None:
    (folder / f"{os.getpid()}").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_job_whose_workers_always_die_ends_with_its_name(
    on_ray: RayTasks, tmp_path: Path
) -> None:
    with pytest.raises(WorkerError, match="The worker of seed 7 died: ") as caught:
        on_ray.run([Job("seed 7", partial(_die, tmp_path))], silent)
    assert caught.value.__notes__ == ["It was tried 3 times."]
    assert len(list(tmp_path.iterdir())) == 3


def test_workers_with_other_versions_are_refused(
    on_ray: RayTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "stallward.training.parallel.ray_tasks"
    monkeypatch.setattr(f"{module}.versions_here", lambda: {"numpy": "0.1"})
    with pytest.raises(WorkerError, match=r"numpy .* and not 0\.1.*same image"):
        on_ray.run([Job("one squared", partial(_square, 1))], silent)


def test_files_that_another_node_lacks_are_named(on_ray: RayTasks, tmp_path: Path) -> None:
    elsewhere = replace(on_ray, shares_files=False)
    job = Job("the fit", partial(_square, 1), (tmp_path / "recording",))
    with pytest.raises(WorkerError, match=r"recording, which the fit reads"):
        elsewhere.run([job], silent)


def test_a_worker_imports_nothing_from_the_current_folder(
    on_ray: RayTasks, tmp_path: Path
) -> None:
    paths = on_ray.run([Job("its path", lambda _: list(sys.path))], silent)[0]
    assert "" not in paths
    assert os.getcwd() not in paths  # noqa: PTH109 - as it stands in sys.path


def test_single_jobs_are_started_and_ended_while_others_are_in_flight(on_ray: RayTasks) -> None:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(jobs_one_by_one)
    jobs_one_by_one.check_one_by_one(on_ray)


CONNECTS = """
import sys
from stallward.training.parallel.executor import Job
from stallward.training.parallel.ray_cluster import open_ray
def job(report):
    return 6 * 7
if sys.argv[2]:
    import ray
    ray.__version__ = sys.argv[2]
with open_ray(sys.argv[1]) as executor:
    print(executor.shares_files, executor.run([Job("it", job)] * 3, lambda *_: None))
"""


def _connect(address: str, ray_version: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CONNECTS, address, ray_version],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def address(on_ray: RayTasks) -> str:
    import ray

    del on_ray
    return str(ray.get_runtime_context().gcs_address)


def test_another_process_uses_a_cluster_by_its_address(on_ray: RayTasks, address: str) -> None:
    done = _connect(address)
    assert done.stdout == "False [42, 42, 42]\n", done.stderr
    results = on_ray.run([Job("2 squared", partial(_square, 2))], silent)
    assert results == [4], "the cluster did not end with it"


def test_a_process_with_a_ray_of_its_own_is_not_connected_to_a_cluster(address: str) -> None:
    with pytest.raises(ClusterError, match=r"has used a Ray of its own.*in another process"):
        open_ray(address).__enter__()


def test_another_version_of_ray_is_refused(address: str) -> None:
    done = _connect(address, "1.0.0")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"{ClusterError.__module__}.ClusterError: The Ray cluster at {address}")
    assert "same versions of Ray and Python" in last


SHUT_DOWN = """
import json, sys, time
import ray
from stallward.training.errors import ClusterError
from stallward.training.parallel.executor import Job
from stallward.training.parallel.ray_cluster import open_ray

kept = {}

def keep(number, result):
    kept[number] = result
    ray.shutdown()

def nap(seconds):
    def job(report):
        time.sleep(seconds)
        return seconds
    return job

with open_ray(sys.argv[1]) as executor:
    try:
        jobs = [Job("a nap", nap(0.1)), Job("a long one", nap(600.0))]
        executor.run(jobs, lambda *_: None, keep=keep)
    except ClusterError as error:
        seen = {"error": str(error), "another": ray.is_initialized(), "kept": kept}
print(json.dumps(seen))
"""


def test_a_process_that_disconnects_in_the_middle_names_the_cluster_and_keeps_what_is_done(
    address: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHUT_DOWN, address],
        capture_output=True,
        text=True,
        check=False,
        timeout=300.0,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert re.search(r"was lost.*is kept; the same command goes on", seen["error"])
    assert not seen["another"], "Ray started another one"
    assert seen["kept"] == {"0": 0.1}
