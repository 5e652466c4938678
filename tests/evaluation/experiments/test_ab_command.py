"""``stallward ab plan``, from recordings to a number of pairs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stallward.actuator.experiments.plan import ExperimentPlan
from stallward.env.recording.recording import Requests, Units, write_recording
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.evaluation.cli import ab, main
from stallward.proto.v1 import stallward_pb2 as pb

MINUTES = 20


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """A run of 20 minutes whose latencies change from minute to minute."""
    path, length_s = tmp_path / "node", 60.0 * MINUTES
    rng = np.random.default_rng(1)
    level = np.exp(rng.normal(0.0, 0.2, MINUTES))
    scheduled = np.arange(0.0, length_s, 0.05)
    latency_s = 0.005 * level[(scheduled // 60.0).astype(int)]
    write_recording(
        path,
        run=RunInfo(
            scenario="x",
            condition="together",
            arm="partition",
            seed=1,
            start_s=0.0,
            end_s=length_s,
            burn_in_s=0.0,
            sandbox_bytes=1 << 29,
            slo_ms=30.0,
            node=NodeInfo(kind="none", kernel="test", cpu_count=2, memory_total_bytes=1 << 33),
            slot_names=("a",),
        ),
        ticks=[pb.TickRecord(sequence=i, time_s=float(i)) for i in range(60 * MINUTES + 1)],
        requests=Requests(
            scheduled_s=scheduled,
            start_s=scheduled,
            end_s=scheduled + latency_s,
            ok=np.ones(scheduled.size, dtype=bool),
        ),
        units=Units.empty(),
    )
    return str(path)


def test_a_plan_says_how_many_pairs_and_how_long(
    recorded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["ab", "plan", recorded, "--effect", "-0.2", "--burn-in-seconds", "10"]
    assert main([*arguments, "--block-seconds", "50"]) == 0
    text = capsys.readouterr().out
    assert "-20 % of block-p99" in text
    assert "10 pairs" in text
    assert main([*arguments, "--block-seconds", "50", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert 0.1 < answer["spread"]["spread"] < 0.5
    assert answer["measure"] == "block-p99"
    assert 6 <= answer["pairs"]["fixed_pairs"] <= answer["pairs"]["sequential_pairs"]


def test_the_burn_in_follows_from_the_mixing_time(
    recorded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ab", "plan", recorded, "--block-seconds", "30", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert 10.0 < answer["mixing_s"] < 120.0
    assert answer["burn_in_s"] == np.ceil(1.5 * answer["mixing_s"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--measure", "p50"], "'p50' is not a measure"),
        (["--effect", "0"], "An effect of 0 cannot be shown"),
        (["--measure", "work", "--burn-in-seconds", "0"], "known work are too few"),
        (["--block-seconds", "600"], "are too few to plan by"),
    ],
)
def test_mistakes_are_said(
    recorded: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ab", "plan", recorded, *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "least"),
    [
        (["--pairs", "5"], 6),
        (["--pairs", "6"], None),
        (["--pairs", "4", "--stop-when-certain"], 5),
        (["--pairs", "5", "--stop-when-certain"], None),
    ],
)
def test_a_number_of_pairs_that_can_show_nothing_is_named(
    options: list[str],
    least: int | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started: list[ExperimentPlan] = []
    client = SimpleNamespace(experiments=SimpleNamespace(start=started.append))
    monkeypatch.setattr(ab, "connect", lambda _: nullcontext(client))
    assert main(["ab", "start", *options]) == 0
    assert [plan.pairs for plan in started] == [int(options[1])]
    said = f"With fewer than {least} pairs no difference is certain, however large.\n"
    assert capsys.readouterr().err == (said if least else "")


def test_a_treatment_is_for_the_node_whatever_folder_is_called_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[ExperimentPlan] = []
    client = SimpleNamespace(experiments=SimpleNamespace(start=started.append))
    monkeypatch.setattr(ab, "connect", lambda _: nullcontext(client))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-node").mkdir()
    (tmp_path / "new.onnx").touch()
    assert main(["ab", "start", "--baseline", "new.onnx", "--treatment", "my-node"]) == 0
    (plan,) = started
    assert plan.treatment.policy == "my-node"
    assert plan.baseline.policy == str(tmp_path / "new.onnx")
