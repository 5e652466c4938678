"""What becomes of a run whose Ray vanishes in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import save_fitted
from stallward.training.errors import ClusterError
from stallward.training.parallel.executor import Job
from stallward.training.parallel.ray_cluster import open_ray
from stallward.training.progress import Report, silent

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
    pytest.mark.slow,
    pytest.mark.ray,
    # Ray leaves it to the end of the process to wait for its own processes, and to close files.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def _nap(seconds: float, _report: Report) -> float:
    time.sleep(seconds)
    return seconds


def test_a_ray_that_is_shut_down_in_the_middle_is_named_and_what_is_done_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray  # noqa: PLC0415 - only where it is installed

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    kept: dict[int, float] = {}

    def keep(number: int, result: float) -> None:
        kept[number] = result
        ray.shutdown()

    with open_ray("local") as executor:
        from ray import cloudpickle  # noqa: PLC0415

        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        jobs = [Job("a nap", partial(_nap, 0.1)), Job("a long one", partial(_nap, 600.0))]
        with pytest.raises(ClusterError, match=r"was lost.*is kept; the same command goes on"):
            executor.run(jobs, silent, keep=keep)
        assert not ray.is_initialized(), "Ray started another one"
    assert kept == {0: 0.1}


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
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    with subprocess.Popen(
        [sys.executable, "-c", program, command, *words, *options],
        env={**environment, "TMPDIR": str(tmp_path)},  # too long for the sockets
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
        names = [_command_line(child) for child in children]
        if sum("ray::run_job" in name or "ray::ImplicitFunc" in name for name in names) == 2:
            return children
        time.sleep(0.2)
    raise AssertionError("no job was started")


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
