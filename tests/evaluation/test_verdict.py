"""The verdict: what it runs and in which order, and what it makes of known comparisons."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallward.env.scenario_file import load_scenario
from stallward.env.split import load_split
from stallward.evaluation import verdict
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.compare import ComparisonRequest
from stallward.evaluation.errors import EvaluationError, PlanError
from stallward.evaluation.measure import BlockMeasures
from stallward.evaluation.oracle import Setting
from stallward.evaluation.plan import write_json
from stallward.evaluation.summary import summarise
from stallward.evaluation.verdict import load_verdict, run_verdict, static_best
from stallward.evaluation.verdict_figures import FIGURES, judge, verdict_rows
from stallward.evaluation.verdict_plan import VerdictPlan, load_verdict_plan

LEVELS = {
    # condition: latency in ms, units of two groups per second
    "alone": (10.0, ()),
    "ample": (11.0, (10.0, 2.0)),
    "background": (1.0, (10.0, 2.0)),
    "latd": (12.0, (4.0, 0.8)),
    "rule": (12.0, (5.0, 1.0)),
    "ppo": (11.5, (6.0, 1.2)),
    "static:limit=0.6": (60.0, (9.0, 1.8)),
    "static:limit=0.35": (12.0, (7.0, 1.4)),
}
ARMS = tuple(LEVELS)[3:]


def block(latency_ms: float, units: tuple[float, ...], seed: int) -> BlockMeasures:
    rng = np.random.default_rng(seed)
    scheduled = np.arange(0.0, 20.0, 0.04)
    return BlockMeasures(
        duration_s=20.0,
        scheduled_s=scheduled,
        latency_ms=latency_ms * np.exp(0.05 * rng.standard_normal(scheduled.size)),
        ok=np.ones(scheduled.size, dtype=bool),
        units=np.tile(np.asarray(units) * np.exp(0.02 * rng.standard_normal()), (20, 1)),
        psi_some_s=np.zeros(20),
        paused_s=np.zeros(20),
    )


def result(rounds: int = 4, **changed: tuple[float, tuple[float, ...]]) -> dict[str, Any]:
    levels = {**LEVELS, **changed}
    blocks = {
        name: [block(ms, units, seed=17 * r + k) for r in range(rounds)]
        for k, (name, (ms, units)) in enumerate(levels.items())
    }
    table = summarise(blocks, ARMS, slo_ms=None, seed=1)
    for label, arm in table["arms"].items():
        arm["controller"] = label
    return {**table, "scenario": "s", "method": {"rounds": rounds}}


def test_the_shipped_plan_runs_every_held_out_scenario_under_every_controller() -> None:
    plan = load_verdict_plan()
    split = load_split()
    assert all(split.part_of(load_scenario(name)) == "test" for name in plan.scenarios)
    assert len(plan.scenarios) == 4
    wanted = {"none", "none#2", "latd", "latd-cgroup", "rule", "pi", "ppo", "ppo#2"}
    assert set(plan.arms) == wanted
    assert plan.hindsight_settings > 0
    assert plan.block_seconds % 30.0 == 0.0, "whole periods of the scenarios that come and go"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rounds = [", "cannot be read"),
        ("round = 3", "lacks the key|unknown key"),
        ('seed = "x"', "wrong type"),
        ("scenarios = [1]", "wrong type"),
        ("rounds = 0", "runs nothing"),
        ('arms = ["nobody"]', "nobody"),
    ],
)
def test_plans_that_cannot_be_run_are_refused(tmp_path: Path, text: str, said: str) -> None:
    plan = load_verdict_plan()
    values: dict[str, object] = {
        name: getattr(plan, name) for name in VerdictPlan.__dataclass_fields__
    }
    lines = [
        f"{name} = {json.dumps(value)}"
        for name, value in values.items()
        if not text.startswith(name)
    ]
    path = tmp_path / "plan.toml"
    path.write_text("\n".join([*lines, text]))
    with pytest.raises(Exception, match=said):
        load_verdict_plan(path)
    path.write_text("\n".join(lines))
    if text.startswith("round "):
        assert load_verdict_plan(path) == plan
    else:
        with pytest.raises(PlanError, match="lacks the key"):
            load_verdict_plan(path)


def test_figures_are_those_of_the_policy_beside_the_others() -> None:
    found = judge({"s": result()})
    figures = found["scenarios"]["s"]["figures"]
    assert found["scenarios"]["s"]["oracle"] == "static:limit=0.35", "0.6 misses the target"
    assert figures["impact_ample_mean"]["value"] == pytest.approx(11.5 / 11.0 - 1.0, abs=0.01)
    assert figures["work_of_oracle"]["value"] == pytest.approx(6.0 / 7.0, rel=0.05)
    assert figures["work_of_latd"]["value"] == pytest.approx(1.5, rel=0.05)
    assert figures["p99_of_latd"]["value"] == pytest.approx(11.5 / 12.0, rel=0.03)
    rule = figures["work_of_rule"]
    assert rule["value"] == pytest.approx(1.2, rel=0.05)
    assert rule["low"] < rule["value"] < rule["high"]
    assert figures["slo_points"]["value"] == pytest.approx(0.0, abs=0.01)
    over = found["figures"]
    assert over["work_of_latd"]["met"] is True
    assert over["impact_ample_mean"]["met"] is True
    assert over["impact_mean"]["met"] is None, "no target"
    json.dumps(found, allow_nan=False)


def test_scenarios_count_alike_and_their_intervals_add_up() -> None:
    one, two = result(), result(ppo=(11.5, (3.0, 0.6)))
    found = judge({"one": one, "two": two})
    each = [found["scenarios"][name]["figures"]["work_of_rule"] for name in ("one", "two")]
    mean = found["figures"]["work_of_rule"]
    assert mean["value"] == pytest.approx(np.sqrt(each[0]["value"] * each[1]["value"]))
    assert mean["worst"] == each[1]["value"]
    reach = [np.log(m["high"] / m["value"]) for m in each]
    expected = mean["value"] * np.exp(np.hypot(*reach) / 2)
    assert mean["high"] == pytest.approx(expected)
    assert mean["met"] is False
    headers, rows = verdict_rows(found)
    assert len(rows) == len(FIGURES)
    assert all(len(row) == len(headers) for row in rows)


def test_what_was_not_measured_is_unknown() -> None:
    without = result()
    without["contrasts"] = [c for c in without["contrasts"] if "rule" not in c.values()]
    found = judge({"s": without})
    assert found["scenarios"]["s"]["figures"]["work_of_rule"]["value"] is None
    assert found["figures"]["work_of_rule"]["met"] is None
    del without["arms"]["ppo"]
    with pytest.raises(EvaluationError, match="no arm 'ppo'"):
        judge({"s": without})


def test_scenarios_take_turns_and_hindsight_is_decided_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[ComparisonRequest] = []

    def compare(request: ComparisonRequest, *_: object, **__: object) -> Mapping[str, Any]:
        ran.append(request)
        return result(rounds=2)

    monkeypatch.setattr(verdict, "run_comparison", compare)
    plan = replace(
        load_verdict_plan(), scenarios=("redis-mix", "redis-sort"), arms=("none", "ppo"), rounds=2
    )
    out = tmp_path / "verdict"
    for name in plan.scenarios:
        write_json_in(out / "hindsight" / name, ["static:limit=0.6", "mpc:path=twin.json"])
    monkeypatch.setattr(verdict, "make_arms", tuple)
    monkeypatch.setattr(verdict, "static_best", lambda _policy: "static:pause=0")
    run_verdict(plan, out, recordings=tmp_path)
    assert [(r.scenario, r.rounds) for r in ran] == [
        ("redis-mix", 1), ("redis-sort", 1), ("redis-mix", 2), ("redis-sort", 2),
    ]  # fmt: skip
    labels = ("none", "ppo", "static:pause=0", "static:limit=0.6", "mpc:path=twin.json")
    assert ran[0].arms == labels  # type: ignore[comparison-overlap]
    assert ran[0].mode == "live"
    assert set(load_verdict(out)["scenarios"]) == {"redis-mix", "redis-sort"}
    with pytest.raises(EvaluationError, match="no recording of redis-sort"):
        run_verdict(
            replace(plan, scenarios=("redis-sort",)), tmp_path / "new", recordings=tmp_path
        )
    with pytest.raises(EvaluationError, match="no verdict"):
        load_verdict(tmp_path)


def test_the_shipped_policy_says_which_setting_was_its_measure() -> None:
    spec = static_best("default")
    assert spec is not None
    assert parse_arms(spec)[0].controller == "static"
    action = np.array([1, 2, 0, 0, 0, 5, 0, 0, 2])
    assert (Setting.of_action(action.tolist()).action() == action).all()


def write_json_in(folder: Path, arms: list[str]) -> None:
    folder.mkdir(parents=True)
    write_json(folder / "arms.json", {"arms": arms})
