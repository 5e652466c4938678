"""The plan of the shipped recordings, and strict reading of plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.env.scenario_file import load_scenario
from stallward.evaluation.errors import PlanError, UsageError
from stallward.evaluation.record import RecordRequest, load_plan


def test_the_shipped_plan_has_enough_of_everything() -> None:
    runs = load_plan(None)
    together = [run for run in runs if run.condition == "together"]
    assert len([run for run in together if run.seconds >= 60.0]) >= 24
    assert len({run.scenario for run in runs}) >= 4
    assert len({run.arm for run in together}) >= 5
    assert {"none", "excite", "latd"} <= {run.arm for run in together}
    assert len({run.name for run in runs}) == len(runs), "two runs share a directory"
    for scenario in {run.scenario for run in runs}:
        load_scenario(scenario)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("runs = [", "cannot be read"),
        ("second = 60\nruns = []", "unknown key 'second'"),
        ("seconds = 60", "lacks a key"),
        ('[[runs]]\nscenario = "x"\narm = "none"', "unknown key 'arm'"),
        ('[[runs]]\narms = ["none"]', "lacks a key"),
        ('seconds = "long"\n[[runs]]\nscenario = "x"\narms = ["none"]', "wrong type"),
    ],
)
def test_plans_with_mistakes_are_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(PlanError, match=says):
        load_plan(path)


def test_a_run_has_one_arm_and_a_known_condition() -> None:
    with pytest.raises(UsageError, match="several arms"):
        RecordRequest(scenario="x", arm="none,latd")
    with pytest.raises(UsageError, match="no condition"):
        RecordRequest(scenario="x", condition="lonely")
