"""The cost of a sample is measured on real groups, all of which are removed afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.benchmarks.errors import BenchError
from stallward.benchmarks.sample_cost import sample_cost_ms

pytestmark = pytest.mark.reaches("actuator/stallward/actuator/")


def groups_of(pid: int) -> list[Path]:
    """Return the groups of the measuring process."""
    roots = detect(Paths()).roots
    return [path for root in roots for path in root.glob(f"stallward/{pid}-*")]


@pytest.mark.parametrize(("cgroups", "processes"), [(2, 5), (4, 2)])
def test_too_few_groups_or_processes_are_refused(cgroups: int, processes: int) -> None:
    with pytest.raises(BenchError, match="cannot be measured"):
        sample_cost_ms(cgroups, processes)


@pytest.mark.live
def test_a_sample_of_real_groups_is_measured_and_they_are_removed() -> None:
    cost = sample_cost_ms(5, 12, samples=5)
    assert (cost.cgroups, cost.processes) == (5, 12)
    assert 0 < cost.p50_ms <= cost.p99_ms
    assert groups_of(os.getpid()) == []


MEASURE = """
from stallward.benchmarks.sample_cost import sample_cost_ms
sample_cost_ms(5, 12, samples=10_000_000)
"""


@pytest.mark.live
def test_a_killed_measurement_leaves_no_group_and_no_process() -> None:
    with subprocess.Popen([sys.executable, "-c", MEASURE]) as process:
        try:
            _await(lambda: len(_pids(process.pid)) >= 12)
            pids = _pids(process.pid)
        finally:
            process.send_signal(signal.SIGKILL)
    _await(lambda: groups_of(process.pid) == [])
    _await(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def _pids(owner: int) -> set[int]:
    node = detect(Paths())
    names = {path.name for path in groups_of(owner)}
    groups = [Cgroup(name=f"stallward/{name}", hierarchy=node) for name in names]
    return {pid for group in groups for pid in group.pids(recursive=True)}


def _await(condition: object) -> None:
    assert callable(condition)
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
