"""``stallward profile`` in a real sandbox."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from stallward.agent.profile import read_profile
from stallward.evaluation.cli import main

pytestmark = [pytest.mark.live, pytest.mark.reaches]

MIB = 1 << 20
# Holds 96 MiB, and uses 32 of them again and again until its work is done.
PROGRAM = """
held = bytearray(96 << 20)
for place in range(0, len(held), 4096):
    held[place] = 1
for _ in range(8000):
    sum(held[: 32 << 20 : 4096])
"""


def test_a_command_needs_less_than_it_holds(tmp_path: Path) -> None:
    out = tmp_path / "held.json"
    arguments = ["--limits", "0.7,0.35", "--refine", "0", "--slower", "5", "--seconds", "20"]
    command = [sys.executable, "-c", PROGRAM]
    assert (
        main(["profile", *arguments, "--ample-mib", "512", "--out", str(out), "--", *command]) == 0
    )
    profile = read_profile(out)
    assert profile.alone_peak_bytes > 96 * MIB
    assert profile.working_set_bytes <= 0.75 * profile.alone_peak_bytes
    assert profile.anonymous_bytes > profile.file_bytes
    assert profile.alone_s is not None
    assert [run.ample for run in profile.runs].count(True) == 1
    tight = profile.runs[-1]
    assert tight.peak_bytes <= tight.limit_bytes
    assert tight.peak_swap_bytes > 16 * MIB
    assert profile.fault_cost_us is not None


def test_a_command_that_fails_is_not_profiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "no.json"
    command = [sys.executable, "-c", "raise SystemExit('no data')"]
    assert main(["profile", "--out", str(out), "--", *command]) == 2
    assert "ended with status 1 too early. It wrote: no data" in capsys.readouterr().err
    assert not out.exists()


def test_a_group_of_a_scenario_is_profiled_by_its_work(tmp_path: Path) -> None:
    out = tmp_path / "anon-a.json"
    arguments = ["--scenario", "detector-anon", "--slot", "anon-a", "--seconds", "3"]
    limits = ["--burn-in-seconds", "2", "--limits", "0.4", "--refine", "0"]
    assert main(["profile", *arguments, *limits, "--out", str(out), "--json"]) == 0
    content = json.loads(out.read_text())
    assert (content["application"], content["work"]) == ("anon-a", "unit")
    ample, tight = content["runs"]
    assert ample["s_per_work"] > 0.0
    assert tight["slowdown"] > 1.0
    assert tight["read_back_pages"] > 1000
