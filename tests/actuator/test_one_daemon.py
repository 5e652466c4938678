"""Kernel settings are the machine's: one daemon at a time tunes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stallward.actuator.errors import DaemonError
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.locks import claim_node

OTHER = """
import sys
from pathlib import Path
from stallward.actuator.runtime.locks import claim_node
from stallward.actuator.kernel.paths import Paths
claim_node(Paths(proc=Path(sys.argv[1])))
print("claimed", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_second_daemon_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    (tmp_path / "sys/vm").mkdir(parents=True)
    paths = Paths(proc=tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(DaemonError, match="Another stallward daemon runs"):
            claim_node(paths)
        other.kill()
        other.wait()
    for fd in claim_node(paths):
        os.close(fd)
    assert list((tmp_path / "sys/vm").iterdir()) == [], "nothing is left behind"


def test_a_node_without_kernel_settings_needs_no_claim(tmp_path: Path) -> None:
    assert claim_node(Paths(proc=tmp_path)) == ()
