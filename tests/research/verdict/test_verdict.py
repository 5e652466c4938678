"""The verdict: the comparisons that it runs, their order, and its figures of known ones."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from example_results import NODE, arm, comparison, exactly, metrics

from stallward.agent.desired import LIMIT_RATIOS
from stallward.agent.errors import ControllerError
from stallward.env.errors import ScenarioError
from stallward.env.recording.split import load_split
from stallward.env.scenario.file import find_scenarios
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.comparison.compare import ComparisonOutcome
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.errors import ComparisonError, EvaluationError, PlanError
from stallward.evaluation.measures.block_measures import BlockMeasures
from stallward.evaluation.measures.estimates import ComparisonEstimates, estimate
from stallward.evaluation.results.comparison import ArmFacts, ArmResult
from stallward.evaluation.results.serialise import save
from stallward.research.hindsight import Hindsight
from stallward.research.screening import Setting
from stallward.research.verdict import verdict
from stallward.research.verdict.figures import judge
from stallward.research.verdict.plan import VerdictPlan, load_verdict_plan
from stallward.research.verdict.result import (
    JudgedFigure,
    RunProvenance,
    ScenarioVerdict,
    Shipped,
    Verdict,
    load_verdict,
    provenance_of,
)
from stallward.research.verdict.scenario_comparison import ScenarioComparison, score
from stallward.research.verdict.tables import verdict_tables
from stallward.research.verdict.targets import FIGURES, Target
from stallward.research.verdict.verdict import HindsightArms, run_verdict, static_best

ORACLE = Hindsight(arm="static:limit=0.35", meets_target=True)
LEVELS = {
    # condition: latency in ms, units of two groups per second
    "alone": (10.0, ()),
    "ample": (11.0, (10.0, 2.0)),
    "background": (1.0, (10.0, 2.0)),
    "latd": (12.0, (4.0, 0.8)),
    "rule": (12.0, (1.2, 0.24)),
    "partition": (11.6, (5.0, 1.0)),
    "ppo": (11.5, (6.0, 1.2)),
    "ppo#2": (11.5, (6.0, 1.2)),
    "static:limit=0.6": (60.0, (9.0, 1.8)),
    "static:limit=0.35": (12.0, (7.0, 1.4)),
}
ARMS = tuple(LEVELS)[3:]
TARGET_MS = 16.8
"""1.5 times the p99 with ample memory."""
TARGETS = load_verdict_plan().targets
Level = tuple[float, tuple[float, ...]]


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


def scene(
    rounds: int = 4,
    *,
    oracle: Hindsight | None = ORACLE,
    without: str = "",
    odd: Mapping[int, Level] | None = None,
    **changed: Level,
) -> ScenarioComparison:
    """A comparison of one scenario; ``odd`` has the rounds in which ``ppo`` has other levels."""
    levels = {**LEVELS, **changed}
    levels.pop(without, None)
    arms = tuple(arm for arm in ARMS if arm in levels)
    roles = {arm: arm for arm in arms if not arm.startswith("static")}
    estimated = estimated_once(rounds, arms, tuple(levels.items()), tuple((odd or {}).items()))
    return ScenarioComparison(estimates=estimated, roles=roles, oracle=oracle)


@functools.cache
def estimated_once(
    rounds: int,
    arms: tuple[str, ...],
    levels: tuple[tuple[str, Level], ...],
    odd: tuple[tuple[int, Level], ...],
) -> ComparisonEstimates:
    """Estimate each comparison once: resampling takes most of the time of these tests."""
    blocks = {
        name: [
            block(*(dict(odd).get(r, level) if name == "ppo" else level), seed=17 * r + k)
            for r in range(rounds)
        ]
        for k, (name, level) in enumerate(levels)
    }
    return estimate(blocks, arms, slo_ms=TARGET_MS, seed=1)


def test_the_shipped_plan_runs_every_held_out_scenario_under_every_controller() -> None:
    plan = load_verdict_plan()
    split = load_split()
    held_out = [
        one.name
        for one in find_scenarios()
        if split.part_of(one) == "test" and one.sandbox.compressed_swap is None and not one.others
    ]
    assert sorted(plan.scenarios) == sorted(held_out)
    assert len(held_out) == 6
    assert {"none", "latd", "rule", "pi", "partition", "ppo", "ppo#2"} <= set(plan.arms)
    assert plan.hindsight_settings > 0
    assert plan.block_seconds >= 60.0
    assert plan.block_seconds + plan.burn_in_seconds >= 180.0
    assert plan.block_seconds % 30.0 == 0.0, "blocks must hold whole periods of phases"


def plan_text(without: str = "", **changed: object) -> str:
    """The shipped plan as TOML, with other values, without lines that begin with ``without``."""
    plan = load_verdict_plan()
    values = {name: getattr(plan, name) for name in VerdictPlan.__dataclass_fields__}
    targets = values.pop("targets")
    lines = [f"{key} = {json.dumps(value)}" for key, value in {**values, **changed}.items()]
    for target in targets:
        lines.append("[[targets]]")
        lines += [f"{k} = {json.dumps(v)}" for k, v in asdict(target).items() if v is not None]
    return "\n".join(line for line in lines if not without or not line.startswith(without))


def load_text(tmp_path: Path, text: str) -> VerdictPlan:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return load_verdict_plan(path)


def test_a_plan_can_be_written_and_read_back(tmp_path: Path) -> None:
    assert load_text(tmp_path, plan_text()) == load_verdict_plan()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = [", "cannot be read"),
        (plan_text(round=3), "unknown key 'round'"),
        (plan_text(without="rounds"), "rounds is missing"),
        (plan_text(seed="x"), "seed is 'x', not a whole number"),
        (plan_text(scenarios=[1]), r"scenarios\[0\] is 1, not a string"),
        (plan_text(rounds=0), "runs nothing"),
        (plan_text(arms=["nobody"]), "nobody"),
        (plan_text(arms=["none", "rule"]), "has no arm 'ppo'"),
        (plan_text(without="[[targets]]").split("figure")[0], "targets is missing"),
    ],
)
def test_plans_that_cannot_be_run_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises((PlanError, ControllerError), match=message):
        load_text(tmp_path, text)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ('figure = "work"\nat_mots = 1', "unknown key 'at_mots'"),
        ("at_most = 1", "figure is missing"),
        ('figure = "wrok"\nat_most = 1', "'wrok' is about no figure"),
        ('figure = "slo_points"\nat_most = 1', "'slo_points' stands there twice"),
        ('figure = "work"', "'work' has no bound"),
        ('figure = "work"\nat_least = 0.5\nwhere_met = "score"', "'score', which has no target"),
    ],
)
def test_incomplete_or_unknown_targets_are_refused_by_name(
    tmp_path: Path, target: str, message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        load_text(tmp_path, f"{plan_text()}\n[[targets]]\n{target}\n")


def test_targets_are_those_of_the_plan() -> None:
    strict = judge({"s": scene()}, [Target(figure="work", at_least=0.9)]).arms["ppo"]
    assert (strict["work"].target, strict["work"].met) == ("at least 0.9", False)
    assert strict["impact_ample_mean"].met is strict["impact_ample_mean"].surely is None
    assert strict["impact_ample_mean"].target == ""
    loose = judge({"s": scene()}, [Target(figure="work", at_least=0.5)]).arms["ppo"]
    assert loose["work"].met is True


def test_without_a_target_the_policy_does_not_ship() -> None:
    ships = judge({"s": scene()}, []).ships
    assert ships.controller == "partition"
    assert "the plan does not say" in ships.why


def test_the_shipped_targets_are_written_in_the_same_words() -> None:
    assert {target.figure: target.in_words() for target in TARGETS} == {
        "slo_points_of_partition": "certainly at most 0.5",
        "work_of_partition": "certainly above 1 where the SLO is kept as partition keeps it",
        "impact_ample_mean": "at most +5 %",
        "slo_points": "at most 0.5",
        "slo_points_worst": "at most 1",
        "impact_ample_p99": "at most +15 %",
        "work_of_rule": "at least 4",
        "work_of_oracle": "at least 0.85 where the SLO is kept",
        "work_of_latd": "at least 1.3 at no worse p99",
        "p99_of_latd": "at most 1",
        "impact_p99_sd": "at most 7 %",
        "impact_p99_sd_seeds": "at most 7 %",
    }


def value_of(figure: JudgedFigure) -> float:
    assert figure.interval.value is not None
    return figure.interval.value


def is_inside(figure: JudgedFigure) -> bool:
    """Return whether the value lies within an interval that is not a point."""
    low, high = figure.interval.low, figure.interval.high
    assert low is not None
    assert high is not None
    return low < value_of(figure) < high


@pytest.fixture(scope="module")
def judged() -> Verdict:
    """The verdict on one scenario of four rounds."""
    return judge({"s": scene()}, TARGETS)


def test_figures_compare_the_policy_with_the_other_conditions(judged: Verdict) -> None:
    figures = judged.scenarios["s"].arms["ppo"]
    assert value_of(figures["impact_ample_mean"]) == pytest.approx(11.5 / 11.0 - 1.0, abs=0.01)
    assert value_of(figures["impact_p99"]) == pytest.approx(11.5 / 10.0 - 1.0, abs=0.03)
    assert value_of(figures["work"]) == pytest.approx(0.6, rel=0.02)
    assert value_of(figures["work_of_oracle"]) == pytest.approx(6.0 / 7.0, rel=0.05)
    assert value_of(figures["work_of_latd"]) == pytest.approx(1.5, rel=0.05)
    assert value_of(figures["p99_of_latd"]) == pytest.approx(11.5 / 12.0, rel=0.03)


@pytest.mark.parametrize(
    "name", ["work_of_rule", "impact_ample_p99", "score_over_rule", "impact_p99_sd"]
)
def test_a_figure_has_an_interval_around_it(judged: Verdict, name: str) -> None:
    assert is_inside(judged.scenarios["s"].arms["ppo"][name])


def test_a_violation_that_never_happened_in_80_windows_is_not_excluded(judged: Verdict) -> None:
    points = judged.scenarios["s"].arms["ppo"]["slo_points"].interval
    assert points.value == 0.0
    assert points.low == -(points.high or 0.0) == pytest.approx(-3.0 / 80.0)


def test_a_target_that_was_missed_in_every_window_is_missed_by_100_points_at_most() -> None:
    missed = (
        judge({"s": scene(ppo=(60.0, (6.0, 1.2)))}, TARGETS).arms["ppo"]["slo_points"].interval
    )
    assert missed.low == pytest.approx(1.0 - 2**0.5 * 3.0 / 80.0), "either may err"
    assert missed.value == missed.high == 1.0


def test_targets_are_met_or_not_where_there_are_any(judged: Verdict) -> None:
    over = judged.arms["ppo"]
    assert over["work_of_latd"].met is True
    assert over["impact_ample_p99"].met is True
    assert over["impact_mean"].met is None, "no target"


def test_no_condition_is_compared_with_itself(judged: Verdict) -> None:
    assert "impact_ample_p99" not in judged.arms["ample"]
    assert "work_of_latd" not in judged.arms["latd"]


def test_the_same_arm_again_does_as_much_work(judged: Verdict) -> None:
    again = judged.again["ppo#2"]["work_ratio"].interval
    assert (again.low or 9.0) < 1.0 < (again.high or 0.0)


def test_the_verdict_says_how_many_rounds_would_show_an_effect(judged: Verdict) -> None:
    # The blocks of an arm differ by some 2 %: a few rounds are enough for an effect of 10 %.
    assert judged.rounds_needed is not None
    assert 2 <= judged.rounds_needed <= 4
    assert f"; {judged.rounds_needed} rounds show 10 % more work" in (
        verdict_tables(judged)[-1].title
    )
    once = judge({"s": scene(rounds=1)}, TARGETS)
    assert once.rounds_needed is None
    assert "rounds show" not in verdict_tables(once)[-1].title


def test_violations_beyond_those_allowed_reduce_the_score() -> None:
    calm = judge({"s": scene()}, TARGETS).arms
    # 12 ms is 9.1 % more than with ample memory, of which 5 % are allowed, and one request in
    # seven is slower than 1.15 times ample's p99 of about 12.4.
    assert calm["ppo"]["score"].interval.value == pytest.approx(0.6, abs=0.02)
    assert calm["rule"]["score"].interval.value == pytest.approx(0.12 - 2.0 * 0.041, abs=0.02)
    slow = judge({"s": scene(ppo=(60.0, (9.0, 1.8)))}, TARGETS).arms["ppo"]["score"].interval.value
    assert slow == pytest.approx(0.9 - 10.0 * 0.995, abs=0.1), "one bad event is charged once"


def test_a_score_varies_with_the_latency_baseline() -> None:
    """If only ample varies from round to round, the penalties of an arm vary, too."""

    def varied(spread: float) -> ComparisonEstimates:
        rng = np.random.default_rng(5)
        factors = np.exp(spread * rng.standard_normal(6))
        levels = {"alone": 10.0, "background": 1.0, "ppo": 13.0}
        blocks = {
            name: [block(ms, (10.0, 2.0), seed=3) for _ in factors] for name, ms in levels.items()
        }
        blocks["ample"] = [block(11.0 * f, (10.0, 2.0), seed=4) for f in factors]
        return estimate(blocks, ["ppo"], slo_ms=1e3, seed=1)

    for spread in (0.0, 0.1):
        estimates = varied(spread)
        computed = score(estimates, "ppo")
        ms = estimates.conditions["ppo"].blocks[0].latency_ms
        baseline_ms = estimates.figures["ample"].estimates.mean_ms.value
        tail = 1.15 * estimates.figures["ample"].estimates.p99_ms.value
        slow = 10.0 * max(float(np.mean(ms > tail)) - 0.01, 0.0)
        excess = 2.0 * max(float(ms.mean()) / baseline_ms - 1.05, 0.0)
        work = estimates.figures["ppo"].estimates.background_work.value
        assert computed.value == pytest.approx(work - max(slow, excess), abs=1e-9)
        assert (computed.draws.std() > 0.02) == (spread > 0.0)


def test_the_policy_ships_only_if_it_is_certainly_better_than_partition() -> None:
    # In 80 windows without a miss there may be one in 27: the shipped plan runs for longer.
    wider = [
        replace(target, at_most=0.05) if target.figure == "slo_points_of_partition" else target
        for target in TARGETS
    ]
    ships = judge({"s": scene()}, wider).ships
    assert ships.controller == "ppo"
    assert "certainly lets more work be done" in ships.why
    assert judge({"s": scene()}, TARGETS).ships.controller == "partition"
    alike = judge({"s": scene(ppo=(11.6, (5.0, 1.0)))}, TARGETS)
    assert alike.arms["ppo"]["work_of_partition"].met is False
    assert alike.ships.controller == "partition"
    once = judge({"s": scene(rounds=1)}, TARGETS)
    assert value_of(once.arms["ppo"]["work_of_partition"]) > 1.0
    assert once.ships.controller == "partition", "one round has no interval"


def test_the_reason_is_no_more_certain_than_the_figure() -> None:
    lax = [
        Target(figure="slo_points_of_partition", at_most=0.5),
        Target(figure="work_of_partition", at_least=1.0),
    ]
    once = judge({"s": scene(rounds=1)}, lax).ships
    assert once.controller == "ppo"
    assert once.why == "it keeps the target as often as partition and lets more work be done"


@pytest.mark.parametrize("of_policy", [6.0, 0.0])
def test_partition_without_work_was_compared_with_all_the_same(of_policy: float) -> None:
    wider = [
        Target(figure="slo_points_of_partition", at_most=0.05, certain=True),
        Target(figure="work_of_partition", at_least=1.0, certain=True),
    ]
    idle: Level = (11.6, (0.0, 0.0))
    scenes = {"s": scene(partition=idle, ppo=(11.5, (of_policy, of_policy / 5.0)))}
    ships = judge(scenes, wider).ships
    assert ships.controller == "partition"
    assert ships.why == "partition did no work that the policy's could be compared with"


def test_a_policy_that_misses_the_target_more_often_does_not_ship() -> None:
    missing = judge({"s": scene(odd={2: (60.0, (9.0, 1.8))})}, TARGETS)
    assert value_of(missing.arms["ppo"]["work_of_partition"]) > 1.0
    assert missing.ships.controller == "partition"
    assert "keep the target" in missing.ships.why


def test_more_work_than_latd_counts_only_at_no_worse_p99() -> None:
    slower = judge({"s": scene(ppo=(14.0, (6.0, 1.2)))}, TARGETS).arms["ppo"]
    assert value_of(slower["work_of_latd"]) > 1.3
    assert slower["p99_of_latd"].met is False
    assert slower["work_of_latd"].met is False


def test_an_arm_without_work_can_be_compared_with() -> None:
    killed: Level = (11.5, (0.0, 0.0))
    result = judge({"one": scene(latd=killed), "two": scene()}, TARGETS)
    assert result.scenarios["one"].arms["ppo"]["work_of_latd"].interval.value is None
    assert result.scenarios["one"].arms["ppo"]["work_of_latd"].beyond is True
    over = result.arms["ppo"]["work_of_latd"]
    assert over.interval.value == pytest.approx(2 * 0.6 / 0.4, rel=0.05), "the ratio of the sums"
    assert is_inside(over)
    assert "more than nothing" in str(verdict_tables(result)[0].rows)


def test_scenarios_count_alike() -> None:
    result = judge({"one": scene(), "two": scene(ppo=(11.5, (3.0, 0.6)))}, TARGETS)
    each = [result.scenarios[name].arms["ppo"]["score"] for name in ("one", "two")]
    mean = result.arms["ppo"]["score"]
    assert mean.interval.value == pytest.approx(np.mean([value_of(one) for one in each]))
    assert mean.worst == each[1].interval.value
    for table in verdict_tables(result):
        assert all(len(row) == len(table.headers) for row in table.rows)
    assert len(verdict_tables(result)[0].rows) == len(FIGURES)


def test_one_bad_round_shows_in_the_worst_and_in_the_spread() -> None:
    bad = judge({"s": scene(odd={2: (60.0, (6.0, 1.2))})}, TARGETS).arms
    assert bad["ppo"]["slo_points_worst"].interval.value == pytest.approx(1.0)
    assert bad["ppo"]["slo_points"].interval.value == pytest.approx(0.25)
    assert bad["ample"]["slo_points_worst"].interval.value == 0.0
    # Three rounds are at about 1, and one at 5.2 times the p99 of ample.
    assert bad["ppo"]["impact_p99_sd"].interval.value == pytest.approx(2.1, rel=0.1)
    assert bad["ppo"]["impact_p99_sd"].met is False


def test_other_seeds_count_in_the_spread_over_seeds() -> None:
    levels = {**LEVELS, "onnx:path=2.onnx": (11.5 * 1.5, (6.0, 1.2))}
    blocks = {
        name: [block(*level, seed=17 * r + k) for r in range(4)]
        for k, (name, level) in enumerate(levels.items())
    }
    arms = list(levels)[3:]
    both = ScenarioComparison(
        estimates=estimate(blocks, arms, slo_ms=TARGET_MS, seed=1),
        roles={arm: arm for arm in arms},
    )
    figures = judge({"s": both}, TARGETS).arms["ppo"]
    # There are eight ratios of p99, four of about 1.05 and four of 1.57.
    assert figures["impact_p99_sd_seeds"].interval.value == pytest.approx(0.28, abs=0.03)
    assert value_of(figures["impact_p99_sd"]) < 0.1
    alone = judge({"s": scene()}, TARGETS).arms["ppo"]["impact_p99_sd_seeds"]
    assert alone.interval.value is alone.met is None, "one seed has no spread over seeds"
    assert "impact_p99_sd_seeds" not in judge({"s": scene()}, TARGETS).arms["rule"]


def test_the_worst_run_is_of_one_scenario_against_ample_in_the_same_round() -> None:
    calm, odd = scene(), scene(odd={2: (60.0, (6.0, 1.2))})
    both = judge({"one": calm, "two": odd}, TARGETS).arms["ppo"]["slo_points_worst"]
    assert both.interval.value == pytest.approx(1.0), "the other scenario has halved it"
    assert both.met is False


def test_the_worst_scenario_is_that_with_the_longest_latency_and_the_least_work() -> None:
    slower = scene(ppo=(14.0, (5.0, 1.0)))
    figures = judge({"one": scene(), "two": slower}, TARGETS)
    over, two = figures.arms["ppo"], figures.scenarios["two"].arms["ppo"]
    for name in ("p99_of_rule", "impact_p99", "impact_ample_mean", "work_of_rule", "score"):
        assert over[name].worst == two[name].interval.value, name


def test_a_target_that_only_the_value_meets_is_not_certainly_met() -> None:
    rounds = {r: (11.5 * factor, (6.0, 1.2)) for r, factor in enumerate((0.8, 1.2, 0.8, 1.2))}
    result = judge({"s": scene(odd=rounds)}, TARGETS)
    uncertain = result.arms["ppo"]["impact_ample_mean"]
    assert uncertain.met is True
    assert uncertain.surely is False
    calm = judge({"s": scene(ppo=(11.0, (6.0, 1.2)))}, TARGETS).arms["ppo"]["impact_ample_mean"]
    assert calm.met is calm.surely is True
    verdicts = [row[3] for row in verdict_tables(result)[0].rows]
    assert {"met", "missed", "met, not certainly", ""} >= set(verdicts)
    assert "met, not certainly" in verdicts


def test_work_counts_against_the_oracle_only_where_the_target_is_kept() -> None:
    figures = judge({"s": scene(odd={2: (60.0, (9.0, 1.8))})}, TARGETS).arms["ppo"]
    assert value_of(figures["work_of_oracle"]) > 0.85
    assert figures["slo_points"].met is False
    assert figures["work_of_oracle"].met is False


def test_an_oracle_that_misses_the_target_is_not_compared_with() -> None:
    missing = Hindsight(arm="static:limit=0.35", meets_target=False)
    result = judge({"one": scene(oracle=missing), "two": scene()}, TARGETS)
    assert result.scenarios["one"].arms["ppo"]["work_of_oracle"].interval.value is None
    over = result.arms["ppo"]["work_of_oracle"]
    assert over.interval == result.scenarios["two"].arms["ppo"]["work_of_oracle"].interval
    assert over.left_out_scenarios == 1
    assert "misses the target" in verdict_tables(result)[0].title
    nowhere = judge({"one": scene(oracle=None)}, TARGETS).arms["ppo"]["work_of_oracle"]
    assert nowhere.interval.value is nowhere.met is None


def test_figures_of_arms_that_were_not_measured_are_unknown() -> None:
    result = judge({"s": scene(without="partition")}, TARGETS)
    assert result.arms["ppo"]["work_of_partition"].interval.value is None
    assert result.arms["ppo"]["work_of_partition"].met is None
    assert result.ships.why.endswith("was not compared with partition")
    assert result.ships.controller == "partition"
    with pytest.raises(EvaluationError, match="no arm 'ppo'"):
        judge({"s": scene(without="ppo")}, TARGETS)


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, VerdictPlan]:
    """The output folder and a plan of two scenarios, whose static settings are known."""
    plan = replace(
        load_verdict_plan(), scenarios=("redis-mix", "redis-sort"), arms=("none", "ppo"), rounds=2
    )
    out = tmp_path / "verdict"
    for name in plan.scenarios:
        write_json_in(out / "hindsight" / name, ["static:limit=0.6", "mpc:path=twin.json"])
    monkeypatch.setattr(verdict, "make_arms", tuple)
    fixed = Setting(levels=(0, 0, 0, 0), paused=(0, 3))
    monkeypatch.setattr(verdict, "static_best", lambda _policy: fixed)
    monkeypatch.setattr(verdict, "judge", lambda scenes, _, failed: verdict_on(scenes, failed))
    return out, plan


def verdict_on(
    scenarios: Iterable[str],
    failed: Mapping[str, str] | None = None,
    *,
    oracles: Mapping[str, Hindsight] | None = None,
) -> Verdict:
    """A verdict on scenarios without figures of arms."""
    return Verdict(
        scenarios={
            name: ScenarioVerdict(
                rounds=1, slo_ms=60.0, oracle=(oracles or {}).get(name), roles={}, arms={}
            )
            for name in scenarios
        },
        arms={},
        again={},
        ships=Shipped(controller="rule", why="nothing was compared"),
        failed=failed or {},
    )


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[ComparisonRequest]:
    """The comparisons that a verdict requests. None is run."""
    requests: list[ComparisonRequest] = []

    def compare(request: ComparisonRequest, *_: object) -> ComparisonOutcome:
        requests.append(request)
        return ComparisonOutcome(result=comparison({}), estimates=scene().estimates)

    monkeypatch.setattr(verdict, "run_comparison", compare)
    return requests


def test_a_scenario_of_several_applications_is_refused_before_anything_runs(
    staged: tuple[Path, VerdictPlan], ran: list[ComparisonRequest]
) -> None:
    out, plan = staged
    several = next(one.name for one in find_scenarios() if one.others)
    plan = replace(plan, scenarios=(*plan.scenarios, several))
    with pytest.raises(ScenarioError, match="several applications"):
        verdict.run_verdict(plan, out, recordings=out)
    assert ran == []


def test_the_oracles_of_another_verdict_replace_those_from_hindsight(
    tmp_path: Path, ran: list[ComparisonRequest], staged: tuple[Path, VerdictPlan]
) -> None:
    _, plan = staged
    oracles = {
        "redis-mix": Hindsight(arm="static:limit=0.25", meets_target=True),
        "redis-sort": Hindsight(arm="static:limit=0.35", meets_target=False),
    }
    (first := tmp_path / "first").mkdir()
    save(first / "verdict.json", verdict_on(oracles, oracles=oracles))
    out = tmp_path / "second"
    run_verdict(replace(plan, rounds=1), out, recordings=tmp_path, oracle_of=first)
    assert [r.arms[-1] for r in ran] == ["static:limit=0.25", "static:limit=0.35"]  # type: ignore[comparison-overlap]
    assert not any("mpc" in str(r.arms) for r in ran)
    run_verdict(plan, out, recordings=tmp_path)
    assert ran[-1].arms == ran[1].arms, "a resumed verdict has other oracles"
    run_verdict(plan, out, recordings=tmp_path, oracle_of=first)
    oracles["redis-mix"] = Hindsight(arm="static:limit=0.8", meets_target=True)
    save(first / "verdict.json", verdict_on(oracles, oracles=oracles))
    with pytest.raises(EvaluationError, match="begun with another oracle for redis-mix"):
        run_verdict(plan, out, recordings=tmp_path, oracle_of=first)
    save(first / "verdict.json", verdict_on(["redis-mix"], oracles=oracles))
    with pytest.raises(EvaluationError, match="names no oracle for redis-sort"):
        run_verdict(plan, tmp_path / "third", recordings=tmp_path, oracle_of=first)


def test_measurements_do_not_change_a_given_oracle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: tuple[Path, VerdictPlan]
) -> None:
    """The best setting of the training runs is an arm, too, and may do better by chance."""
    _, plan = staged
    taken, lucky = "static:limit=0.25", "static:pause=0"

    def static(label: str, work: float) -> ArmResult:
        figures = metrics(slo_attainment=exactly(1.0), background_work=exactly(work))
        return arm(figures, ArmFacts(controller=label))

    result = comparison(
        {taken: static(taken, 0.3), lucky: static(lucky, 0.6)},
        ample=metrics(slo_attainment=exactly(1.0)),
    )
    judged: list[Mapping[str, ScenarioComparison]] = []
    monkeypatch.setattr(
        verdict,
        "run_comparison",
        lambda *_: ComparisonOutcome(result=result, estimates=scene().estimates),
    )

    def keep(scenes: Mapping[str, ScenarioComparison], *_: object) -> Verdict:
        judged.append(dict(scenes))
        return verdict_on(scenes)

    monkeypatch.setattr(verdict, "judge", keep)
    (first := tmp_path / "first").mkdir()
    oracles = dict.fromkeys(plan.scenarios, Hindsight(arm=taken, meets_target=False))
    save(first / "verdict.json", verdict_on(oracles, oracles=oracles))
    run_verdict(plan, tmp_path / "second", recordings=tmp_path, oracle_of=first)
    assert {s.oracle for s in judged[-1].values()} == {Hindsight(arm=taken, meets_target=True)}
    write_json_in(place := tmp_path / "third" / "hindsight" / "redis-mix", [taken])
    write_json_in(place.with_name("redis-sort"), [taken])
    run_verdict(plan, tmp_path / "third", recordings=tmp_path)
    assert {s.oracle for s in judged[-1].values()} == {Hindsight(arm=lucky, meets_target=True)}


def test_scenarios_take_turns_and_hindsight_is_decided_once(
    tmp_path: Path, ran: list[ComparisonRequest], staged: tuple[Path, VerdictPlan]
) -> None:
    out, plan = staged
    run_verdict(plan, out, recordings=tmp_path)
    assert [(r.scenario, r.rounds) for r in ran] == [
        ("redis-mix", 1), ("redis-sort", 1), ("redis-mix", 2), ("redis-sort", 2),
    ]  # fmt: skip
    mixed = ("none", "ppo", "static:pause=0", "static:limit=0.6", "mpc:path=twin.json")
    assert ran[0].arms == mixed, "the scenario has three slots, so the fourth is not paused"  # type: ignore[comparison-overlap]
    assert ran[0].mode == "live"
    assert set(load_verdict(out).scenarios) == {"redis-mix", "redis-sort"}
    with pytest.raises(EvaluationError, match="no recording of redis-sort"):
        run_verdict(
            replace(plan, scenarios=("redis-sort",)), tmp_path / "new", recordings=tmp_path
        )
    with pytest.raises(EvaluationError, match="no verdict"):
        load_verdict(tmp_path)


def test_a_scenario_that_cannot_be_run_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: tuple[Path, VerdictPlan]
) -> None:
    def compare(request: ComparisonRequest, *_: object) -> ComparisonOutcome:
        if request.scenario == "redis-mix":
            raise ComparisonError("killed four times")
        return ComparisonOutcome(result=comparison({}), estimates=scene().estimates)

    out, plan = staged
    monkeypatch.setattr(verdict, "run_comparison", compare)
    result = run_verdict(plan, out, recordings=tmp_path)
    assert list(result.scenarios) == ["redis-sort"]
    assert result.failed == {"redis-mix": "killed four times"}
    assert load_verdict(out) == result
    with pytest.raises(EvaluationError, match="No scenario could be run"):
        run_verdict(replace(plan, scenarios=("redis-mix",)), out, recordings=tmp_path)


def test_a_resumed_verdict_shows_earlier_results_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: tuple[Path, VerdictPlan]
) -> None:
    out, plan = staged
    ran: list[tuple[str, int]] = []

    def compare(request: ComparisonRequest, *_: object) -> ComparisonOutcome:
        ran.append((request.scenario, request.rounds))
        return ComparisonOutcome(result=comparison({}), estimates=scene().estimates)

    def interrupted(request: ComparisonRequest, *_: object) -> ComparisonOutcome:
        if (request.scenario, request.rounds) == ("redis-mix", 3):
            raise KeyboardInterrupt
        return compare(request)

    monkeypatch.setattr(verdict, "rounds_done", lambda request: 2)
    monkeypatch.setattr(verdict, "run_comparison", interrupted)
    save(out / "verdict.json", verdict_on(["redis-mix", "redis-sort"]))
    with pytest.raises(KeyboardInterrupt):
        run_verdict(replace(plan, rounds=3), out, recordings=tmp_path)
    assert ran == [("redis-mix", 2), ("redis-sort", 2)]
    assert set(load_verdict(out).scenarios) == {"redis-mix", "redis-sort"}
    monkeypatch.setattr(verdict, "run_comparison", compare)
    run_verdict(replace(plan, rounds=3), out, recordings=tmp_path)
    assert ran[4:] == [("redis-mix", 3), ("redis-sort", 3)], "another comparison was run again"


def test_a_scenario_that_fails_later_is_left_out_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: tuple[Path, VerdictPlan]
) -> None:
    def compare(request: ComparisonRequest, *_: object) -> ComparisonOutcome:
        if (request.scenario, request.rounds) == ("redis-mix", 2):
            raise ComparisonError("killed four times")
        return ComparisonOutcome(result=comparison({}), estimates=scene().estimates)

    out, plan = staged
    monkeypatch.setattr(verdict, "run_comparison", compare)
    result = run_verdict(plan, out, recordings=tmp_path)
    assert list(result.scenarios) == ["redis-sort"], (
        "a scenario with fewer rounds is in the verdict"
    )


def test_invalid_blocks_and_terminated_programs_are_counted_for_every_arm() -> None:
    disturbed = replace(
        scene(),
        invalid_blocks={"ppo": 2, "rule": 0},
        terminated={"latd": 3},
        steal_shares={"ppo": 0.01, "rule": 0.05},
        nodes=2,
    )
    result = judge({"s": disturbed}, TARGETS)
    assert result.scenarios["s"].spoiled_blocks == {"ppo": 2}
    assert result.scenarios["s"].ended_programs == {"latd": 3}
    title = verdict_tables(result)[0].title
    assert "on 2 machines, run again: ppo 2, terminated: latd 3" in title
    assert title.endswith(", disturbed by the host: rule 5 %)")
    assert result.scenarios["s"].stolen_share_worst == {"ppo": 0.01, "rule": 0.05}


def test_a_verdict_names_its_files_and_its_node() -> None:
    provenance = provenance_of(comparison({}))
    assert provenance == RunProvenance(
        node=NODE, block_s=60.0, burn_in_s=12.0, seed=30, files_sha256={"ppo": "ab12"}
    )
    assert (
        judge({"s": replace(scene(), provenance=provenance)}, TARGETS).scenarios["s"].run
        == provenance
    )


def test_a_setting_with_two_roles_is_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: tuple[Path, VerdictPlan]
) -> None:
    ran: list[tuple[str, ...]] = []

    def compare(request: ComparisonRequest, *_: object) -> ComparisonOutcome:
        ran.append(request.arms)  # type: ignore[arg-type]
        return ComparisonOutcome(result=comparison({}), estimates=scene().estimates)

    out, plan = staged
    fixed = Setting(levels=(LIMIT_RATIOS.index(0.6), 3, 3, 3))
    monkeypatch.setattr(verdict, "static_best", lambda _policy: fixed)
    monkeypatch.setattr(verdict, "run_comparison", compare)
    run_verdict(replace(plan, scenarios=("redis-sort",), rounds=1), out, recordings=tmp_path)
    assert ran == [("none", "ppo", "static:limit=0.6", "mpc:path=twin.json")]


def test_the_fixed_setting_is_an_arm_only_where_the_plan_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: tuple[Path, VerdictPlan]
) -> None:
    ran: list[Sequence[object]] = []

    def compare(request: ComparisonRequest, *_: object) -> ComparisonOutcome:
        ran.append(request.arms)
        return ComparisonOutcome(result=comparison({}), estimates=scene().estimates)

    monkeypatch.setattr(verdict, "run_comparison", compare)
    out, staged_plan = staged
    plan = replace(staged_plan, scenarios=("redis-sort",), rounds=1)
    fixed = Setting(levels=(0,), paused=(0,)).spec  # the scenario has one program
    run_verdict(replace(plan, fixed_setting=True), out, recordings=tmp_path)
    run_verdict(replace(plan, fixed_setting=False), out, recordings=tmp_path)
    assert fixed in ran[0]
    assert fixed not in ran[1]
    assert set(ran[1]) < set(ran[0])


def test_the_shipped_policy_names_its_best_static_setting() -> None:
    setting = static_best("default")
    assert setting is not None
    assert parse_arms(setting.spec)[0].controller == "static"
    action = np.array([1, 2, 0, 0, 0, 5, 0, 0, 2])
    assert (Setting.of_action(action.tolist()).action() == action).all()


def write_json_in(folder: Path, arms: list[str]) -> None:
    folder.mkdir(parents=True)
    save(folder / "arms.json", HindsightArms(arms=tuple(arms)))
