"""The twin conserves pages and work, and effects have the right direction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.env.errors import TwinError
from stallward.env.twin.batch import TwinBatch
from stallward.env.twin.inputs.exogenous import (
    Exogenous,
    ProtectedProgram,
    SlotProgram,
    scenario_from_json,
    scenario_to_json,
)
from stallward.env.twin.inputs.parameters import (
    PARAMETER_NAMES,
    TwinParameters,
    as_mapping,
    from_mapping,
    from_unit,
    to_array,
    to_unit,
)
from stallward.env.twin.physics import stalls
from stallward.env.twin.physics.latency import pooled_quantiles
from stallward.env.twin.physics.pages import ANON, COLD, miss_probability
from stallward.evaluation.measures.block_measures import slo_windows_met

MIB_PAGES = 256.0
Array = NDArray[np.float64]

DETECTOR = Exogenous(
    name="detector",
    zone_bytes=600 << 20,
    swap_bytes=2 << 30,
    slo_ms=20.0,
    protected=ProtectedProgram(
        request_rate_per_s=15.0,
        service_s=0.0075,
        anon_pages=60 * MIB_PAGES,
        file_pages=150 * MIB_PAGES,
        cold_pages=150 * MIB_PAGES,
        touch_anon_pages=15 * MIB_PAGES,
        touch_file_pages=150 * MIB_PAGES,
        touch_cold_pages=37.0,
    ),
    slots=(
        SlotProgram(name="hog", units_per_s=100.0, anon_pages=(500 * MIB_PAGES,)),
        SlotProgram(
            name="writer",
            units_per_s=50.0,
            anon_pages=(20 * MIB_PAGES,),
            stream_pages_per_s=20e3,
            dirty_share=1.0,
        ),
        SlotProgram(
            name="phases",
            units_per_s=10.0,
            anon_pages=(10 * MIB_PAGES, 300 * MIB_PAGES, 50 * MIB_PAGES),
            file_pages=(0.0, 100 * MIB_PAGES, 200 * MIB_PAGES),
        ),
    ),
)


def make(batch: int, scenario: Exogenous = DETECTOR, seed: int = 0, **values: Any) -> TwinBatch:
    twin = TwinBatch([scenario], batch, seed=seed)
    twin.reset(
        np.ones(batch, dtype=bool),
        np.zeros(batch, dtype=np.int64),
        to_array([TwinParameters(**values)] * batch),
    )
    return twin


def free(batch: int) -> tuple[NDArray[np.bool_], Array]:
    return np.zeros((4, batch), dtype=bool), np.full((4, batch), np.inf)


def run(
    twin: TwinBatch, ticks: int, *, pause: Any = (), limit_mib: Any = (), **tuning: Any
) -> None:
    paused, limits = free(twin.batch)
    for i, value in enumerate(pause):
        paused[i] = value
    for i, value in enumerate(limit_mib):
        limits[i] = value * MIB_PAGES
    for _ in range(ticks):
        twin.set_levers(paused, limits, **tuning)
        twin.advance()


def p95_ms(twin: TwinBatch, before: Array | float = 0.0) -> float:
    return quantile_ms(twin, 0.95, before)


def quantile_ms(twin: TwinBatch, quantile: float, before: Array | float = 0.0) -> float:
    pooled = (twin.pooled - before).sum(axis=1, keepdims=True)
    return float(pooled_quantiles(pooled, (quantile,))[0, 0])


def test_pages_are_conserved_and_never_negative_under_random_parameters_and_levers() -> None:
    batch = 128
    rng = np.random.default_rng(1)
    twin = TwinBatch([DETECTOR], batch, seed=2)
    draws = from_unit(rng.random((len(PARAMETER_NAMES), batch)))
    twin.reset(np.ones(batch, dtype=bool), np.zeros(batch, dtype=np.int64), draws)
    for _ in range(80):
        paused = rng.random((4, batch)) < 0.4
        limits = np.where(rng.random((4, batch)) < 0.5, np.inf, rng.uniform(4e3, 1e5, (4, batch)))
        before_units = twin.nodes.units.copy()
        twin.set_levers(paused, limits, float(rng.choice([0.0, 60.0, 200.0])))
        twin.advance()
        zone = twin.nodes.zone_pages
        assert (twin.nodes.resident >= 0.0).all()
        assert (twin.nodes.resident.sum(axis=(0, 1)) <= zone * (1 + 1e-9)).all(), (
            "more pages in memory than the zone has"
        )
        assert (twin.nodes.resident <= twin.nodes.wanted + 1e-6).all(), (
            "pages in memory without an owner"
        )
        swapped = (twin.nodes.wanted[:, ANON] - twin.nodes.resident[:, ANON]).sum(axis=0)
        assert (swapped <= twin.nodes.swap_pages + 1e-3).all(), "more swapped than swap holds"
        assert (twin.nodes.dirty >= 0.0).all()
        assert (twin.nodes.dirty <= twin.nodes.resident[:, COLD] + 1e-6).all()
        assert (twin.nodes.units >= before_units).all()
        for share in (twin.nodes.stalled, twin.nodes.some, twin.nodes.full, twin.nodes.progress):
            assert np.isfinite(share).all()
            assert (share >= 0.0).all()
            assert (share <= 1.0 + 1e-9).all()
        assert (twin.nodes.full <= twin.nodes.some + 1e-9).all()
        assert (twin.nodes.progress[3] == 0.0).all(), "an absent slot does no work"
        assert (twin.nodes.resident[4] == 0.0).all()


def test_a_paused_slot_does_nothing_and_goes_on_where_it_stopped() -> None:
    twin = make(4)
    run(twin, 20)
    run(twin, 3, pause=(1, 1, 1))
    cursor, units = twin.nodes.cursor_s.copy(), twin.nodes.units.copy()
    run(twin, 30, pause=(1, 1, 1))
    np.testing.assert_array_equal(twin.nodes.cursor_s, cursor)
    np.testing.assert_array_equal(twin.nodes.units, units)
    run(twin, 3)
    assert (twin.nodes.cursor_s[:3] > cursor[:3]).all()
    assert (twin.nodes.cursor_s[:3] <= cursor[:3] + 0.3 + 1e-9).all(), (
        "stopped work is not caught up"
    )


def test_pausing_alone_leaves_pages_and_squeezing_takes_them() -> None:
    twin = make(4)
    run(twin, 30)
    before = twin.nodes.resident[1, ANON].mean()
    run(twin, 3, pause=(1, 1, 1))
    left = twin.nodes.resident[1, ANON].mean()
    assert left > 0.7 * before
    run(twin, 12, pause=(1, 1, 1), limit_mib=(16, 16, 16))
    assert twin.nodes.resident[1].sum(axis=0).max() <= 16 * MIB_PAGES + 1.0


def test_a_squeeze_takes_time() -> None:
    twin = make(1, squeeze_pages_per_s=150e3)
    run(twin, 30)
    held = float(twin.nodes.resident[1].sum())
    run(twin, 1, pause=(1, 1, 1), limit_mib=(16,))
    assert float(twin.nodes.resident[1].sum()) > held - 0.1 * 150e3 - 1.0


def test_pressure_hurts_latency_and_each_lever_helps() -> None:
    outcomes = {}
    arms: dict[str, dict[str, Any]] = {
        "none": {},
        "paused": {"pause": (1, 1, 1)},
        "limited": {"limit_mib": (120, 40, 60)},
    }
    for name, levers in arms.items():
        twin = make(16)
        run(twin, 40, **levers)
        before, answered = twin.nodes.psi_some_us[0].mean(), twin.pooled
        run(twin, 150, **levers)
        outcomes[name] = (
            p95_ms(twin, answered),
            twin.nodes.psi_some_us[0].mean() - before,
            twin.nodes.units[0].mean(),
        )
    assert outcomes["none"][0] > 3.0 * outcomes["paused"][0]
    assert outcomes["none"][0] > outcomes["limited"][0]
    assert outcomes["none"][1] > outcomes["limited"][1] >= outcomes["paused"][1]
    assert outcomes["limited"][2] > outcomes["paused"][2] == 0.0


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("read_latency_s", 5e-5, 5e-4),
        ("reclaim_s_per_page", 1e-6, 1e-5),
        ("touch_scale", 0.3, 1.0),
        ("cold_touch_scale", 0.3, 1.0),
        ("service_scale", 0.8, 1.3),
    ],
)
def test_latency_grows_with_what_makes_a_node_slower(name: str, low: float, high: float) -> None:
    latencies = []
    for value in (low, high):
        values: dict[str, Any] = {name: value}
        twin = make(16, replace(DETECTOR, slots=DETECTOR.slots[:1]), **values)
        run(twin, 150)
        latencies.append(p95_ms(twin))
    assert latencies[0] < latencies[1]


def test_more_memory_means_less_latency_and_more_work() -> None:
    results = []
    for mib in (500, 700, 2000):
        twin = make(16, replace(DETECTOR, zone_bytes=mib << 20))
        run(twin, 150)
        results.append((p95_ms(twin), twin.nodes.units[:3].sum()))
    assert results[0][0] > results[1][0] > results[2][0]
    assert results[0][1] < results[1][1] < results[2][1]
    assert results[2][0] < 23.0, "with room for all, only cores and the disk are shared"


def test_with_memory_for_all_nothing_stalls_and_work_runs_at_full_speed() -> None:
    scenario = replace(DETECTOR, zone_bytes=8 << 30, cores=8.0)
    twin = make(4, scenario)
    run(twin, 100)
    assert twin.nodes.psi_some_us[0].max() < 1.0
    assert twin.nodes.units[0].mean() == pytest.approx(1000.0, rel=0.02)


def test_an_ended_program_gives_its_memory_back_and_does_no_more() -> None:
    twin = make(2)
    run(twin, 30)
    ended = np.zeros((4, 2), dtype=bool)
    ended[0, 1] = True
    twin.end_slots(ended)
    assert twin.nodes.resident[1, :, 1].sum() == 0.0
    assert twin.nodes.resident[1, :, 0].sum() > 0.0
    units = twin.nodes.units[0].copy()
    run(twin, 10)
    assert twin.nodes.units[0, 1] == units[1]
    assert twin.nodes.units[0, 0] > units[0]


def test_early_writeback_keeps_fewer_dirty_pages() -> None:
    normal, flush = make(4), make(4)
    run(normal, 60)
    run(flush, 60, dirty_ratios=(0.02, 1.0))
    assert flush.nodes.dirty.sum() < normal.nodes.dirty.sum()


def test_swappiness_shifts_reclaim_from_files_to_anonymous_pages() -> None:
    scenario = replace(DETECTOR, slots=DETECTOR.slots[:1])
    low, high = make(8, scenario), make(8, scenario)
    run(low, 80, swappiness=10.0)
    run(high, 80, swappiness=150.0)
    assert high.nodes.resident[0, 1:].sum() > low.nodes.resident[0, 1:].sum()


def test_the_same_seed_gives_the_same_run_and_a_reset_starts_afresh() -> None:
    first, second = make(3, seed=5), make(3, seed=5)
    run(first, 30)
    run(second, 30)
    np.testing.assert_array_equal(first.pooled, second.pooled)
    np.testing.assert_array_equal(first.nodes.resident, second.nodes.resident)
    rows = np.array([False, True, False])
    kept = first.nodes.resident[:, :, 0].copy()
    first.reset(rows, np.zeros(1, dtype=np.int64), to_array([TwinParameters()]))
    assert first.nodes.time_s.tolist() == [pytest.approx(3.0), 0.0, pytest.approx(3.0)]
    assert first.nodes.units[:, 1].sum() == 0.0
    np.testing.assert_array_equal(first.nodes.resident[:, :, 0], kept)


def test_overload_builds_a_queue_whose_waits_grow() -> None:
    slow = replace(
        DETECTOR, slots=(), protected=replace(DETECTOR.protected, service_s=0.1, poisson=False)
    )
    twin = make(1, slow)
    run(twin, 20)
    early = twin.nodes.probe_ms.max()
    run(twin, 40)
    late = twin.nodes.probe_ms.max()
    # 15 requests a second of 0.1 s each: after 6 s the queue is 3 s long.
    assert early < 2000.0 < late < 5000.0


@pytest.mark.parametrize(("rate_per_s", "window_s", "slo_ms"), [(30.0, 1, 20.0), (12.0, 2, 500.0)])
def test_windows_are_judged_as_in_a_comparison(
    rate_per_s: float, window_s: int, slo_ms: float
) -> None:
    busy = replace(DETECTOR.protected, request_rate_per_s=rate_per_s, poisson=False)
    scenario = replace(DETECTOR, zone_bytes=560 << 20, protected=busy, slo_ms=slo_ms)
    twin = make(1, scenario, crowded_read_s=1e-6)
    count, ms, missed = [], [], []
    for _ in range(600):
        run(twin, 1)
        count.append(twin.nodes.probe_weight[:, 0].copy())
        ms.append(twin.nodes.probe_ms[:, 0].copy())
        missed.append(float(twin.nodes.missed[0]))
    times_s = 0.1 * np.arange(600)[:, None] + 0.01 + np.zeros((1, 4))
    arrived = np.array(count).astype(np.int64).ravel()
    met = slo_windows_met(
        np.repeat(times_s.ravel(), arrived),
        np.repeat(np.array(ms).ravel(), arrived),
        np.ones(arrived.sum(), dtype=bool),
        start_s=0.0,
        end_s=60.0,
        slo_ms=slo_ms,
    )
    assert len(met) == 60 // window_s
    assert 0 < met.sum() < len(met), "some meet it and some do not"
    at_close = np.array(missed)[10 * window_s - 1 :: 10 * window_s]
    np.testing.assert_array_equal(at_close == 0.0, met)


def test_parameters_survive_the_unit_cube_and_json() -> None:
    values = to_array([TwinParameters(), TwinParameters(read_latency_s=3e-4)])
    np.testing.assert_allclose(from_unit(to_unit(values)), values, rtol=1e-9)
    parameters = TwinParameters(coldness_exponent=2.0)
    assert from_mapping(as_mapping(parameters)) == parameters
    with pytest.raises(TwinError, match="unknown"):
        from_mapping({**as_mapping(parameters), "nonsense": 1.0})
    with pytest.raises(TwinError, match="outside"):
        from_mapping({**as_mapping(parameters), "read_latency_s": 5.0})
    assert scenario_from_json(scenario_to_json(DETECTOR)) == DETECTOR
    with pytest.raises(TwinError, match="does not fit"):
        scenario_from_json({**scenario_to_json(DETECTOR), "nonsense": 1})


@pytest.mark.parametrize(
    "change",
    [{"zone_bytes": 0}, {"slots": DETECTOR.slots * 2}, {"slo_ms": -1.0}],
)
def test_impossible_scenarios_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TwinError):
        replace(DETECTOR, **change)


def test_a_lack_hurts_a_scan_most_and_skewed_access_least() -> None:
    for lack in (0.02, 0.1, 0.5):
        scan, even, skewed = (
            miss_probability(1000.0 * (1.0 - lack), 1000.0, e) for e in (0.1, 1.0, 2.5)
        )
        assert even == pytest.approx(lack)
        assert skewed < even < scan < 1.0
    assert miss_probability(0.0, 0.0, 1.0) == 0.0
    near = [miss_probability(700.0, 1000.0, e) for e in (0.999, 1.001)]
    assert near[0] == pytest.approx(near[1], rel=0.01)


def test_a_program_that_stops_frees_its_memory_and_begins_anew() -> None:
    slot = SlotProgram(
        name="burst", units_per_s=10.0, anon_pages=(100 * MIB_PAGES,), running=(1.0, 1.0, 0.0, 0.0)
    )
    twin = make(2, replace(DETECTOR, slots=(slot,)))
    run(twin, 19)
    assert (twin.nodes.wanted[1, ANON] == 100 * MIB_PAGES).all()
    cursor_s, units = twin.nodes.cursor_s[0].copy(), twin.nodes.units[0].copy()
    assert (cursor_s > 1.0).all()
    run(twin, 5)
    assert (twin.nodes.wanted[1] == 0.0).all()
    assert (twin.nodes.resident[1] == 0.0).all()
    run(twin, 14)
    assert (twin.nodes.units[0] <= units + 1.1).all(), "a stopped program did work"
    run(twin, 5)
    assert (twin.nodes.wanted[1, ANON] > 0.0).all()
    assert (twin.nodes.cursor_s[0] < cursor_s).all()


def test_the_first_read_of_a_page_waits_for_the_disk_but_is_no_memory_stall() -> None:
    cold = replace(DETECTOR.protected, touch_anon_pages=0.0, touch_file_pages=0.0)
    twin = make(4, replace(DETECTOR, zone_bytes=8 << 30, protected=cold, slots=()))
    run(twin, 50)
    assert (twin.nodes.refault_pages[0] < 1.0).all()
    assert (twin.nodes.psi_some_us[0] < 1.0).all()
    assert (twin.nodes.psi_io_us[0] > 100.0).all()


def test_faults_of_the_background_take_processor_time_from_the_application() -> None:
    p50 = []
    for cost_s in (1e-6, 5e-5):
        twin = make(32, anon_fault_cpu_s=cost_s, cpu_slowdown=1.0)
        run(twin, 60, limit_mib=(64, 32, 32))
        p50.append(quantile_ms(twin, 0.5))
    assert p50[1] > 1.15 * p50[0]


def test_working_sets_repeat_without_the_start_up() -> None:
    slot = SlotProgram(
        name="grows", units_per_s=1.0, anon_pages=(5.0, 50.0, 60.0, 70.0), loop_from_s=2.0
    )
    twin = make(1, replace(DETECTOR, slots=(slot,)))
    seen = []
    for k in range(8):
        twin.nodes.cursor_s = k + 0.5
        run(twin, 1)
        seen.append(twin.nodes.target_anon[0, 0])
    assert seen == [5.0, 50.0, 60.0, 70.0, 60.0, 70.0, 60.0, 70.0]


def test_requests_come_at_the_rate_of_each_second() -> None:
    waves = replace(DETECTOR.protected, request_rate_per_s=100.0, rate_factors=(1.6, 0.4))
    twin = make(32, replace(DETECTOR, protected=waves, slots=()))
    arrived = []
    for _ in range(20):
        before = twin.pooled.sum()
        run(twin, 10)
        arrived.append((twin.pooled.sum() - before) / twin.batch)
    # A second may begin a tick late: 0.1 has no exact sum.
    assert 145.0 < np.mean(arrived[::2]) < 165.0
    assert 35.0 < np.mean(arrived[1::2]) < 55.0


def test_short_memory_makes_the_kernel_write_even_few_dirty_pages() -> None:
    writer = replace(DETECTOR.slots[1], stream_pages_per_s=2e3, stream_span_pages=8e3)
    dirty = {}
    for name, hog_mib in (("plenty", 50.0), ("short", 500.0)):
        hog = replace(DETECTOR.slots[0], anon_pages=(hog_mib * MIB_PAGES,))
        twin = make(8, replace(DETECTOR, slots=(hog, writer)))
        run(twin, 100)
        dirty[name] = float(twin.nodes.dirty[2].mean())
    threshold = 0.10 * (600 << 20) / 4096
    assert 0.3 * 8e3 < dirty["plenty"] < threshold, "no pressure makes the kernel write them"
    assert dirty["short"] < 0.5 * dirty["plenty"]


def test_pages_lost_without_pressure_are_read_again() -> None:
    read_per_s = []
    for lost_per_s in (0.0, 40.0):
        kept = replace(DETECTOR.protected, cold_pages=6000.0, idle_loss_pages_per_s=lost_per_s)
        twin = make(8, replace(DETECTOR, zone_bytes=8 << 30, protected=kept))
        run(twin, 600)  # all of it has been read for the first time
        before = twin.nodes.refault_pages[0].mean()
        run(twin, 300)
        read_per_s.append(float(twin.nodes.refault_pages[0].mean() - before) / 30.0)
    assert read_per_s == [pytest.approx(0.0, abs=0.1), pytest.approx(40.0, rel=0.1)]


def test_reads_of_the_application_wait_behind_those_of_a_program_that_is_limited() -> None:
    cold = replace(
        DETECTOR.protected,
        service_s=0.0003,
        touch_anon_pages=0.0,
        touch_file_pages=0.0,
        touch_cold_pages=20.0,
    )
    reader = SlotProgram(
        name="reader", units_per_s=200.0, touch_pages_per_s=50e3, file_pages=(160 * MIB_PAGES,)
    )
    scenario = replace(DETECTOR, zone_bytes=8 << 30, protected=cold, slots=(reader,))
    tail_ms = {}
    for crowded_s in (1e-6, 2e-3):
        for name, levers in (
            ("free", {}),
            ("limited", {"limit_mib": (32,)}),
            ("held", {"limit_mib": (32,), "pause": (1,)}),
        ):
            twin = make(16, scenario, crowded_read_s=crowded_s, read_around_pages=8.0)
            run(twin, 30, **levers)  # files are read for the first time
            before = twin.pooled
            run(twin, 100, **levers)
            tail_ms[name, crowded_s] = p95_ms(twin, before)
    assert tail_ms["limited", 2e-3] > 3.0 * tail_ms["free", 2e-3]
    assert tail_ms["limited", 2e-3] > 3.0 * tail_ms["limited", 1e-6]
    assert tail_ms["held", 2e-3] < tail_ms["free", 2e-3], "no other program uses the cores"


def test_pages_read_around_others_keep_the_device_busy_and_slow_the_reader() -> None:
    slot = SlotProgram(
        name="reader", units_per_s=200.0, touch_pages_per_s=50e3, file_pages=(160 * MIB_PAGES,)
    )
    busy, refaults, units = [], [], []
    for around in (1.0, 16.0):
        twin = make(4, replace(DETECTOR, slots=(slot,)), read_around_pages=around)
        run(twin, 100, limit_mib=(32,))
        busy.append(float(twin.nodes.busy_share.mean()))
        refaults.append(float(twin.nodes.refault_pages[1].mean()))
        units.append(float(twin.nodes.units[0].mean()))
    assert busy[1] > 1.5 * busy[0]
    assert refaults[1] > refaults[0]
    assert units[1] < units[0]


def test_the_wait_behind_other_reads_grows_with_the_busy_share_but_stays_finite() -> None:
    waits = [stalls.crowd_wait_s(1e-3, busy) for busy in (0.0, 0.25, 0.5, 0.9, 1.0)]
    assert waits[0] == 0.0
    assert waits[2] == pytest.approx(1e-3)
    assert waits == sorted(waits)
    assert waits[-1] < 0.05


def test_a_program_waits_behind_the_reads_of_others_but_not_behind_its_own() -> None:
    reader = SlotProgram(
        name="reader", units_per_s=200.0, touch_pages_per_s=50e3, file_pages=(160 * MIB_PAGES,)
    )
    other = replace(reader, name="other")
    done = {}
    for crowded_s in (1e-6, 2e-3):
        for slots in ((reader,), (reader, other)):
            twin = make(8, replace(DETECTOR, zone_bytes=8 << 30, slots=slots, cores=8.0),
                        crowded_read_s=crowded_s, cpu_slowdown=0.0)  # fmt: skip
            run(twin, 100, limit_mib=(32,) * len(slots))
            done[len(slots), crowded_s] = float(twin.nodes.units[0].mean())
    assert done[1, 2e-3] == pytest.approx(done[1, 1e-6], rel=0.05)
    assert done[2, 2e-3] < 0.7 * done[2, 1e-6]


def test_waits_for_swap_and_for_files_count_differently_as_stall_for_memory() -> None:
    stall_us = {}
    for name, file, anon in (("files", 1.0, 0.001), ("swap", 0.05, 1.0)):
        hogged = replace(DETECTOR, slots=DETECTOR.slots[:1])
        twin = make(4, hogged, psi_file_scale=file, psi_anon_scale=anon)
        run(twin, 100)
        stall_us[name] = twin.nodes.psi_some_us.mean(axis=1)
        assert (twin.nodes.psi_io_us[:2].mean(axis=1) > 0.0).all()
    app, hog = 0, 1  # the application reads files, the hog has none
    assert stall_us["files"][app] > stall_us["files"][hog]
    assert stall_us["swap"][hog] > 100.0 * stall_us["files"][hog]


def test_a_writer_at_its_limit_has_its_pages_written_and_keeps_its_own() -> None:
    writer = replace(DETECTOR.slots[1], stream_pages_per_s=4e3, stream_span_pages=24e3)
    plenty = replace(DETECTOR, zone_bytes=2 << 30, slots=(writer,))
    free, limited = make(8, plenty), make(8, plenty)
    run(free, 150)
    # 4096 pages: a tenth of those at which writeback starts on this node.
    run(limited, 150, limit_mib=(16 + 20,))
    assert limited.nodes.units[0].mean() > 0.8 * free.nodes.units[0].mean()
    assert limited.nodes.swap_out_pages.mean() < 0.1 * 20 * MIB_PAGES
    assert limited.nodes.dirty[1].max() <= 16 * MIB_PAGES


def test_a_group_at_its_limit_pays_for_making_room_in_memory_stall_alone() -> None:
    writer = replace(DETECTOR.slots[1], stream_pages_per_s=4e3, stream_span_pages=24e3)
    plenty = replace(DETECTOR, zone_bytes=2 << 30, slots=(writer,))
    stall_us, units = {}, {}
    for name, limit_mib in (("free", np.inf), ("limited", 16 + 20)):
        twin = make(4, plenty, reclaim_s_per_page=50e-6)
        run(twin, 150, limit_mib=(limit_mib,))
        stall_us[name] = float(twin.nodes.psi_some_us[1].mean())
        units[name] = float(twin.nodes.units[0].mean())
        assert twin.nodes.psi_io_us[1].max() < 0.001 * 15e6
    assert stall_us["free"] == 0.0
    # 80 pages for each unit of work, of which a sixth is in memory still; 50 us for each.
    expected = 50.0 * 80.0 * units["limited"] * (1.0 - 4096.0 / 24e3)
    assert stall_us["limited"] == pytest.approx(expected, rel=0.1)
    assert units["limited"] < units["free"]


def test_dirty_pages_of_a_paused_group_are_not_written_for_its_limit() -> None:
    writer = replace(DETECTOR.slots[1], stream_pages_per_s=4e3, stream_span_pages=24e3)
    twin = make(4, replace(DETECTOR, zone_bytes=2 << 30, slots=(writer,)))
    run(twin, 150, limit_mib=(16 + 20,))
    run(twin, 5, limit_mib=(16 + 20,), pause=(1,))
    before = twin.nodes.dirty[1].copy()
    run(twin, 50, limit_mib=(16 + 20,), pause=(1,))
    np.testing.assert_array_equal(twin.nodes.dirty[1], before)


def test_a_program_that_starts_reads_its_files_as_fast_as_the_disk_gives_them() -> None:
    loop = SlotProgram(
        name="loop",
        units_per_s=200.0,
        touch_pages_per_s=5e3,
        fill_pages_per_s=200e3,
        file_pages=(160 * MIB_PAGES,),
    )
    twin = make(2, replace(DETECTOR, zone_bytes=2 << 30, slots=(loop,)))
    held = []
    for _ in range(4):
        run(twin, 1)
        held.append(float(twin.nodes.resident[1].sum(axis=0).mean()))
    # 20,000 pages a tick, though it touches 500 in that time.
    assert held == pytest.approx([20e3, 40e3, 40960.0, 40960.0], rel=0.01)
    assert twin.nodes.refault_pages[1].max() == 0.0, "first reads count as refaults"
    run(twin, 20, limit_mib=(32,))
    assert twin.nodes.refault_pages[1].min() > 0.0, "later reads do not count as refaults"


def test_filling_keeps_the_device_busy() -> None:
    loop = SlotProgram(
        name="loop", units_per_s=200.0, fill_pages_per_s=50e3, file_pages=(320 * MIB_PAGES,)
    )
    twin = make(2, replace(DETECTOR, zone_bytes=2 << 30, slots=(loop,)))
    run(twin, 5)
    assert twin.nodes.busy_share.min() > 0.5
    run(twin, 30)
    assert twin.nodes.busy_share.max() < 0.05


def test_a_task_waits_for_a_cpu_before_all_are_busy() -> None:
    shares = [stalls.cpu_some(demand, 2.0) for demand in (0.0, 0.5, 1.0, 2.0, 3.0, 40.0)]
    assert shares[0] == 0.0
    # P(more than two of a Poisson number) for 0.5 and 1.
    assert shares[1:3] == pytest.approx([0.01439, 0.08030], abs=1e-5)
    assert shares == sorted(shares)
    assert shares[4:] == [1.0, 1.0]
    assert stalls.cpu_some(3.0, 8.0) < 0.01


def test_files_read_for_the_first_time_leave_those_of_others_alone() -> None:
    loop = SlotProgram(
        name="loop", units_per_s=200.0, fill_pages_per_s=200e3, file_pages=(400 * MIB_PAGES,)
    )
    twin = make(4, replace(DETECTOR, slots=(loop,)), read_pages_per_s=2e4)
    before = twin.nodes.resident[0].sum(axis=0).copy()
    run(twin, 6)
    assert twin.nodes.wanted[1].sum(axis=0).mean() == pytest.approx(102.4e3, rel=0.01)
    assert twin.nodes.resident.sum(axis=(0, 1)).min() > 0.98 * (600 << 20) / 4096, "all is taken"
    kept = twin.nodes.resident[0].sum(axis=0) / before
    assert kept.min() > 0.95, "first reads evicted pages of other groups"
