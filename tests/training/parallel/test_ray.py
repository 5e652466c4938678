"""A real Ray of two worker processes gives what local processes give, whatever dies meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from stallward.env.testing import small_twin
from stallward.training.errors import ClusterError, DatasetError, WorkerError
from stallward.training.network.arrays import POLICY_FILE
from stallward.training.parallel.executor import Job
from stallward.training.parallel.local_processes import IN_THIS_PROCESS, LOCAL
from stallward.training.parallel.ray_cluster import open_ray
from stallward.training.ppo.args import Args
from stallward.training.ppo.train import train
from stallward.training.progress import Report, silent
from stallward.training.synthetic_scenarios import SyntheticScenarioSettings
from stallward.training.tuning.search import tune
from stallward.training.tuning.settings import TuneSettings

if TYPE_CHECKING:
    from stallward.training.parallel.ray_tasks import RayTasks

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
    pytest.mark.slow,
    pytest.mark.ray,
    # Ray leaves it to the end of the process to wait for its own processes, and to close files.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

TWIN = small_twin()
BRIEF = Args(
    composing=SyntheticScenarioSettings(per_twin=0),
    total_steps=2048,
    n_envs=64,
    n_steps=16,
    batch_size=256,
    evaluation_episodes=8,
    seeds=2,
)


@pytest.fixture(scope="module")
def on_ray() -> Iterator[RayTasks]:
    """Jobs on a Ray of this machine, which all tests of this file share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        with open_ray("local") as executor:
            from ray import cloudpickle  # noqa: PLC0415 - it takes a second to import

            # The workers cannot import this file.
            cloudpickle.register_pickle_by_value(sys.modules[__name__])
            yield executor


def _square(number: int, report: Report) -> tuple[int, int]:
    report(f"job {number}", 0.5)
    time.sleep(1.0)
    return number * number, os.getpid()


def test_results_come_in_order_from_two_workers_and_are_kept_at_once(on_ray: RayTasks) -> None:
    reports: list[tuple[str, float]] = []
    kept: dict[int, int] = {}
    results = on_ray.run(
        [Job(f"{n} squared", partial(_square, n)) for n in range(4)],
        lambda *report: reports.append(report),
        keep=lambda number, result: kept.update({number: result[0]}),
    )
    assert [square for square, _ in results] == [0, 1, 4, 9]
    assert kept == {0: 0, 1: 1, 2: 4, 3: 9}
    workers = {pid for _, pid in results}
    assert os.getpid() not in workers
    assert len(workers) == 2
    assert {message for message, _ in reports} == {f"job {n}" for n in range(4)}
    assert (on_ray.workers(1), on_ray.workers(9)) == (1, 2)


def _fail(_report: Report) -> tuple[int, int]:
    raise DatasetError("This one cannot be done.", next_step="Do another.")


def _break(_report: Report) -> tuple[int, int]:
    raise ZeroDivisionError("a bug")


def test_errors_come_through_as_from_local_processes(on_ray: RayTasks) -> None:
    with pytest.raises(DatasetError) as mistake:
        on_ray.run([Job("one squared", partial(_square, 1)), Job("a failure", _fail)], silent)
    assert str(mistake.value) == "This one cannot be done. Do another."
    with pytest.raises(ZeroDivisionError) as bug:
        on_ray.run([Job("a bug", _break)], silent)
    assert "in _break" in bug.value.__notes__[0]


def _die_at_first(folder: Path, report: Report) -> str:
    report("working", 0.5)
    attempts = len(list(folder.iterdir()))
    (folder / f"{os.getpid()}").touch()
    while not attempts:
        time.sleep(0.1)  # until the test kills this process
    return f"done at attempt {attempts + 1}"


def test_a_job_whose_worker_is_killed_in_the_middle_is_tried_again(
    on_ray: RayTasks, tmp_path: Path
) -> None:
    messages: list[str] = []

    def kill() -> None:
        while not (started := list(tmp_path.iterdir())):
            time.sleep(0.1)
        os.kill(int(started[0].name), signal.SIGKILL)

    killer = Thread(target=kill)
    killer.start()
    jobs: list[Job[Any]] = [
        Job("3 squared", partial(_square, 3)),
        Job("the victim", partial(_die_at_first, tmp_path)),
    ]
    square, victim = on_ray.run(jobs, lambda message, _: messages.append(message))
    killer.join()
    assert (square[0], victim) == (9, "done at attempt 2")
    assert "the victim: its worker died; it is tried again" in messages


def _die(folder: Path, _report: Report) -> None:
    (folder / f"{os.getpid()}").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_job_whose_workers_always_die_ends_with_its_name(
    on_ray: RayTasks, tmp_path: Path
) -> None:
    with pytest.raises(WorkerError, match="The worker of seed 7 died 3 times"):
        on_ray.run([Job("seed 7", partial(_die, tmp_path))], silent)
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


