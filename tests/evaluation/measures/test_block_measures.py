"""The measures of a block are those computed by hand from its series."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stallward.env.recording.recording import Requests, Units, load_recording, write_recording
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.evaluation.errors import MeasureError
from stallward.evaluation.measures.block_measures import BlockSeries, Progress, reduce, series_of
from stallward.proto.v1 import stallward_pb2 as pb


@pytest.fixture
def series() -> BlockSeries:
    ticks = 100.0 + 0.1 * np.arange(61, dtype=np.float64)
    return BlockSeries(
        start_s=102.0,
        end_s=106.0,
        scheduled_s=np.array([101.0, 102.5, 103.5, 105.5, 107.0]),
        finished_s=np.array([101.1, 102.6, 105.5, np.nan, 107.1]),
        ok=np.array([True, True, True, False, True]),
        progress=(
            Progress(time_s=np.array([100.0, 106.0]), units=np.array([0.0, 60.0])),
            Progress(time_s=np.array([100.0, 104.0, 106.0]), units=np.array([5.0, 5.0, 25.0])),
        ),
        tick_s=ticks,
        protected_psi_some_us=np.where(ticks < 103.0, 0.0, (ticks - 103.0) * 0.5e6),
        paused=np.stack([(ticks >= 104.0).astype(float), np.zeros(ticks.size)], axis=1),
    )


def test_requests_count_from_their_schedule_and_only_after_the_burn_in(
    series: BlockSeries,
) -> None:
    block = reduce(series)
    np.testing.assert_allclose(block.scheduled_s, [0.5, 1.5, 3.5])
    # The last request had waited 500 ms when the block ended, and is a violation.
    np.testing.assert_allclose(block.latency_ms, [100.0, 2000.0, 500.0])
    assert block.ok.tolist() == [True, True, False]


def test_a_failed_request_is_slower_than_every_answered_one(series: BlockSeries) -> None:
    refused = replace(
        series,
        scheduled_s=np.array([102.5, 103.5, 105.5]),
        finished_s=np.array([102.501, 105.5, 106.002]),
        ok=np.array([False, True, False]),
    )
    block = reduce(refused)
    # A refused request counts with the whole block, an unfinished one with its wait.
    np.testing.assert_allclose(block.latency_ms, [4000.0, 2000.0, 502.0])
    assert block.ok.tolist() == [False, True, False]


def test_units_stall_and_pauses_per_window(series: BlockSeries) -> None:
    block = reduce(series)
    assert (block.duration_s, block.windows) == (4.0, 4)
    np.testing.assert_allclose(block.units, [[10, 0], [10, 0], [10, 10], [10, 10]])
    np.testing.assert_allclose(block.psi_some_s, [0.0, 0.5, 0.5, 0.5], atol=1e-9)
    np.testing.assert_allclose(block.paused_s, [0.0, 0.0, 0.5, 0.5], atol=1e-9)


def test_latency_windows_hold_every_request_once(series: BlockSeries) -> None:
    block = reduce(series)
    assert [len(w) for w in block.latency_windows()] == [1, 1, 0, 1]


def test_unknown_psi_stays_unknown(series: BlockSeries) -> None:
    unknown = np.full(series.tick_s.size, np.nan)
    assert np.isnan(reduce(replace(series, protected_psi_some_us=unknown)).psi_some_s).all()


def test_a_group_without_a_source_of_units_is_unknown_not_idle(series: BlockSeries) -> None:
    silent = Progress(time_s=np.array([]), units=np.array([]))
    block = reduce(replace(series, progress=(series.progress[0], silent)))
    assert np.isnan(block.units[:, 1]).all()
    assert np.isfinite(block.units[:, 0]).all()


def test_a_block_shorter_than_a_window_is_refused(series: BlockSeries) -> None:
    with pytest.raises(MeasureError, match=r"0\.50 s"):
        reduce(replace(series, end_s=series.start_s + 0.5))


def _recorded(path: Path, units: Units, peer_kills: int = 0) -> BlockSeries:
    """A block of 10 s after 2 s of burn-in in which two of three terminations succeeded.

    In the ticks of the terminations the default controller decided.
    """
    ticks = [pb.TickRecord(sequence=i, time_s=100.0 + 0.1 * i) for i in range(120)]
    for i, ok in ((5, True), (30, False), (60, True)):
        ticks[i].applied.add(lever=f"terminate:{i}", value="SIGTERM", ok=ok)
        ticks[i].applied.add(lever="vm.swappiness", value="90", ok=True)
        ticks[i].fallback = True
    write_recording(
        path,
        run=RunInfo(
            scenario="x",
            condition="together",
            arm="latd",
            seed=1,
            start_s=100.0,
            end_s=112.0,
            burn_in_s=2.0,
            sandbox_bytes=1 << 29,
            slo_ms=30.0,
            node=NodeInfo(kind="none", kernel="test", cpu_count=2, memory_total_bytes=1 << 33),
            slot_names=("a", "b", "c"),
            peer_kills=peer_kills,
        ),
        ticks=ticks,
        requests=Requests.empty(),
        units=units,
    )
    return series_of(load_recording(path))


def test_a_group_that_was_terminated_before_it_reported_has_no_work(tmp_path: Path) -> None:
    units = Units(
        slot=np.array([0, 1], dtype=np.int32),
        time_s=np.array([100.5, 112.0]),
        units=np.array([0.0, 24.0]),
    )
    block = reduce(_recorded(tmp_path / "run", units))
    np.testing.assert_allclose(block.units.sum(axis=0), [0.0, 20.0, 0.0])


def test_terminated_processes_are_counted_where_the_signal_was_sent(tmp_path: Path) -> None:
    assert reduce(_recorded(tmp_path / "run", Units.empty())).terminated == 2
    assert reduce(_recorded(tmp_path / "peer", Units.empty(), peer_kills=3)).terminated == 5


def test_the_share_of_ticks_of_the_default_controller_is_measured(tmp_path: Path) -> None:
    block = reduce(_recorded(tmp_path / "run", Units.empty()))
    assert block.fallback_share == pytest.approx(3 / 120)
