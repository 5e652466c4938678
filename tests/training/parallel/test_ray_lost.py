"""What becomes of a command whose own Ray vanishes, or that is interrupted: nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from shared_ray import MARKS, without_ray

from stallward.training.parallel.ray_tasks import LOOK_EVERY_S, MOST_SILENT

pytestmark = [*MARKS, pytest.mark.reaches()]

NAPPING = """
import os, signal, sys, time
from stallward.training.errors import ClusterError
from stallward.training.parallel import ray_cluster, ray_tasks
from stallward.training.parallel.executor import Job

class Terminated(BaseException):
    pass

def terminate(*_):
    raise Terminated  # as the handler of a command does

def nap(report):
    report("napping", 0.5)
    time.sleep(600.0)

signal.signal(signal.SIGTERM, terminate)
os.sched_getaffinity = lambda _: {0, 1}
ray_tasks.LOOK_EVERY_S = 0.5
ray_cluster._ENDING_S = 1.0
try:
    with ray_cluster.open_ray("local") as executor:
        executor.run([Job("a nap", nap)] * 2, lambda *_: print("napping", flush=True))
except ClusterError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)
except Terminated:
    sys.exit(143)
"""
"""Runs two long jobs on a Ray of its own, and says so when they run."""


@contextmanager
def napping(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, once its jobs run."""
    with subprocess.Popen(
        [sys.executable, "-c", NAPPING],
        env={**without_ray(), "TMPDIR": str(folder)},  # too long for the sockets
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            for _ in range(2):
                assert process.stdout.readline() == "napping\n", process.communicate()
            yield process
        finally:
            process.kill()  # where it did not end, this test is not to wait for it


def nothing_is_left(process: subprocess.Popen[str], children: list[psutil.Process]) -> bool:
    """Whether the program has left neither a process nor a folder."""
    _, alive = psutil.wait_procs(children, timeout=10.0)
    return not alive and not list(Path("/tmp").glob(f"stallward-ray-{process.pid}-*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_no_process_and_no_folder(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with napping(tmp_path) as process:
        children = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, number)  # as a terminal does
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert errors == ""
    assert nothing_is_left(process, children)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("gone", ["raylet", "gcs_server"])
def test_a_command_whose_ray_is_killed_in_the_middle_ends_with_its_name(
    gone: str, tmp_path: Path
) -> None:
    with napping(tmp_path) as process:
        children = psutil.Process(process.pid).children(recursive=True)
        killed = [child for child in children if child.name() == gone]
        for child in killed:
            child.kill()
        _, errors = process.communicate(timeout=120)
    assert killed
    assert process.returncode == 2, errors
    assert errors.startswith("The Ray cluster at ")
    assert errors.endswith("the same command goes on.\n")
    assert errors.count("\n") == 1
    assert nothing_is_left(process, children)


def test_a_command_gives_up_before_ray_would_end_it() -> None:
    assert LOOK_EVERY_S * MOST_SILENT <= 20.0, "Ray ends a process without a word after 60 s"