@dataclass
class _Killing:
    """Kills the process that works on a job as soon as that tells its progress."""

    executor: RayTasks
    killed: int = 0

    @property
    def shares_files(self) -> bool:
        return True

    def workers(self, jobs: int) -> int:
        return self.executor.workers(jobs)

    def run(self, jobs, report, *, keep=None):  # type: ignore[no-untyped-def]
        def kill(message: str, share: float) -> None:
            report(message, share)
            if not self.killed and "decisions" in message:
                for process in psutil.Process().children(recursive=True):
                    if "ray::run_job" in " ".join(process.cmdline()):
                        self.killed = process.pid
                        process.kill()
                        return

        return self.executor.run(jobs, kill, keep=keep)


def policies(folder: Path) -> list[bytes]:
    return [(folder / f"seeds/{seed}" / POLICY_FILE).read_bytes() for seed in (1, 2)]


def test_the_same_policies_as_locally_although_a_worker_is_killed_in_the_middle(
    on_ray: RayTasks, tmp_path: Path
) -> None:
    long = replace(BRIEF, total_steps=64 * 16 * 6)
    here = train([TWIN], long, folder=tmp_path / "here", executor=LOCAL)
    killing = _Killing(on_ray)
    there = train([TWIN], long, folder=tmp_path / "there", executor=killing)
    assert killing.killed
    assert policies(tmp_path / "there") == policies(tmp_path / "here")
    assert there.evaluation == here.evaluation
    assert there.policy.provenance["merits"] == here.policy.provenance["merits"]
    assert list((tmp_path / "there/tensorboard").rglob("events*"))


def test_an_interrupted_training_goes_on_with_the_seeds_that_are_missing(
    on_ray: RayTasks, tmp_path: Path
) -> None:
    train([TWIN], replace(BRIEF, seeds=1), folder=tmp_path / "one", executor=on_ray)
    messages: list[str] = []
    result = train(
        [TWIN],
        BRIEF,
        lambda message, _: messages.append(message),
        folder=tmp_path / "one",
        executor=on_ray,
    )
    assert result.policy.provenance["seeds"] == [1, 2]
    assert not any(message.startswith("seed 1") for message in messages)
    train([TWIN], BRIEF, folder=tmp_path / "two", executor=IN_THIS_PROCESS)
    assert policies(tmp_path / "one") == policies(tmp_path / "two")


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


def test_a_worker_imports_nothing_from_the_current_folder(
    on_ray: RayTasks, tmp_path: Path
) -> None:
    paths = on_ray.run([Job("its path", lambda _: list(sys.path))], silent)[0]
    assert "" not in paths
    assert os.getcwd() not in paths  # noqa: PTH109 - as it stands in sys.path


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
    import ray  # noqa: PLC0415 - only where it is installed

    del on_ray
    return str(ray.get_runtime_context().gcs_address)


def test_another_process_uses_a_cluster_by_its_address(on_ray: RayTasks, address: str) -> None:
    done = _connect(address)
    assert done.stdout == "False [42, 42, 42]\n", done.stderr
    results = on_ray.run([Job("2 squared", partial(_square, 2))], silent)
    assert results[0][0] == 4, "the cluster did not end with it"


def test_a_process_with_a_ray_of_its_own_is_not_connected_to_a_cluster(address: str) -> None:
    with pytest.raises(ClusterError, match=r"has used a Ray of its own.*in another process"):
        open_ray(address).__enter__()


def test_another_version_of_ray_is_refused(address: str) -> None:
    done = _connect(address, "1.0.0")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"{ClusterError.__module__}.ClusterError: The Ray cluster at {address}")
    assert "same versions of Ray and Python" in last


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_no_process_and_no_folder(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    program = "import sys; from stallward.evaluation.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "tune", "rule", "--seeds", "2", "--ray", "local"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "rule.toml")],
        env={**environment, "TMPDIR": str(tmp_path)},  # too long for the sockets
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        tree = psutil.Process(process.pid)
        deadline_s = time.monotonic() + 90.0
        while not _working(children := tree.children(recursive=True)):
            assert time.monotonic() < deadline_s
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        os.killpg(process.pid, number)  # as a terminal does
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()  # where it did not end, this test is not to wait for it
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert not psutil.wait_procs(children, timeout=5.0)[1]
    assert list(tmp_path.iterdir()) == []
    assert list(Path("/tmp").glob(f"stallward-ray-{process.pid}-*")) == []


def _working(processes: list[psutil.Process]) -> bool:
    for process in processes:
        try:
            if "ray::run_job" in " ".join(process.cmdline()):
                return True
        except psutil.NoSuchProcess:
            continue
    return False
