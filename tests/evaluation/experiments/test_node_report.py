"""What an experiment on a node showed, and how it is said."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from stallward.actuator.experiments.block_tally import BlockResult, Loss
from stallward.actuator.experiments.plan import Arm, Candidate, ExperimentPlan, PrimaryMeasure
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import Experiment, Phase
from stallward.agent.latency_histogram import LOG_WIDTH, LatencyHistogram, middle_ms
from stallward.evaluation.cli.ab import report_lines, report_rows, status_lines
from stallward.evaluation.experiments.node_report import report_on

PLAN = ExperimentPlan(
    baseline=Candidate(),
    treatment=Candidate(policy="/policies/new.onnx", sha256="ab" * 32),
    pairs=20,
    block_s=60.0,
    burn_in_s=10.0,
    seed=11,
)


def experiment(
    plan: ExperimentPlan,
    p95_ms: Callable[[Arm], float],
    lost: Callable[[int], Loss] = lambda _: Loss.NONE,
    blocks: int = 40,
    latencies: Callable[[Arm], LatencyHistogram | None] = lambda _: None,
) -> Experiment:
    made = []
    for number in range(blocks):
        arm, loss = plan.arm_of(number), lost(number)
        block = BlockResult(pair=number // 2, arm=arm, began_s=0.0, loss=loss)
        if loss is Loss.NONE:
            block = replace(
                block,
                seconds=60,
                attainment=0.9 + 0.05 * arm,
                p95_ms=p95_ms(arm),
                worst_ms=50.0,
                background_cores=0.5,
                latencies=latencies(arm),
            )
        made.append(block)
    return Experiment(
        plan=plan,
        progress=Progress.COMPLETE,
        began_s=0.0,
        ended_s=2800.0,
        blocks=tuple(made),
        phase=None,
    )


def noisy(effect: float, seed: int = 1) -> Callable[[Arm], float]:
    rng = random.Random(seed)
    return lambda arm: rng.lognormvariate(3.0, 0.1) * (effect if arm else 1.0)


def test_an_effect_is_found_and_said() -> None:
    seen = experiment(PLAN, noisy(0.8))
    report = report_on(seen)
    primary = report.primary
    assert primary is not None
    assert primary.ratio.low is not None
    assert primary.ratio.high is not None
    assert 0.7 < primary.ratio.low < 0.8 < primary.ratio.high < 0.9
    assert report.significant == {
        PrimaryMeasure.P95: True,
        PrimaryMeasure.WORST: False,
        PrimaryMeasure.WORK: False,
    }
    assert [one.attainment for one in report.arms] == pytest.approx([0.9, 0.95])
    text = "\n".join(report_lines(seen, report))
    assert "With the treatment the typical p95 of a second is 2" in text
    assert "% shorter." in text
    assert report_rows(report)[0][0] == "typical p95 of a second (primary)"


@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("idle", [False, True])
def test_work_of_which_an_arm_did_none_in_a_block_is_not_significant(
    *, certain: bool, idle: bool
) -> None:
    plan = replace(PLAN, primary=PrimaryMeasure.WORK, stop_when_certain=certain)
    seen, rng = experiment(plan, noisy(1.0)), random.Random(2)
    blocks = [
        replace(one, background_cores=0.5 + 0.1 * one.arm + rng.gauss(0.0, 0.01))
        for one in seen.blocks
    ]
    if idle:
        blocks = [
            replace(one, background_cores=0.0) if one.arm and one.pair % 2 else one
            for one in blocks
        ]
    report = report_on(replace(seen, blocks=tuple(blocks)))
    assert report.significant[PrimaryMeasure.WORK] is not idle


def slower(effect_buckets: int, seed: int = 1) -> Callable[[Arm], LatencyHistogram]:
    """A thousand requests a block, of which one in thirty is slow."""
    rng = random.Random(seed)
    return lambda arm: LatencyHistogram(
        buckets=(300, 500 + effect_buckets * arm + rng.randrange(-3, 4)), counts=(967, 33)
    )


def test_the_percentiles_of_blocks_are_compared_and_said() -> None:
    plan = replace(PLAN, primary=PrimaryMeasure.BLOCK_P99)
    seen = experiment(plan, noisy(1.0), latencies=slower(20))
    report = report_on(seen)
    primary = report.primary
    assert primary is not None
    assert primary.p_value is not None
    low, high = primary.ratio.low, primary.ratio.high
    always_low, always_high = primary.always.low, primary.always.high
    assert low is not None
    assert high is not None
    assert always_low is not None
    assert always_high is not None
    assert always_low < low < math.exp(20 * LOG_WIDTH) < high < always_high
    assert primary.p_value < 0.001
    assert report.significant[PrimaryMeasure.BLOCK_P99]
    assert not report.significant[PrimaryMeasure.BLOCK_P95]
    assert len(report.blocks) == 40
    first = report.blocks[0].latencies
    assert (first.requests, first.p50_ms, first.p95_ms) == (1000, middle_ms(300), middle_ms(300))
    assert first.p99_ms is not None
    assert first.p99_ms > 10.0 * middle_ms(300)
    assert [arm.latencies.requests for arm in report.arms if arm.latencies] == [20_000, 20_000]
    rows = report_rows(report)
    assert rows[0][0] == "p99 of a block's requests (primary)"
    assert "p95 of a block's requests" in [row[0] for row in rows]
    text = "\n".join(report_lines(seen, report))
    assert "With the treatment the p99 of a block's requests is 50 % longer." in text
    assert f"p50 {middle_ms(300):.3g} ms" in text
    assert "of 20000 requests" in text
    assert "an earlier version" not in text


def test_blocks_of_an_earlier_version_fall_back_to_their_seconds_and_this_is_said() -> None:
    seen = experiment(PLAN, noisy(0.8))
    report = report_on(seen)
    assert report.primary is not None, "what was fixed before the start still decides"
    assert PrimaryMeasure.BLOCK_P99 not in report.ratios
    assert report.unknown_latencies == 40
    said = "Of 40 blocks, which an earlier version ran, only the p95 of each second is known"
    assert any(said in line for line in report_lines(seen, report))
    mixed = replace(
        seen,
        blocks=(*seen.blocks[:6], *experiment(PLAN, noisy(0.8), latencies=slower(5)).blocks[6:]),
    )
    assert report_on(mixed).ratios[PrimaryMeasure.BLOCK_P99].pairs == 17
    assert report_on(mixed).unknown_latencies == 6


def test_no_effect_is_not_claimed() -> None:
    report = report_on(experiment(PLAN, noisy(1.0)))
    assert not any(report.significant.values())
    assert "do not certainly differ" in report_lines(experiment(PLAN, noisy(1.0)), report)[-1]


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_look_before_the_end_needs_more_than_one_at_the_end() -> None:
    """A p-value counts only where the number of pairs was fixed before, and all were run."""
    claims = {True: 0, False: 0}
    for seed in range(60):
        for plan in (PLAN, replace(PLAN, stop_when_certain=True)):
            report = report_on(experiment(plan, noisy(0.92, seed)))
            claims[plan.stop_when_certain] += report.significant[PrimaryMeasure.P95]
    assert claims[True] < claims[False]


@pytest.mark.parametrize(
    ("pairs", "certain", "found"), [(7, False, True), (20, False, False), (7, True, False)]
)
def test_the_p_value_of_another_measure_counts_only_at_an_end_that_was_fixed(
    pairs: int, *, certain: bool, found: bool
) -> None:
    """Seven pairs all go one way, which is rare by chance, but by very different factors."""
    plan = replace(PLAN, pairs=pairs, stop_when_certain=certain)
    seen = experiment(plan, noisy(1.0), blocks=14)
    blocks = tuple(
        replace(one, worst_ms=50.0 * (1.1 if one.pair else 4.0) ** one.arm) for one in seen.blocks
    )
    report = report_on(replace(seen, blocks=blocks))
    p_value = report.ratios[PrimaryMeasure.WORST].p_value
    assert p_value is not None
    assert p_value < 0.02
    assert report.significant[PrimaryMeasure.WORST] is found


def test_arms_that_lose_blocks_unevenly_are_said_to_be_not_comparable() -> None:
    def lost(number: int) -> Loss:
        is_treatment = PLAN.arm_of(number) is Arm.TREATMENT
        return Loss.NO_REQUESTS if is_treatment and number > 10 else Loss.NONE

    seen = experiment(PLAN, noisy(0.8), lost)
    report = report_on(seen)
    assert report.losses_differ
    lines = report_lines(seen, report)
    assert any("not comparable" in line for line in lines)
    assert any("lost (too few requests)" in line for line in lines)
    even = report_on(experiment(PLAN, noisy(0.8), lambda k: Loss.LEASE if k < 6 else Loss.NONE))
    assert not even.losses_differ


def test_an_experiment_without_a_pair_says_so() -> None:
    seen = experiment(PLAN, noisy(1.0), lambda _: Loss.LOOP_SILENT, blocks=3)
    report = report_on(seen)
    assert report.primary is None
    assert report_rows(report) == []
    assert report_lines(seen, report)[-1] == "No pair of blocks is known yet."
    empty = replace(seen, blocks=())
    assert report_lines(empty, report_on(empty))[-1] == "No pair of blocks is known yet."


def test_the_status_says_where_it_is_and_what_was_lost() -> None:
    seen = experiment(PLAN, noisy(1.0), lambda k: Loss.LEASE if k == 1 else Loss.NONE, blocks=3)
    phase = Phase(block=3, blocks=40, arm=Arm.TREATMENT, measured=False, left_s=65.0)
    lines = status_lines(replace(seen, progress=Progress.RUNNING, ended_s=None, phase=phase))
    assert lines[0] == (
        "baseline is what decides without a policy, treatment is /policies/new.onnx "
        "(sha256 abababababab)"
    )
    assert "block 4 of 40: treatment, burn-in, 65 s left" in lines
    assert any("lost: a client's lease decided" in line for line in lines)


def test_the_report_says_what_was_counted_as_work() -> None:
    plan = replace(PLAN, primary=PrimaryMeasure.WORK)
    seen = experiment(plan, noisy(1.0))
    assert report_rows(report_on(seen))[0][0] == "processor time of the background (primary)"
    blocks = tuple(
        replace(one, work_unit="images", background_units_per_s=4.0 + one.arm)
        for one in seen.blocks
    )
    counted = replace(seen, blocks=blocks)
    report = report_on(counted)
    assert report_rows(report)[0][:2] == ("work of the background, in images (primary)", "1.250")
    assert "work of the background, in images is 25 % more" in report_lines(counted, report)[-1]
