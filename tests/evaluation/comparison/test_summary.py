"""The table of a comparison is computed from known blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
import pytest

from stallward.evaluation.comparison.summary import tabulate
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.measures.block_measures import BlockMeasures
from stallward.evaluation.measures.estimates import Blocks, Target, estimate
from stallward.evaluation.results.comparison import ArmFacts, Metrics, Table
from stallward.evaluation.results.interval import UNKNOWN, Interval


def block(
    latency_ms: float,
    *,
    units: tuple[float, ...] = (),
    psi: float = 0.0,
    paused: float = 0.0,
    seconds: int = 10,
    seed: int = 0,
    spread: float = 0.0,
) -> BlockMeasures:
    """A block with 25 requests a second of about ``latency_ms``."""
    rng = np.random.default_rng(seed)
    scheduled = np.arange(25 * seconds) / 25.0
    return BlockMeasures(
        duration_s=float(seconds),
        scheduled_s=scheduled,
        latency_ms=latency_ms * np.exp(spread * rng.normal(size=scheduled.size)),
        ok=np.ones(scheduled.size, dtype=bool),
        units=np.tile(np.asarray(units, dtype=np.float64), (seconds, 1)),
        psi_some_s=np.full(seconds, psi),
        paused_s=np.full(seconds, paused),
    )


def _blocks(rounds: int, spread: float = 0.0) -> dict[str, list[BlockMeasures]]:
    numbers = range(rounds)
    return {
        "alone": [block(10.0, seed=r, spread=spread) for r in numbers],
        "ample": [block(12.0, units=(8.0, 1.0), seed=r + 10, spread=spread) for r in numbers],
        "background": [block(1.0, units=(10.0, 2.0)) for _ in numbers],
        "none": [
            block(100.0, units=(10.0, 1.0), psi=0.4, seed=r + 20, spread=spread) for r in numbers
        ],
        "latd": [
            block(15.0, units=(5.0, 0.0), paused=0.75, seed=r + 30, spread=spread) for r in numbers
        ],
    }


def summarise(
    blocks: Mapping[str, Blocks],
    arms: list[str],
    *,
    slo_ms: float,
    seed: int,
    slo_quantile: float = 0.95,
    targets: Sequence[Target] = (),
) -> Table:
    estimates = estimate(
        blocks, arms, slo_ms=slo_ms, seed=seed, slo_quantile=slo_quantile, targets=targets
    )
    facts = {arm: ArmFacts(controller=arm) for arm in arms}
    return tabulate(estimates, facts, target_stated=True)


@pytest.fixture(scope="module")
def summary() -> Table:
    """Three rounds of two arms whose numbers are known."""
    return summarise(_blocks(3), ["none", "latd"], slo_ms=18.0, seed=1)


def test_several_rounds_are_resampled_by_block(summary: Table) -> None:
    assert summary.resampled == "blocks"
    assert summary.arms["none"].blocks == 3


def test_the_figures_of_application_and_background_alone_are_in_the_table(summary: Table) -> None:
    assert summary.alone.protected.p95_ms == pytest.approx(10.0)
    assert summary.alone.protected.requests == 750
    assert summary.alone.background.units_per_s == pytest.approx(12.0)


def test_impact_is_relative_to_the_latency_alone_or_ample(summary: Table) -> None:
    none = summary.arms["none"].metrics
    assert none.p95_ms.value == pytest.approx(100.0)
    assert none.impact_p95.value == pytest.approx(9.0)
    assert none.impact_ample_mean.value == pytest.approx(100.0 / 12.0 - 1.0)


def test_each_arm_has_its_attainment_work_pressure_and_pauses(summary: Table) -> None:
    none, latd = summary.arms["none"].metrics, summary.arms["latd"].metrics
    assert none.slo_attainment.value == 0.0
    assert latd.slo_attainment.value == 1.0
    assert none.background_work.value == pytest.approx((1.0 + 0.5) / 2)
    assert latd.background_work.value == pytest.approx(0.25)
    assert none.psi_some_share.value == pytest.approx(0.4)
    assert latd.paused_share.value == pytest.approx(0.75)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_every_metric_has_an_interval_around_it(rounds: int) -> None:
    table = summarise(_blocks(rounds, spread=0.5), ["none", "latd"], slo_ms=18.0, seed=1)
    for arm in table.arms.values():
        for one in fields(Metrics):
            low, value, high = _ends(getattr(arm.metrics, one.name))
            assert low <= value <= high, one.name
        low, _, high = _ends(arm.metrics.p95_ms)
        assert low < high


def _ends(figure: Interval) -> tuple[float, float, float]:
    assert figure.low is not None
    assert figure.value is not None
    assert figure.high is not None
    return figure.low, figure.value, figure.high


def test_without_any_answer_with_ample_memory_nothing_is_estimated() -> None:
    blocks = _blocks(2)
    blocks["ample"] = [replace(b, ok=np.zeros_like(b.ok)) for b in blocks["ample"]]
    with pytest.raises(MeasureError, match="answered"):
        summarise(blocks, ["none"], slo_ms=18.0, seed=1)


def test_attainment_is_judged_at_the_quantile_of_the_target() -> None:
    blocks = _blocks(2)
    late = [
        replace(b, latency_ms=np.where(np.arange(b.ok.size) % 40, 10.0, 90.0))
        for b in blocks["none"]
    ]
    blocks["none"] = late
    met = {
        q: summarise(blocks, ["none"], slo_ms=50.0, slo_quantile=q, seed=1)
        .arms["none"]
        .metrics.slo_attainment.value
        for q in (0.95, 0.99)
    }
    assert met == {0.95: 1.0, 0.99: 0.0}


def test_one_round_is_resampled_by_windows() -> None:
    table = summarise(_blocks(1, spread=0.5), ["none"], slo_ms=18.0, seed=1)
    assert table.resampled == "windows"


def test_longer_windows_are_fewer_units_to_resample() -> None:
    """A window lasts until it has 20 requests, so that few requests give few windows."""
    blocks = _blocks(1, spread=0.5)
    long = {name: [_thinned(one[0])] for name, one in blocks.items()}
    table = summarise(long, ["none", "latd"], slo_ms=60.0, seed=1)
    estimated = estimate(long, ["none", "latd"], slo_ms=60.0, seed=1)
    assert len(estimated.figures["none"].met[0]) == 5, "windows of two seconds each"
    (contrast,) = table.contrasts
    assert contrast.p95_ratio.low is not None, "two runs of five seconds"
    assert contrast.slo_attainment_difference.low is None, "one run of five windows"


def _thinned(one: BlockMeasures) -> BlockMeasures:
    """A copy of a block with 12.5 requests a second."""
    return replace(
        one,
        scheduled_s=one.scheduled_s[::2],
        latency_ms=one.latency_ms[::2],
        ok=one.ok[::2],
    )


def test_resampling_is_reproducible() -> None:
    blocks = _blocks(3, spread=0.5)
    first = summarise(blocks, ["none"], slo_ms=18.0, seed=1)
    assert summarise(blocks, ["none"], slo_ms=18.0, seed=1) == first


def test_an_impact_varies_with_its_reference() -> None:
    """``none`` never varies here, but its impact must, because ``alone`` does."""
    blocks = _blocks(4)
    blocks["alone"] = [block(level) for level in (8.0, 10.0, 12.0, 14.0)]
    metrics = summarise(blocks, ["none"], slo_ms=18.0, seed=1).arms["none"].metrics
    assert metrics.p95_ms.low == pytest.approx(metrics.p95_ms.high)
    low, _, high = _ends(metrics.impact_mean)
    assert high - low > 1.0


def test_unknown_units_and_psi_are_null() -> None:
    blocks = _blocks(2)
    nan = float("nan")
    blocks["none"] = [block(100.0, units=(nan, nan), psi=nan) for _ in range(2)]
    metrics = summarise(blocks, ["none"], slo_ms=18.0, seed=1).arms["none"].metrics
    assert metrics.background_work == metrics.psi_some_share == UNKNOWN


def test_missing_conditions_and_requests_are_errors() -> None:
    blocks = _blocks(2)
    with pytest.raises(MeasureError, match="no finished block of 'ppo'"):
        summarise(blocks, ["ppo"], slo_ms=1.0, seed=1)
    blocks["alone"] = [block(1.0, seconds=1) for _ in range(2)]
    empty = blocks["alone"][0]
    blank = BlockMeasures(
        duration_s=1.0,
        scheduled_s=empty.scheduled_s[:0],
        latency_ms=empty.latency_ms[:0],
        ok=empty.ok[:0],
        units=empty.units,
        psi_some_s=empty.psi_some_s,
        paused_s=empty.paused_s,
    )
    blocks["alone"] = [blank, blank]
    with pytest.raises(MeasureError, match="No request"):
        summarise(blocks, ["none"], slo_ms=1.0, seed=1)


def test_arms_are_compared_round_by_round() -> None:
    blocks = _blocks(4)
    # Each round is twice as slow as the one before, for both: only the contrast is certain.
    for name, ms, seed in (("none", 100.0, 0), ("latd", 80.0, 9)):
        blocks[name] = [
            block(ms * 2.0**r, units=(5.0, 1.0), seed=seed + r, spread=0.1) for r in range(4)
        ]
    table = summarise(blocks, ["none", "latd"], slo_ms=212.0, seed=1)
    (contrast,) = table.contrasts
    assert (contrast.arm, contrast.against) == ("none", "latd")
    low, ratio, high = _ends(contrast.p95_ratio)
    assert ratio == pytest.approx(1.25, rel=0.05)
    assert 1.1 < low < ratio < high < 1.4
    none, latd = (_ends(table.arms[name].metrics.p95_ms) for name in ("none", "latd"))
    assert none[0] < latd[2], "the intervals of the arms do not overlap"
    assert contrast.background_work_ratio.value == pytest.approx(1.0)
    assert contrast.slo_attainment_difference.value == pytest.approx(-0.25, abs=0.1)


def test_the_spread_of_an_arm_is_measured_over_rounds() -> None:
    blocks = _blocks(3)
    blocks["none"] = [block(12.0 * (1.0 + r), seed=r) for r in range(3)]
    spread = summarise(blocks, ["none", "latd"], slo_ms=30.0, seed=1).arms["none"].spread
    assert spread.impact_ample_p99_sd == pytest.approx(1.0)  # of 0, 1 and 2
    assert spread.impact_ample_p99_worst == pytest.approx(2.0)
    assert spread.slo_attainment_worst == 0.0
    single = summarise(_blocks(1), ["none", "latd"], slo_ms=30.0, seed=1)
    assert single.arms["none"].spread.impact_ample_p99_sd is None
    assert len(single.contrasts) == 1


def _with_web(one: BlockMeasures, slow_seconds: Sequence[int]) -> BlockMeasures:
    """A block with a second application, which takes 40 ms in some seconds and 3 ms in others."""
    slow = np.isin(one.scheduled_s.astype(int), slow_seconds)
    return replace(one, others={"web": replace(one, latency_ms=np.where(slow, 40.0, 3.0))})


@pytest.mark.parametrize("rounds", [1, 2])
def test_each_of_several_applications_is_judged_by_its_own_target(rounds: int) -> None:
    def cache_block(slow_seconds: Sequence[int], seed: int) -> BlockMeasures:
        one = block(10.0, units=(1.0,), seed=seed)
        slow = np.isin(one.scheduled_s.astype(int), slow_seconds)
        return replace(one, latency_ms=np.where(slow, 30.0, 10.0))

    numbers = range(rounds)
    blocks = {
        name: [_with_web(cache_block(cache, r), web) for r in numbers]
        for name, cache, web in (
            ("alone", [], []),
            ("ample", [], []),
            ("background", [], []),
            ("none", [0, 1, 2], [2, 3]),
        )
    }
    targets = (
        Target(ms=20.0, quantile=0.95, application="cache"),
        Target(ms=5.0, quantile=0.95, application="web"),
    )
    table = summarise(blocks, ["none"], slo_ms=20.0, seed=1, targets=targets)
    assert table.applications is not None
    cache, web = table.applications["none"]
    assert (cache.application, cache.slo_ms, web.application, web.slo_ms) == (
        "cache",
        20,
        "web",
        5,
    )
    assert cache.slo_attainment.value == pytest.approx(0.7)
    assert web.slo_attainment.value == pytest.approx(0.8)
    assert cache.p95_ms.value == pytest.approx(30.0)
    assert web.p95_ms.value == pytest.approx(40.0)
    none = table.arms["none"].metrics
    assert none.slo_attainment.value == pytest.approx(0.6), "4 of 10 seconds miss one of the two"
    assert none.p95_ms.value == pytest.approx(30.0), "latencies are those of the first"
    assert table.references.ample.slo_attainment.value == 1.0
    assert set(table.applications) == {"alone", "ample", "none"}
    if rounds == 1:
        assert web.slo_attainment.low is not None


def test_one_application_has_no_table_of_its_own(summary: Table) -> None:
    assert summary.applications is None
