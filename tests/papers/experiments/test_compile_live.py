"""A compilation in a real sandbox, alone and under a heuristic, with a real daemon."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stallward.evaluation.arms import Arm
from stallward.papers.experiments.batch_session import open_batch_session
from stallward.papers.experiments.compile.steps import MIB, Compilation, MemorySize

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("make"), reason="no gcc"),
    pytest.mark.reaches(
        "actuator/stallward/actuator/",
        "env/stallward/env/workloads/",
        "env/stallward/env/scenario/",
    ),
]
SMALL_TREE = (
    "{python}", "-m", "stallward.env.workloads.jobs.compile_tree", "{data}/tree",
    "--files", "3", "--functions", "8",
)  # fmt: skip
SIZE = MemorySize(zone_mib=64)


def test_it_compiles_within_its_memory_and_says_what_it_took(tmp_path: Path) -> None:
    with open_batch_session(
        slots=1, zone_bytes=256 * MIB, prepare=(SMALL_TREE,), cache_dir=tmp_path
    ) as session:
        for spec in ("none", "ws-pressure"):
            arm = Arm(label=spec, spec=spec)
            result = session.run(SIZE, {0: Compilation()}, arm=arm, seed=1)
            assert 0.0 < result.response_s[0] < 300.0
            # The copy of the compiler was evicted, so somebody read it from the disk.
            assert result.machine.disk_bytes > 4 * MIB
            assert result.machine.major_faults > 0
            assert result.peaks[0].memory_bytes > 8 * MIB
            assert session.sandbox.zone.pids(recursive=True) == ()
