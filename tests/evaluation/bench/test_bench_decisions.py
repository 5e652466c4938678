"""The cost of decisions is measured for every controller that decides in the loop."""

from __future__ import annotations

import json

import pytest

from stallward.evaluation.bench.decisions import arms_without_files
from stallward.evaluation.cli import main


def test_every_controller_without_a_file_is_measured() -> None:
    arms = arms_without_files().split(",")
    assert {"none", "partition", "parties", "systemd-oomd", "rule", "pi"} <= set(arms)
    assert not {"ppo", "onnx", "mpc", "remote"} & set(arms)


def test_the_cost_of_a_decision_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["bench", "decisions", "--arms", "none,earlyoom", "--ticks", "10"]
    assert main([*options, "--json"]) == 0
    none, earlyoom = json.loads(capsys.readouterr().out)
    assert (none["arm"], none["needs_processes"]) == ("none", False)
    assert earlyoom["needs_processes"]
    assert 0.0 < earlyoom["p50_us"] <= earlyoom["p99_us"]
    assert main(options) == 0
    assert "earlyoom" in capsys.readouterr().out


def test_an_arm_that_decides_by_a_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decisions", "--arms", "ppo"]) == 2
    assert "decides by a file" in capsys.readouterr().err
