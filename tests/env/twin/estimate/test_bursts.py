"""Bursts of reads are found in recordings, and steady reads are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stallward.env.recording.recording import Recording, load_recording
from stallward.env.twin.estimate.background import Bursts, estimate_bursts
from stallward.env.twin.inputs.exogenous import PAGE_BYTES

RECORDINGS = Path(__file__).parents[4] / "recordings"
MIB = 1 << 20
HELD_BYTES, SPAN_BYTES = 128 * MIB, 512 * MIB


def reading(*mib_per_s: float) -> Recording:
    """Return a recording in which the first slot reads so much in each second, over and over."""
    recording = load_recording(RECORDINGS / "memcached-zstd-none-s1")
    time_s = recording.tick("time_s")
    at = np.arange(np.ceil(time_s[-1] - time_s[0]) + 2.0)
    read = np.concatenate([[0.0], np.cumsum(np.resize(mib_per_s, len(at) - 1))])
    start_s = recording.run.measured_from_s - np.floor(recording.run.measured_from_s - time_s[0])
    ticks = {
        **recording.ticks,
        "slot0_io_read_bytes": MIB * np.interp(time_s, start_s + at, read),
        "slot0_file_bytes": np.full(len(time_s), float(HELD_BYTES)),
    }
    return replace(recording, ticks=ticks)


def bursts_of(*runs: Recording) -> Bursts:
    units = runs[0].units.rate_per_s(0, runs[0].run.measured_from_s, runs[0].run.end_s)
    assert units
    return estimate_bursts(
        runs, 0, span_pages=SPAN_BYTES / PAGE_BYTES, full_units_per_s=2.0 * units
    )


def test_a_burst_every_four_seconds_is_found_in_the_programs_own_time() -> None:
    found = bursts_of(reading(900.0, 0.0, 0.0, 0.0))
    assert found.every_s == pytest.approx(2.0, rel=0.1), "at half the full speed"
    assert found.length_s == pytest.approx(0.5, rel=0.15)
    # A quarter of the pages stays in memory, so that as many more would be read without it.
    assert found.pages * PAGE_BYTES / MIB == pytest.approx(900.0 / 0.75, rel=0.1)


def test_steady_and_small_reads_are_no_bursts() -> None:
    for rates in ((300.0, 200.0, 250.0), (40.0, 0.0, 0.0, 0.0, 0.0), (0.0,)):
        assert bursts_of(reading(*rates)) == Bursts()
    once = reading(*(900.0 if second == 20 else 0.0 for second in range(300)))
    assert bursts_of(once) == Bursts()


def test_most_runs_have_to_show_them() -> None:
    burst, steady = reading(900.0, 0.0, 0.0, 0.0), reading(200.0)
    assert bursts_of(steady, burst, steady) == Bursts()
    assert bursts_of(burst, steady, burst).pages == pytest.approx(bursts_of(burst).pages)


def test_a_recording_without_counted_reads_tells_nothing() -> None:
    recording = reading(900.0, 0.0, 0.0, 0.0)
    ticks = {k: v for k, v in recording.ticks.items() if k != "slot0_io_read_bytes"}
    assert bursts_of(replace(recording, ticks=ticks)) == Bursts()
