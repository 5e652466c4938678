"""A cluster of two nodes, of which one is taken away while it works."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from shared_ray import MARKS, without_ray

from stallward.training.parallel.executor import Job
from stallward.training.parallel.ray_cluster import open_ray
from stallward.training.progress import Report

pytestmark = [*MARKS, pytest.mark.reaches()]


@contextmanager
def _cluster() -> Iterator[Any]:
    """A cluster whose head does no work."""
    from ray.cluster_utils import Cluster

    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_TMPDIR", folder)
        head = {"num_cpus": 0, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            yield made
        finally:
            made.shutdown()


def _where(folder: Path, name: str, report: Report) -> str:
    """Say on which node this job runs, if that is not the one that will be taken away."""
    import ray

    node = str(ray.get_runtime_context().get_node_id())
    with (folder / name).open("a") as tries:
        tries.write(f"{node}\n")
    report("working", 0.5)
    while not all((folder / path).exists() for path in ("one", "two")):
        time.sleep(0.02)
    if (folder / "taken").read_text() == node:
        time.sleep(600.0)
    return node


def _take_one_away(folder: Path) -> None:
    """Run two jobs, take the node of one away, and write down what became of them."""
    import ray.cloudpickle

    messages: list[str] = []
    with _cluster() as cluster:
        both = [cluster.add_node(num_cpus=1) for _ in range(2)]
        cluster.wait_for_nodes()
        with open_ray(cluster.address) as executor:
            ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
            workers = executor.workers(9)
            mine = ray.get_runtime_context().get_node_id()
            taken = next(node for node in both if node.node_id != mine)
            (folder / "taken").write_text(taken.node_id)

            def take_away() -> None:
                while not all((folder / name).exists() for name in ("one", "two")):
                    time.sleep(0.02)
                cluster.remove_node(taken, allow_graceful=False)

            taker = Thread(target=take_away, daemon=True)
            taker.start()
            nodes = executor.run(
                [Job(name, partial(_where, folder, name)) for name in ("one", "two")],
                lambda message, _: messages.append(message),
            )
            taker.join()
    seen = {"workers": workers, "nodes": nodes, "taken": taken.node_id, "messages": messages}
    (folder / "seen.json").write_text(json.dumps(seen))


def test_the_jobs_of_a_node_that_is_taken_away_are_done_by_another(tmp_path: Path) -> None:
    # A process that has used a Ray of its own, as those of other tests, cannot use a cluster.
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        env=without_ray(),
        capture_output=True,
        text=True,
        timeout=540.0,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["workers"] == 2
    assert seen["nodes"][0] == seen["nodes"][1] != seen["taken"]
    tries = sorted(len((tmp_path / name).read_text().split()) for name in ("one", "two"))
    assert tries == [1, 2], "what ran on the other node ran once"
    assert [m for m in seen["messages"] if "it is tried again" in m]


if __name__ == "__main__":
    _take_one_away(Path(sys.argv[1]))
