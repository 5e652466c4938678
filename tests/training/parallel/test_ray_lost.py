"""What becomes of a run whose Ray vanishes in the middle."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from shared_ray import MARKS, command_line, without_ray

from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import save_fitted
from stallward.training.errors import ClusterError
from stallward.training.parallel.executor import Job
from stallward.training.parallel.ray_cluster import open_ray
from stallward.training.progress import Report, silent

pytestmark = [*MARKS, pytest.mark.reaches("evaluation/stallward/evaluation/cli")]


def _nap(seconds: float, _report: Report) -> float:
    time.sleep(seconds)
    return seconds


def _shut_down_in_the_middle() -> None:
    """Run two jobs, shut Ray down when the first is done, and say what became of them."""
    import ray  # noqa: PLC0415 - only where it is installed

    kept: dict[int, float] = {}

    def keep(number: int, result: float) -> None:
        kept[number] = result
        ray.shutdown()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        with open_ray("local") as executor:
            jobs = [Job("a nap", partial(_nap, 0.1)), Job("a long one", partial(_nap, 600.0))]
            with pytest.raises(ClusterError) as caught:
                executor.run(jobs, silent, keep=keep)
            seen = {"error": str(caught.value), "another": ray.is_initialized(), "kept": kept}
    sys.stdout.write(json.dumps(seen))


def test_a_ray_that_is_shut_down_in_the_middle_is_named_and_what_is_done_is_kept() -> None:
    done = subprocess.run(
        [sys.executable, __file__],
        env=without_ray(),
        capture_output=True,
        text=True,
        timeout=300.0,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert re.search(r"was lost.*is kept; the same command goes on", seen["error"])
    assert not seen["another"], "Ray started another one"
    assert seen["kept"] == {"0": 0.1}


SPACE = """
[settings]
n_epochs = { values = [2, 3] }

[recipe]
n_envs = 64
n_steps = 16
batch_size = 256
critic_rollouts = 1

[budget]
trials = 2
decisions = 4096000

[scheduler]
kind = "none"
judgements = 2
"""


@pytest.mark.parametrize(
    ("command", "gone"), [("train", "raylet"), ("train", "gcs_server"), ("search", "raylet")]
)
def test_a_command_whose_ray_is_killed_in_the_middle_ends_with_its_name(
    command: str, gone: str, tmp_path: Path
) -> None:
    twin, out, space = tmp_path / "small.json", tmp_path / "run", tmp_path / "space.toml"
    save_fitted(twin, small_twin())
    space.write_text(SPACE)
    words = {
        "train": ["--seeds", "2", "--ray", "local"],
        "search": [str(space), "--judged-on", str(twin), "--ray", "local"],
    }[command]
    program = "import sys; from stallward.evaluation.cli import main; sys.exit(main(sys.argv[1:]))"
    options = ["--twin", str(twin), "--out", str(out), "--composed", "0"]
    with subprocess.Popen(
        [sys.executable, "-c", program, command, *words, *options],
        env={**without_ray(), "TMPDIR": str(tmp_path)},  # too long for the sockets
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            children = _wait_for_work(process)
            for child in children:
                if child.name() == gone:
                    child.kill()
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 2, errors
    assert "Traceback" not in errors
    assert "The Ray cluster at " in errors
    assert "the same command goes on" in errors
    assert not psutil.wait_procs(children, timeout=10.0)[1]
    assert list(Path("/tmp").glob(f"stallward-ray-{process.pid}-*")) == []


def _wait_for_work(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes below a command, once its jobs run on Ray."""
    deadline_s = time.monotonic() + 120.0
    while time.monotonic() < deadline_s:
        assert process.poll() is None, process.communicate()
        children = psutil.Process(process.pid).children(recursive=True)
        names = [command_line(child) for child in children]
        if sum("ray::run_job" in name or "ray::ImplicitFunc" in name for name in names) == 2:
            return children
        time.sleep(0.2)
    raise AssertionError("no job was started")


if __name__ == "__main__":
    _shut_down_in_the_middle()
