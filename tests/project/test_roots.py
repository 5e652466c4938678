"""With other roots given, nothing of this machine is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

LOOKS_AROUND = """
import os, sys
from dataclasses import replace
from pathlib import Path
from around_the_guardian import config_in
from stallward.actuator.doctor.doctor import examine
from stallward.actuator.config.daemon_config import NodeConfig
from stallward.actuator.kernel.paths import Paths

folder = Path(sys.argv[1])
own = Paths(proc=folder / "proc", cgroup=folder / "cgroup", sys=folder / "sys")
config = config_in(folder, node=NodeConfig.at(own, zone="z"))
opened = []
watching = True

def watch(event, arguments):
    if watching and event in {"open", "os.listdir", "os.scandir"}:
        path = arguments[0]
        path = os.fsdecode(path) if isinstance(path, (bytes, str, os.PathLike)) else ""
        if path.startswith(("/proc", "/sys", "/run")):
            opened.append(path)

sys.addaudithook(watch)
findings = examine(own, config).findings
watching = False
print(len(findings), *opened)
"""


def test_nothing_of_this_machine_is_read_when_other_roots_are_given(tmp_path: Path) -> None:
    """All sensors and levers are opened, on roots that are almost empty."""
    for name in ("proc", "cgroup", "sys"):
        (tmp_path / name).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", LOOKS_AROUND, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests/actuator")},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    findings, *opened = done.stdout.split()
    assert int(findings) > 10
    assert opened == []
