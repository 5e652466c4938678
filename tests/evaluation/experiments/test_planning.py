"""How many pairs of blocks an experiment needs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.experiments.plan import PrimaryMeasure
from stallward.env.recording.recording import Recording, Requests, Units
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.experiments.analysis import LABELLINGS, paired_ratio
from stallward.evaluation.experiments.planning import (
    LEAST_BURN_IN_S,
    blocks_of,
    burn_in_for,
    mixing_time_s,
    pair_spread,
    plan_experiment,
    plan_pairs,
    series_of_experiment,
    value_of,
)
from stallward.evaluation.measures.block_measures import BlockSeries, Progress
from stallward.evaluation.measures.intervals import mean_sequence, randomisation_p

RATE = 50


def series(minutes: float, *, spread: float = 0.2, working: bool = True) -> BlockSeries:
    """A run whose latencies and work change from minute to minute."""
    rng = np.random.default_rng(1)
    level = np.exp(rng.normal(0.0, spread, int(minutes) + 1))
    length_s = 60.0 * minutes
    scheduled = np.arange(0.0, length_s, 1.0 / RATE)
    minute = (scheduled // 60.0).astype(int)
    latency_s = 0.005 * level[minute] * rng.uniform(0.9, 1.0, scheduled.size)
    time_s = np.arange(0.0, length_s + 1.0)
    units = np.concatenate([[0.0], np.cumsum(level[(time_s[1:] // 60.0).astype(int)])])
    return BlockSeries(
        start_s=0.0,
        end_s=length_s,
        scheduled_s=scheduled,
        finished_s=scheduled + latency_s,
        ok=np.ones(scheduled.size, dtype=bool),
        progress=(Progress(time_s=time_s, units=units),) if working else (),
        tick_s=time_s,
        protected_psi_some_us=np.zeros(time_s.size),
        paused=np.zeros((time_s.size, 1)),
    )


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_spread_is_that_of_neighbouring_blocks() -> None:
    blocks = blocks_of(series(201.0), block_s=50.0, burn_in_s=10.0)
    assert len(blocks) == 201
    assert blocks[0].windows == 50
    for measure in PrimaryMeasure:
        found = pair_spread(blocks, measure)
        assert found.pairs == 100
        assert found.spread == pytest.approx(0.2 * np.sqrt(2.0), rel=0.25), measure


def test_work_is_the_sum_over_groups_as_in_an_experiment() -> None:
    """A small group that is always the same does not make the sum of all steadier."""
    alone = series(30.0)
    (own,) = alone.progress
    steady = Progress(time_s=own.time_s, units=1e-3 * own.time_s)
    both = replace(alone, progress=(own, steady))
    spreads = [
        pair_spread(blocks_of(one, block_s=50.0, burn_in_s=10.0), PrimaryMeasure.WORK).spread
        for one in (alone, both)
    ]
    assert spreads[1] == pytest.approx(spreads[0], rel=0.01)


@pytest.mark.parametrize(
    ("units", "done"), [(("steps", "steps"), 3.0), (("steps", "files"), 0.75), (("steps",), 1.0)]
)
def test_work_in_several_units_is_processor_time_as_in_an_experiment(
    units: tuple[str, ...], done: float
) -> None:
    slots = range(len(units))
    time_s = np.arange(0.0, 100.0, 0.5)
    restarted = np.where(time_s < 50.0, time_s, time_s - 50.0)
    cpu_us = {f"slot{slot}_cpu_usage_us": 1e6 * (0.5, 0.25)[slot] * restarted for slot in slots}
    recording = Recording(
        path=Path(),
        run=RunInfo(
            scenario="edge", condition="together", arm="none", seed=1, start_s=0.0, end_s=100.0,
            burn_in_s=0.0, sandbox_bytes=1 << 30, slo_ms=60.0, slot_names=("a", "b")[: len(units)],
            slot_units=units,
            node=NodeInfo(kind="v2", kernel="6.18", cpu_count=2, memory_total_bytes=1 << 32),
        ),
        ticks={"time_s": time_s, **cpu_us},
        actions={},
        requests=Requests.empty(),
        units=Units(
            slot=np.repeat(np.arange(len(units), dtype=np.int32), time_s.size),
            time_s=np.tile(time_s, len(units)),
            units=np.concatenate([(slot + 1.0) * time_s for slot in slots]),
        ),
    )  # fmt: skip
    (block,) = blocks_of(series_of_experiment(recording), block_s=40.0, burn_in_s=50.0)
    assert value_of(PrimaryMeasure.WORK, block) == pytest.approx(done)


def test_too_few_blocks_and_unknown_work_are_refused() -> None:
    with pytest.raises(MeasureError, match="3 pairs of blocks with a known block-p99 are too few"):
        pair_spread(blocks_of(series(7.0), block_s=50.0, burn_in_s=10.0), PrimaryMeasure.BLOCK_P99)
    idle = blocks_of(series(30.0, working=False), block_s=50.0, burn_in_s=10.0)
    assert pair_spread(idle, PrimaryMeasure.P95).pairs == 15
    with pytest.raises(MeasureError, match="0 pairs of blocks with a known work"):
        pair_spread(idle, PrimaryMeasure.WORK)
    with pytest.raises(MeasureError, match="0 pairs"):
        pair_spread((), PrimaryMeasure.WORK)
    busy = blocks_of(series(30.0), block_s=50.0, burn_in_s=10.0)
    with pytest.raises(MeasureError, match="different numbers of background groups"):
        pair_spread((*busy, *idle), PrimaryMeasure.WORK)
    assert pair_spread((*busy, *idle), PrimaryMeasure.P95).pairs == 30


@pytest.mark.parametrize("effect", [0.1, -0.2])
@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_as_many_pairs_as_planned_show_the_effect(effect: float) -> None:
    spread = 0.15
    plan = plan_pairs(spread, effect)
    assert plan.fixed_pairs is not None
    assert plan.sequential_pairs is not None
    assert plan.typical_pairs is not None
    assert plan.fixed_pairs < plan.sequential_pairs < 3 * plan.fixed_pairs
    assert plan.typical_pairs < plan.sequential_pairs
    rng = np.random.default_rng(2)
    shown = []
    for _ in range(200):
        ratio = np.exp(rng.normal(np.log1p(effect), spread, plan.fixed_pairs))
        low, high = (r := paired_ratio(np.ones(ratio.size), ratio).ratio).low, r.high
        assert low is not None
        assert high is not None
        shown.append(low > 1.0 or high < 1.0)
    # A report's randomisation test needs a pair or two more than these intervals.
    assert 0.7 < np.mean(shown) < 0.96


@pytest.mark.parametrize(("effect", "spread"), [(0.3, 0.05), (-0.3, 0.1), (0.2, 0.1)])
def test_few_pairs_are_enough_for_the_test_that_a_report_judges_by(
    effect: float, spread: float
) -> None:
    pairs = plan_pairs(spread, effect).fixed_pairs
    assert pairs is not None
    rng = np.random.default_rng(2)
    differences = rng.normal(np.log1p(effect), spread, size=(200, pairs))
    p_values = [randomisation_p(one, labellings=LABELLINGS, seed=1) for one in differences]
    assert np.mean([p is not None and p <= 0.05 for p in p_values]) > 0.75


@pytest.mark.parametrize("effect", [0.0, -1.0, math.inf, math.nan])
def test_an_effect_that_is_none_is_refused(effect: float) -> None:
    with pytest.raises(MeasureError, match="cannot be shown"):
        plan_experiment([series(30.0)], PrimaryMeasure.P95, effect, burn_in_s=10.0)


def test_small_effects_need_more_pairs_than_anybody_runs() -> None:
    assert plan_pairs(1.0, 0.01).fixed_pairs is None
    few, many = plan_pairs(0.1, 0.3).fixed_pairs, plan_pairs(0.1, 0.05).fixed_pairs
    assert few is not None
    assert many is not None
    assert few < many
    nothing_varies = plan_pairs(0.0, 0.1)
    assert nothing_varies.fixed_pairs == 6
    low, _ = mean_sequence(np.ones(10) + 1e-9 * np.arange(10))
    assert nothing_varies.sequential_pairs == 1 + np.argmax(low > 0.0)


def test_the_mixing_time_is_that_of_the_series() -> None:
    """An autoregressive series of the first order has the time (1 + a) / (1 - a)."""
    rng = np.random.default_rng(1)
    for share in (0.0, 0.6, 0.9):
        noise = rng.normal(size=50_000)
        values = np.zeros_like(noise)
        for k in range(1, values.size):
            values[k] = share * values[k - 1] + noise[k]
        values[::50] = np.nan
        expected = 0.5 * (1.0 + share) / (1.0 - share)
        assert mixing_time_s(values, 0.5) == pytest.approx(max(expected, 0.5), rel=0.15)
    assert mixing_time_s(np.full(100, 3.0), 1.0) == 1.0
    assert mixing_time_s(np.full(100, np.nan), 1.0) == 1.0


def test_the_burn_in_is_long_enough_to_forget() -> None:
    assert burn_in_for(0.5) == LEAST_BURN_IN_S
    assert burn_in_for(14.1) == 22.0
