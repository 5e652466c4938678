"""Jobs in parallel: results are in order, errors come through, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from jobs_one_by_one import check_one_by_one
from planted_modules import plant, without_python_settings

from stallward.training.errors import DatasetError, WorkerError
from stallward.training.parallel.executor import Job, time_for_each
from stallward.training.parallel.local_processes import LOCAL, LocalProcesses
from stallward.training.progress import Report, silent

RECORDINGS = Path(__file__).parents[3] / "recordings"


def _square(number: int, report: Report) -> tuple[int, int]:
    report(f"job {number}", 0.5)
    report(f"job {number}", 1.0)
    return number * number, os.getpid()


def _fail(report: Report) -> tuple[int, int]:
    raise DatasetError("This one cannot be done.", next_step="Do another.")


def _break(report: Report) -> tuple[int, int]:
    raise ZeroDivisionError("a bug")


def _die(report: Report) -> tuple[int, int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0, 0


def _report_forever(report: Report) -> tuple[int, int]:
    while True:
        report("x" * 200, 0.5)


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order_and_reports_cover_all_jobs(workers: int) -> None:
    reports: list[tuple[str, float]] = []
    kept: dict[int, int] = {}
    jobs = [Job(f"{n} squared", partial(_square, n)) for n in range(4)]
    results = LocalProcesses(workers).run(
        jobs,
        lambda *report: reports.append(report),
        keep=lambda number, result: kept.update({number: result[0]}),
    )
    assert kept == {0: 0, 1: 1, 2: 4, 3: 9}
    assert [square for square, _ in results] == [0, 1, 4, 9]
    assert ({pid for _, pid in results} == {os.getpid()}) == (workers == 1)
    assert sorted({message for message, _ in reports}) == [f"job {n}" for n in range(4)]
    shares = [share for _, share in reports]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_users_mistake_comes_through_with_its_next_step(workers: int) -> None:
    jobs = [Job("one squared", partial(_square, 1)), Job("a failure", _fail)]
    with pytest.raises(DatasetError) as caught:
        LocalProcesses(workers).run(jobs, silent)
    assert str(caught.value) == "This one cannot be done. Do another."


def test_a_worker_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in os.environ.keys() - without_python_settings().keys():
        monkeypatch.delenv(name)
    jobs = [Job(f"{n} squared", partial(_square, n)) for n in (2, 3)]
    results = LocalProcesses(2).run(jobs, silent)
    assert [square for square, _ in results] == [4, 9]
    assert not mark.exists(), mark.read_text()
    assert "PYTHONSAFEPATH" not in os.environ, "only while a worker is started"


def test_a_bug_in_a_job_says_where_it_was_raised() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        LocalProcesses(2).run([Job("a bug", _break), Job("a bug", _break)], silent)
    assert "in _break" in caught.value.__notes__[0]


def test_the_death_of_a_worker_ends_the_others_even_while_they_report() -> None:
    began_s = time.monotonic()
    jobs = [Job("reports", _report_forever), Job("its death", _die)]
    with pytest.raises(WorkerError, match="worked on its death ended with status -9"):
        LocalProcesses(2).run(jobs, silent)
    assert time.monotonic() - began_s < 30.0
    assert not [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())]


def test_every_worker_ignores_ctrl_c_from_the_start(tmp_path: Path) -> None:
    script = tmp_path / "masks.py"
    script.write_text(
        "import signal\n"
        "from stallward.training.parallel.executor import Job\n"
        "from stallward.training.parallel.local_processes import LocalProcesses\n"
        "def job(report):\n"
        "    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())\n"
        "if __name__ == '__main__':\n"
        "    print(LocalProcesses(2).run([Job('mask', job)] * 2, lambda *_: None))\n"
        "    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[True, True]\nFalse\n"


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_fit_that_is_interrupted_leaves_no_process_and_no_traceback(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    recordings = [str(p) for p in sorted(RECORDINGS.glob("detector-[ap]*-none-s1"))]
    assert len(recordings) == 2
    program = "import sys; from stallward.evaluation.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "fit", *recordings]
    with subprocess.Popen(
        [*command, "--seconds", "100", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        tree = psutil.Process(process.pid)
        deadline_s = time.monotonic() + 60.0
        while len(tree.children()) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        children = tree.children()
        time.sleep(1.0)
        os.killpg(process.pid, number)  # as a terminal does
        _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert not psutil.wait_procs(children, timeout=5.0)[1]


def test_workers_are_at_most_jobs_and_processors_and_rounds_share_the_time() -> None:
    many = LOCAL.workers(10_000)
    assert LOCAL.workers(1) == 1
    assert 1 <= many <= (os.cpu_count() or 1)
    assert LocalProcesses(3).workers(10_000) == 3
    assert time_for_each(60.0, 0, LOCAL) == 60.0
    assert time_for_each(60.0, 1, LOCAL) == 60.0
    assert time_for_each(60.0, many, LOCAL) == 60.0
    assert time_for_each(60.0, many + 1, LOCAL) == 30.0


def test_what_is_done_is_kept_when_a_later_job_fails() -> None:
    kept: list[int] = []
    jobs = [Job("one squared", partial(_square, 1)), Job("a failure", _fail)]
    with pytest.raises(DatasetError):
        LocalProcesses(1).run(jobs, silent, keep=lambda number, _: kept.append(number))
    assert kept == [0]


@pytest.mark.slow
def test_single_jobs_are_started_and_ended_while_others_are_in_flight() -> None:
    check_one_by_one(LocalProcesses(2))
