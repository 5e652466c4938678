"""A comparison is resumed only with the same files behind the same names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stallward.env.scenario.file import load_scenario
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.blocks.store import BlockStore
from stallward.evaluation.comparison.request import ComparisonRequest, arm_files, settings_of
from stallward.evaluation.errors import PlanError
from stallward.models.registry import find_policy, find_thresholds


def request(out: Path, arms: str) -> ComparisonRequest:
    return ComparisonRequest(
        scenario="detector-anon",
        arms=parse_arms(arms),
        mode="live",
        rounds=1,
        block_s=6.0,
        burn_in_s=0.0,
        seed=1,
        out=out,
    )


def test_changed_thresholds_make_another_comparison(tmp_path: Path) -> None:
    file = tmp_path / "rule.toml"
    shutil.copy(find_thresholds("rule"), file)
    planned = request(tmp_path / "out", f"none,rule:path={file}")
    scenario = load_scenario("detector-anon")
    BlockStore(planned.out, settings_of(planned, scenario, {}))
    BlockStore(planned.out, settings_of(planned, scenario, {}))  # with the same settings
    file.write_text(file.read_text() + "\n# tuned again\n")
    with pytest.raises(PlanError):
        BlockStore(planned.out, settings_of(planned, scenario, {}))


def test_every_arm_that_runs_a_file_names_it(tmp_path: Path) -> None:
    arms = request(tmp_path, "none,rule,rule#2,pi,ppo").arms
    policy = find_policy()
    assert arm_files(arms, {"none": None, "ppo": policy}) == {
        "rule": find_thresholds("rule"),
        "rule#2": find_thresholds("rule"),
        "pi": find_thresholds("pi"),
        "ppo": policy,
    }
