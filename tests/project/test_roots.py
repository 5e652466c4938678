"""With other roots given, nothing of this machine is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from child_path import python_path

TESTS = Path(__file__).parents[1] / "actuator"

READS_A_NODE = """
import os, sys
from pathlib import Path
from test_lacking import FakeNode
from stallward.actuator.doctor.doctor import examine
from stallward.actuator.node.node import Node

fake = FakeNode(Path(sys.argv[1]), sys.argv[2])
config = fake.config()
opened = []
watching = True

def watch(event, arguments):
    if watching and event in {"open", "os.listdir", "os.scandir"}:
        path = arguments[0]
        path = os.fsdecode(path) if isinstance(path, (bytes, str, os.PathLike)) else ""
        if path.startswith(("/proc", "/sys", "/run")):
            opened.append(path)

sys.addaudithook(watch)
findings = examine(config.node.paths, config).findings
node = Node(config, lambda *_: None)
node.sampler.needs_processes = node.sampler.needs_threads = True
node.read(1, 1.0)
node.release(2.0)
node.close()
watching = False
print(len(findings), *opened)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["v2", "hybrid"])
def test_nothing_of_this_machine_is_read_when_other_roots_are_given(
    tmp_path: Path, kind: str
) -> None:
    """All sensors and levers are opened, a sample is read, and everything is let go."""
    done = subprocess.run(
        [sys.executable, "-c", READS_A_NODE, str(tmp_path), kind],
        env={**os.environ, "PYTHONPATH": python_path(TESTS, TESTS / "node")},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    findings, *opened = done.stdout.split()
    assert int(findings) > 10
    assert opened == []
