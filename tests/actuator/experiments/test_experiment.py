"""An experiment on a node: its order, its blocks, and when it stops."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from stallward.actuator.errors import ExperimentError
from stallward.actuator.experiments.block_tally import (
    BlockResult,
    BlockTally,
    Loss,
    SlotTotals,
    TickFacts,
)
from stallward.actuator.experiments.plan import (
    Arm,
    Candidate,
    ExperimentPlan,
    PrimaryMeasure,
)
from stallward.actuator.experiments.state import (
    MOST_LOST_IN_A_ROW,
    Before,
    ExperimentState,
    Progress,
    measured,
    paired,
)
from stallward.agent.latency_histogram import LOG_WIDTH, LatencyHistogram, middle_ms


def plan(*, pairs: int = 20, seed: int = 1, certain: bool = False) -> ExperimentPlan:
    return ExperimentPlan(
        baseline=Candidate(),
        treatment=Candidate(policy="default", sha256="a" * 64),
        pairs=pairs,
        block_s=60.0,
        burn_in_s=10.0,
        seed=seed,
        stop_when_certain=certain,
    )


def started(wanted: ExperimentPlan) -> ExperimentState:
    return ExperimentState(plan=wanted, before=Before(), began_s=1e9)


def run(
    state: ExperimentState,
    p95_ms: Callable[[Arm], float],
    attainment: Callable[[Arm], float] = lambda _: 1.0,
    latencies: Callable[[Arm], LatencyHistogram | None] = lambda _: None,
    cores: Callable[[Arm, int], float | None] = lambda _arm, _pair: None,
) -> ExperimentState:
    while state.running:
        number = len(state.blocks)
        arm = state.plan.arm_of(number)
        block = BlockResult(
            pair=number // 2,
            arm=arm,
            began_s=0.0,
            seconds=60,
            attainment=attainment(arm),
            p95_ms=p95_ms(arm),
            worst_ms=1.0,
            batches=(attainment(arm),) * 6,
            latencies=latencies(arm),
            background_cores=cores(arm, number // 2),
        )
        state = state.with_block(block)
    return state


def test_each_pair_runs_both_arms_in_an_order_that_the_seed_draws() -> None:
    one, other = plan(pairs=200, seed=1), plan(pairs=200, seed=2)
    orders = [one.arm_of(2 * k) for k in range(200)]
    assert all(one.arm_of(2 * k + 1) is orders[k].other for k in range(200))
    assert 70 < sum(orders) < 130
    assert orders != [other.arm_of(2 * k) for k in range(200)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("pairs", 0), ("pairs", 1001), ("block_s", 1.0), ("burn_in_s", -1.0), ("margin", 2.0)],
)
def test_a_plan_with_a_number_out_of_range_is_refused(name: str, value: float) -> None:
    numbers = {"pairs": 10, "block_s": 60.0, "burn_in_s": 10.0, "margin": 0.05, name: value}
    with pytest.raises(ExperimentError, match=f"{name} is {value:g}"):
        ExperimentPlan(
            baseline=Candidate(),
            treatment=Candidate(policy="x"),
            seed=1,
            **numbers,  # type: ignore[arg-type]
        )


def test_all_pairs_are_run_where_nothing_differs() -> None:
    rng = random.Random(3)
    state = run(started(plan(certain=True)), lambda _: rng.lognormvariate(3.0, 0.1))
    assert state.progress is Progress.COMPLETE
    assert len(state.log_ratios(PrimaryMeasure.P95)) == 20


def test_it_stops_once_the_arms_certainly_differ() -> None:
    rng = random.Random(3)

    def p95_ms(arm: Arm) -> float:
        return rng.lognormvariate(3.0 + 0.3 * arm, 0.1)

    state = run(started(plan(certain=True)), p95_ms)
    assert state.progress is Progress.CERTAIN
    assert len(state.blocks) < 30
    assert sum(state.log_ratios(PrimaryMeasure.P95)) > 0


def test_a_fixed_number_of_pairs_is_run_however_certain_it_is() -> None:
    assert run(started(plan()), lambda arm: 10.0 + 10.0 * arm).progress is Progress.COMPLETE


@pytest.mark.slow
def test_experiments_with_equal_arms_rarely_stop_early() -> None:
    rng = random.Random(5)
    stopped = 0
    for seed in range(200):
        wanted = plan(pairs=40, seed=seed, certain=True)
        state = run(started(wanted), lambda _: rng.lognormvariate(3.0, 0.2))
        stopped += state.progress is Progress.CERTAIN
    assert stopped <= 0.05 * 200 + 8


def test_it_stops_when_the_treatment_certainly_keeps_the_target_less_often() -> None:
    state = run(started(plan()), lambda _: 10.0, lambda arm: 0.5 if arm else 1.0)
    assert state.progress is Progress.GUARDRAIL
    assert len(state.blocks) <= 4


def test_a_baseline_that_keeps_the_target_less_often_breaks_no_guardrail() -> None:
    state = run(started(plan()), lambda _: 10.0, lambda arm: 1.0 if arm else 0.5)
    assert state.progress is Progress.COMPLETE


def test_the_guardrail_breaks_within_a_block() -> None:
    state = started(plan())
    baseline = BlockResult(pair=0, arm=Arm.BASELINE, began_s=0.0, batches=(1.0,) * 6)
    state = state.with_block(baseline)
    assert not state.breaks_guardrail(Arm.TREATMENT, (0.0,) * 5)
    assert state.breaks_guardrail(Arm.TREATMENT, (0.0,) * 6)


def test_it_ends_when_block_after_block_is_lost() -> None:
    state = started(plan())
    for number in range(MOST_LOST_IN_A_ROW):
        assert state.running
        lost = BlockResult(
            pair=number // 2, arm=state.plan.arm_of(number), began_s=0.0, loss=Loss.LEASE
        )
        state = state.with_block(lost)
    assert state.progress is Progress.LOSSES
    assert state.log_ratios(PrimaryMeasure.P95) == ()


def test_a_pair_with_a_lost_block_does_not_count() -> None:
    state = run(started(plan(pairs=5)), lambda arm: 10.0 + arm)
    lost = BlockResult(pair=1, arm=Arm.BASELINE, began_s=0.0, loss=Loss.NO_REQUESTS)
    blocks = [one for one in state.blocks if (one.pair, one.arm) != (1, Arm.BASELINE)]
    less = ExperimentState(plan=state.plan, before=Before(), began_s=0.0, blocks=(*blocks, lost))
    assert less.log_ratios(PrimaryMeasure.P95) == pytest.approx([math.log(1.1)] * 4)


def ticks(seconds: int, p95_ms: Callable[[int], float | None]) -> list[TickFacts]:
    return [
        TickFacts(time_s=0.1 * k, p95_ms=p95_ms(k // 10), background_cpu_us=150_000 * k)
        for k in range(10 * seconds)
    ]


def tally(facts: list[TickFacts]) -> BlockResult:
    counted = BlockTally(slo_ms=20.0, silence_s=2.0)
    for one in facts:
        counted.take(one)
    return counted.result(pair=0, arm=Arm.BASELINE, began_s=1.0, block_s=60.0)


def test_a_block_counts_each_second_once() -> None:
    result = tally(ticks(60, lambda second: 40.0 if second % 10 == 0 else 10.0))
    assert result.loss is Loss.NONE
    assert result.seconds == 60
    assert result.attainment == pytest.approx(0.9)
    assert result.batches == pytest.approx([0.9] * 6)
    assert result.p95_ms == pytest.approx(math.exp(0.1 * math.log(40) + 0.9 * math.log(10)))
    assert result.worst_ms == 40.0
    assert result.background_cores == pytest.approx(1.5)


def test_the_percentiles_of_a_block_are_those_of_all_its_requests() -> None:
    """One second of a hundred has most of the requests, and all of the slow ones."""
    quiet, busy = (
        LatencyHistogram(buckets=(300,), counts=(1,)),
        LatencyHistogram(buckets=(300, 500), counts=(60, 40)),
    )
    facts = [
        replace(one, new_requests=busy if 300 <= k < 310 else quiet)
        for k, one in enumerate(ticks(60, lambda second: 40.0 if second == 30 else 10.0))
    ]
    result = tally(facts)
    assert result.latencies == LatencyHistogram(buckets=(300, 500), counts=(590 + 600, 400))
    assert measured(result, PrimaryMeasure.BLOCK_P99) == middle_ms(500)
    assert measured(result, PrimaryMeasure.BLOCK_P95) == middle_ms(500)
    assert result.worst_ms == 10.0, "the seconds hide it"


def test_ticks_without_latencies_take_none_away() -> None:
    known = LatencyHistogram(buckets=(300,), counts=(2,))
    facts = ticks(60, lambda _: 10.0)
    assert tally(facts).latencies is None
    assert measured(tally(facts), PrimaryMeasure.BLOCK_P99) is None
    some = [replace(one, new_requests=known if k % 2 else None) for k, one in enumerate(facts)]
    assert tally(some).latencies == LatencyHistogram(buckets=(300,), counts=(600,))


def test_it_stops_once_the_p99_of_blocks_certainly_differs() -> None:
    rng = random.Random(3)

    def latencies(arm: Arm) -> LatencyHistogram:
        slow = 500 + 15 * arm + rng.randrange(-2, 3)
        return LatencyHistogram(buckets=(300, slow), counts=(970, 30))

    wanted = replace(plan(certain=True), primary=PrimaryMeasure.BLOCK_P99)
    state = run(started(wanted), lambda _: 10.0, latencies=latencies)
    assert state.progress is Progress.CERTAIN
    assert len(state.blocks) < 30
    ratios = state.log_ratios(PrimaryMeasure.BLOCK_P99)
    assert sum(ratios) / len(ratios) == pytest.approx(15 * LOG_WIDTH, rel=0.2)
    assert set(state.log_ratios(PrimaryMeasure.P95)) == {0.0}


@pytest.mark.parametrize("idle", [None, Arm.BASELINE, Arm.TREATMENT])
def test_work_is_not_certain_where_an_arm_did_none_in_some_blocks(idle: Arm | None) -> None:
    rng = random.Random(3)

    def cores(arm: Arm, pair: int) -> float:
        return 0.0 if arm is idle and pair % 2 == 0 else 1.0 + 0.2 * arm + rng.gauss(0.0, 0.02)

    wanted = replace(plan(certain=True), primary=PrimaryMeasure.WORK)
    state = run(started(wanted), lambda _: 10.0, cores=cores)
    assert state.progress is (Progress.CERTAIN if idle is None else Progress.COMPLETE)


def silent(
    seconds: range, waited_s: float, *, slo_ms: float = 20.0, last: int = 60
) -> tuple[BlockTally, BlockResult]:
    """A block without answers in some seconds; the first one after them has waited so long."""
    counted = BlockTally(slo_ms=slo_ms, silence_s=2.0)
    for one in ticks(last, lambda second: None if second in seconds else 10.0):
        first = seconds.stop <= one.time_s < seconds.stop + 1
        longest_ms = None if one.p95_ms is None else 1e3 * waited_s if first else 10.0
        counted.take(replace(one, longest_ms=longest_ms))
    return counted, counted.result(pair=0, arm=Arm.TREATMENT, began_s=1.0, block_s=60.0)


def test_seconds_in_which_a_request_waited_are_missed() -> None:
    _, result = silent(range(20, 40), waited_s=20.5)
    assert (result.loss, result.seconds) == (Loss.NONE, 60)
    assert result.attainment == pytest.approx(40 / 60)
    assert result.batches == (1.0, 1.0, 0.0, 0.0, 1.0, 1.0)
    assert result.worst_ms == pytest.approx(17.5e3), "they count with what it had waited by then"


def test_seconds_in_which_the_application_was_idle_count_for_nothing() -> None:
    _, result = silent(range(20, 40), waited_s=0.01)
    assert (result.loss, result.seconds, result.attainment) == (Loss.NONE, 40, 1.0)


@pytest.mark.parametrize(("slo_ms", "missed"), [(20.0, 5), (1500.0, 4), (6000.0, 0)])
def test_of_idle_seconds_those_are_missed_in_which_a_request_waited_for_too_long(
    slo_ms: float, missed: int
) -> None:
    _, result = silent(range(20, 40), waited_s=5.0, slo_ms=slo_ms)
    assert result.seconds == 40 + missed
    assert result.attainment == pytest.approx(40 / (40 + missed))


def test_the_first_answer_after_a_block_tells_what_waited_at_its_end() -> None:
    tally, result = silent(range(10, 60), waited_s=0.0)
    assert (result.loss, result.seconds) == (Loss.NO_REQUESTS, 10)
    tally.note_answer(72.0, 1e3 * (72.0 - 10.5))
    late = tally.result(pair=0, arm=Arm.TREATMENT, began_s=1.0, block_s=60.0)
    assert (late.loss, late.seconds) == (Loss.NONE, 60), "what was after the block is not its own"
    assert late.attainment == pytest.approx(10 / 60)
    tally, idle = silent(range(10, 60), waited_s=0.0)
    tally.note_answer(72.0, 12.0)
    assert tally.result(pair=0, arm=Arm.TREATMENT, began_s=1.0, block_s=60.0) == idle


@pytest.mark.parametrize(
    ("answered", "ends"),
    [
        (lambda arm, _: 0 if arm else 60, Progress.GUARDRAIL),
        (lambda arm, _: 30 if arm else 60, Progress.GUARDRAIL),
        (lambda arm, _: 60 if arm else 30, Progress.COMPLETE),
        (lambda _, pair: 0 if pair % 3 else 60, Progress.COMPLETE),
        (lambda arm, pair: 0 if arm and pair < 2 else 60, Progress.COMPLETE),
    ],
    ids=["never", "by half", "baseline", "idle at times", "idle at first"],
)
def test_it_stops_when_there_certainly_are_fewer_answers(
    answered: Callable[[Arm, int], int], ends: Progress
) -> None:
    state = started(plan())
    while state.running:
        number = len(state.blocks)
        arm, pair = state.plan.arm_of(number), number // 2
        seconds = answered(arm, pair)
        loss = Loss.NONE if seconds >= 30 else Loss.NO_REQUESTS
        block = BlockResult(pair=pair, arm=arm, began_s=0.0, loss=loss, seconds=seconds)
        state = state.with_block(block)
    assert state.progress is ends
    assert ends is Progress.COMPLETE or len(state.blocks) <= 16


def test_a_block_with_few_requests_is_lost() -> None:
    result = tally(ticks(60, lambda second: 10.0 if second % 3 == 0 else None))
    assert (result.loss, result.seconds, result.p95_ms) == (Loss.NO_REQUESTS, 20, None)


@pytest.mark.parametrize(
    ("changed", "loss"),
    [
        ({"leased": True}, Loss.LEASE),
        ({"fits": False}, Loss.OTHER_CONTROLLER),
        ({"time_s": 70.0}, Loss.LOOP_SILENT),
    ],
)
def test_one_tick_that_does_not_fit_loses_the_block(changed: dict[str, float], loss: Loss) -> None:
    facts = ticks(60, lambda _: 10.0)
    values = {"time_s": 60.0, "p95_ms": 10.0, "background_cpu_us": 0, **changed}
    assert tally([*facts, TickFacts(**values)]).loss is loss  # type: ignore[arg-type]


def test_ticks_on_which_the_policy_fell_back_count() -> None:
    facts = ticks(60, lambda _: 10.0)
    facts[::4] = [
        TickFacts(
            time_s=x.time_s, p95_ms=10.0, background_cpu_us=x.background_cpu_us, fallback=True
        )
        for x in facts[::4]
    ]
    assert tally(facts).fallback_share == pytest.approx(0.25)


def test_unknown_processor_time_is_no_work() -> None:
    facts = [
        TickFacts(time_s=x.time_s, p95_ms=10.0, background_cpu_us=None)
        for x in ticks(60, lambda _: 10.0)
    ]
    assert tally(facts).background_cores is None


def working(
    seconds: int, units: Callable[[int], tuple[float, float]], unit: str = "steps"
) -> list[TickFacts]:
    """The ticks of two slots that count their work: ``units(tick)`` is units and known_s."""
    return [
        TickFacts(
            time_s=one.time_s,
            p95_ms=10.0,
            background_cpu_us=one.background_cpu_us,
            work_unit=unit,
            work=(SlotTotals(units=units(k)[0], known_s=units(k)[1]),) * 2,
        )
        for k, one in enumerate(ticks(seconds, lambda _: 10.0))
    ]


def test_work_is_counted_in_the_units_of_the_slots() -> None:
    result = tally(working(60, lambda k: (0.5 * k, 0.1 * k)))
    assert result.work_unit == "steps"
    assert result.background_units_per_s == pytest.approx(10.0)
    assert measured(result, PrimaryMeasure.WORK) == pytest.approx(10.0)
    without = tally(ticks(60, lambda _: 10.0))
    assert (without.work_unit, without.background_units_per_s) == ("", None)
    assert measured(without, PrimaryMeasure.WORK) == pytest.approx(1.5)


def test_a_counter_that_is_not_known_for_a_while_gives_the_rate_of_the_rest() -> None:
    """Nothing is known from the 20th to the 30th second, and the reader is restarted at 40 s."""

    def counted(k: int) -> tuple[float, float]:
        known = min(k, 200) + max(k - 300, 0)
        return (5.0 * (k - 400), 0.1 * (k - 400)) if k >= 400 else (5.0 * known, 0.1 * known)

    assert tally(working(60, counted)).background_units_per_s == pytest.approx(100.0)


def test_work_that_is_known_for_less_than_half_of_a_block_is_not_known() -> None:
    result = tally(working(60, lambda k: (float(min(k, 250)), 0.1 * min(k, 250))))
    assert (result.work_unit, result.background_units_per_s) == ("steps", None)
    assert measured(result, PrimaryMeasure.WORK) is None, "processor time is another measure"


def test_blocks_that_count_in_different_units_are_no_pair() -> None:
    blocks = [
        BlockResult(
            pair=k // 2,
            arm=Arm(k % 2),
            began_s=0.0,
            p95_ms=5.0,
            background_cores=1.0,
            background_units_per_s=2.0 + k % 2,
            work_unit="" if k == 0 else "steps",
        )
        for k in range(4)
    ]
    assert paired(blocks, PrimaryMeasure.WORK) == ((2.0, 3.0),)
    assert len(paired(blocks, PrimaryMeasure.P95)) == 2
