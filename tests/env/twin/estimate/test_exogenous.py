"""Estimates from recordings agree with what the programs of shipped scenarios are known to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stallward.agent.desired import DEFAULT_FLOOR_BYTES
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.scenario.file import load_scenario
from stallward.env.twin.estimate.background import rate_while_running, recorded_running
from stallward.env.twin.estimate.exogenous import estimate_exogenous
from stallward.env.twin.inputs.exogenous import PAGE_BYTES

RECORDINGS = Path(__file__).parents[4] / "recordings"
MIB = 1 << 20


def recorded(scenario: str) -> list[Recording]:
    return [load_recording(path) for path in sorted(RECORDINGS.glob(f"{scenario}-*"))]


def test_the_detector_keeps_its_weights_and_reads_one_image_a_request() -> None:
    protected = estimate_exogenous("detector-anon", recorded("detector-anon")).protected
    # Weights of 150 MB and libraries; 1000 images of 100 to 200 KB, one at random for a request.
    assert 140 < protected.file_pages * PAGE_BYTES / MIB < 175
    assert 110 < protected.cold_pages * PAGE_BYTES / MIB < 190
    assert 120_000 < protected.touch_cold_pages * PAGE_BYTES < 190_000
    assert protected.request_rate_per_s == pytest.approx(15.0, rel=0.1)
    assert protected.poisson


def test_hogs_hold_the_memory_of_their_command_from_their_start() -> None:
    first, second = estimate_exogenous("detector-anon", recorded("detector-anon")).slots
    for slot in (first, second):
        assert max(slot.anon_pages) * PAGE_BYTES / MIB == pytest.approx(250, rel=0.03)
        assert slot.units_per_s == pytest.approx(350.0, rel=0.03)
        assert min(slot.anon_pages[int(slot.loop_from_s) + 1 :]) > 0.9 * max(slot.anon_pages)
    assert first.running[:4] == (1.0, 1.0, 1.0, 1.0)
    assert second.running[:4] == (0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("name", ["detector-anon", "memcached-mix"])
def test_values_that_the_scenario_gives_are_not_estimated(name: str) -> None:
    recordings = recorded(name)
    twin, scenario = estimate_exogenous(name, recordings), load_scenario(name)
    floors = [group.floor_bytes for group in scenario.background]
    assert [slot.floor_bytes for slot in twin.slots] == floors
    assert twin.protected.workers == scenario.protected.workers
    own = [
        replace(r, run=replace(r.run, slot_floors_bytes=(MIB,) * len(floors))) for r in recordings
    ]
    assert {slot.floor_bytes for slot in estimate_exogenous(name, own).slots} == {MIB}
    without_scenario = [
        replace(r, run=replace(r.run, scenario_parameters={})) for r in recordings[:4]
    ]
    assert {slot.floor_bytes for slot in estimate_exogenous(name, without_scenario).slots} == {
        DEFAULT_FLOOR_BYTES
    }


def test_files_that_are_read_for_the_first_time_late_are_cold() -> None:
    """nginx has a few of its 200 MiB of files unread when the load begins."""
    protected = estimate_exogenous("nginx-hogs", recorded("nginx-hogs")).protected
    assert 2 < protected.cold_pages * PAGE_BYTES / MIB < 15
    assert 185 < protected.file_pages * PAGE_BYTES / MIB < 205
    # The kernel of the recording machine reclaims pages that were not used for a minute.
    assert 10.0 < protected.idle_loss_pages_per_s < 40.0
    assert (
        estimate_exogenous("redis-mix", recorded("redis-mix")).protected.idle_loss_pages_per_s
        == 0.0
    )


def test_a_program_comes_and_goes_as_its_phases_say() -> None:
    burst = estimate_exogenous("detector-phases", recorded("detector-phases")).slots[1]
    for second, on in enumerate(burst.running):
        at = (second + 0.5) % 24
        if min(abs(at - edge) for edge in (3, 11, 15, 19)) > 0.6:
            assert on == float(3 < at < 11 or 15 < at < 19), second
    assert len(burst.running) > 48
    # The rate counts only the time in which the program runs.
    assert burst.units_per_s == pytest.approx(500.0, rel=0.05)


def test_ticks_that_are_rare_while_a_program_is_away_change_no_rate() -> None:
    """The daemon of a node reads less often when it is calm."""
    even = next(r for r in recorded("detector-phases") if r.run.condition == "ample")
    kept = even.tick("slot1_memory_usage_bytes") > MIB
    kept[::5] = True
    uneven = replace(even, ticks={name: ticks[kept] for name, ticks in even.ticks.items()})
    assert rate_while_running(uneven, 1) == pytest.approx(rate_while_running(even, 1), rel=0.1)


def test_a_writer_streams_over_its_file() -> None:
    writer = estimate_exogenous("detector-file", recorded("detector-file")).slots[1]
    assert writer.dirty_share == 1.0
    assert writer.stream_span_pages * PAGE_BYTES / MIB == pytest.approx(256, rel=0.05)
    # It writes 120 MiB/s. Only the first pass allocates pages.
    assert 40 < writer.stream_pages_per_s * PAGE_BYTES / MIB < 160


def test_a_loop_over_a_file_fills_memory_within_some_ticks() -> None:
    """After the first tick of a run it holds 46 to 90 of its 200 MiB."""
    swell, loop = estimate_exogenous("postgres-hogs", recorded("postgres-hogs")).slots
    assert 46 < loop.fill_pages_per_s * PAGE_BYTES * 0.1 / MIB < 200
    assert swell.fill_pages_per_s == 1e3, "it reads no files, so the rate is the lowest"


def test_in_a_run_without_the_background_no_program_is_running() -> None:
    alone = load_recording(RECORDINGS / "detector-anon-alone-s1")
    assert set(recorded_running(alone, 0)) == {0.0}


@pytest.mark.parametrize(("scenario", "workers"), [("postgres-hogs", 4), ("redis-sort", 1)])
def test_the_number_of_workers_is_taken_from_the_scenario(scenario: str, workers: int) -> None:
    """A recording whose scenario does not give the number counts as that of one worker."""
    old = recorded("detector-anon")
    content = load_scenario(scenario).content
    new = [replace(r, run=replace(r.run, scenario_parameters=content)) for r in old]
    assert estimate_exogenous("detector-anon", old).protected.workers == 1.0
    assert estimate_exogenous("detector-anon", new).protected.workers == workers


def test_a_steady_rate_has_one_factor_and_waves_have_one_a_second() -> None:
    for steady in ("detector-anon", "memcached-gcc"):
        assert estimate_exogenous(steady, recorded(steady)).protected.rate_factors == (1.0,)
    recordings = recorded("memcached-gcc")
    waves = []
    for recording in recordings:
        requests = recording.requests
        second = requests.scheduled_s - recording.run.start_s
        fewer = (second % 20 < 10) | (np.arange(len(second)) % 4 == 0)
        waves.append(replace(recording, requests=requests.where(fewer)))
    factors = np.array(estimate_exogenous("memcached-gcc", waves).protected.rate_factors)
    assert len(factors) == 60
    assert factors.mean() == pytest.approx(1.0, abs=0.01)
    crest = np.arange(60) % 20 < 10
    assert factors[crest].mean() == pytest.approx(1.6, abs=0.1)
    assert factors[~crest].mean() == pytest.approx(0.4, abs=0.1)


def test_the_shares_of_inactive_file_pages_are_those_of_a_full_node() -> None:
    recordings = recorded("detector-file")
    pressed = [r for r in recordings if r.run.condition == "together"]
    shares = estimate_exogenous("detector-file", recordings).inactive_file_shares
    recorded_shares = []
    for one in pressed:
        share = one.tick("zone_inactive_file_bytes") / one.tick("zone_file_bytes")
        recorded_shares.append(
            share[one.tick("zone_memory_usage_bytes") > 0.99 * one.run.sandbox_bytes]
        )
    expected = np.concatenate(recorded_shares)
    assert list(shares) == sorted(shares)
    for level in (0.0, 0.25, 0.5, 1.0):
        assert shares[round(level * (len(shares) - 1))] == pytest.approx(
            float(np.nanquantile(expected, level)),
            abs=0.003,  # ticks are almost even
        )


def test_a_time_in_which_a_daemon_read_seldom_counts_as_much_as_any_other() -> None:
    recording = load_recording(RECORDINGS / "detector-file-none-s1")
    time_s = recording.tick("time_s")
    calm = time_s > np.quantile(time_s, 1.0 / 3.0)
    ticks = {
        **recording.ticks,
        "zone_file_bytes": np.full(time_s.size, 1e8),
        "zone_inactive_file_bytes": np.where(calm, 8e7, 2e7),
        "zone_memory_usage_bytes": np.full(time_s.size, float(recording.run.sandbox_bytes)),
    }
    read = ~calm | (np.arange(time_s.size) % 5 == 0)
    seldom = {name: column[read] for name, column in ticks.items()}
    for read_ticks in (ticks, seldom):
        scenario = estimate_exogenous("detector-file", [replace(recording, ticks=read_ticks)])
        shares = np.array(scenario.inactive_file_shares)
        assert shares.mean() == pytest.approx(0.6, abs=0.02)


def test_only_programs_in_a_loop_restart_after_they_are_terminated() -> None:
    assert [
        slot.restarts
        for slot in estimate_exogenous("memcached-gcc", recorded("memcached-gcc")).slots
    ] == [True]
    assert not any(
        slot.restarts
        for slot in estimate_exogenous("detector-file", recorded("detector-file")).slots
    )


def test_a_scenario_without_swap_has_none_on_the_twin() -> None:
    recordings = recorded("detector-anon")
    content = dict(recordings[0].run.scenario_parameters)
    content["sandbox"] = {"limit_mib": 600, "ample_mib": 4096, "swap_mib": 0}
    without = [
        replace(r, run=replace(r.run, scenario_parameters=content, swap_bytes=0))
        for r in recordings
    ]
    assert estimate_exogenous("detector-anon", without).swap_bytes == 0
    unknown = [replace(r, run=replace(r.run, swap_bytes=0)) for r in recordings]
    assert estimate_exogenous("detector-anon", unknown).swap_bytes == 2 << 30
