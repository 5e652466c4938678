"""What the recordings say of the programs, against what the shipped scenarios are known to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stallward.agent.desired import DEFAULT_FLOOR_BYTES
from stallward.env.recording.recording import Recording, load_recording
from stallward.env.scenario.file import load_scenario
from stallward.env.twin.inputs.exogenous import PAGE_BYTES
from stallward.training.twin_fit.exogenous import estimate_exogenous
from stallward.training.twin_fit.exogenous_background import recorded_running

RECORDINGS = Path(__file__).parents[3] / "recordings"
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


def test_hogs_hold_what_their_command_says_from_when_they_are_started() -> None:
    first, second = estimate_exogenous("detector-anon", recorded("detector-anon")).slots
    for slot in (first, second):
        assert max(slot.anon_pages) * PAGE_BYTES / MIB == pytest.approx(250, rel=0.03)
        assert slot.units_per_s == pytest.approx(350.0, rel=0.03)
        assert min(slot.anon_pages[int(slot.loop_from_s) + 1 :]) > 0.9 * max(slot.anon_pages)
    assert first.running[:4] == (1.0, 1.0, 1.0, 1.0)
    assert second.running[:4] == (0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("name", ["detector-anon", "memcached-mix"])
def test_what_the_scenario_says_of_its_groups_is_not_guessed(name: str) -> None:
    recordings = recorded(name)
    twin, scenario = estimate_exogenous(name, recordings), load_scenario(name)
    floors = [group.floor_bytes for group in scenario.background]
    assert [slot.floor_bytes for slot in twin.slots] == floors
    assert twin.protected.workers == scenario.protected.workers
    own = [
        replace(r, run=replace(r.run, slot_floors_bytes=(MIB,) * len(floors))) for r in recordings
    ]
    assert {slot.floor_bytes for slot in estimate_exogenous(name, own).slots} == {MIB}
    strange = [
        replace(r, run=replace(r.run, scenario_parameters={})) for r in recordings[:4]
    ]  # as of a node of its own
    assert {slot.floor_bytes for slot in estimate_exogenous(name, strange).slots} == {
        DEFAULT_FLOOR_BYTES
    }


def test_files_that_are_read_for_the_first_time_late_are_cold() -> None:
    """nginx has a few of its 200 MiB of files unread when the load begins."""
    protected = estimate_exogenous("nginx-hogs", recorded("nginx-hogs")).protected
    assert 2 < protected.cold_pages * PAGE_BYTES / MIB < 15
    assert 185 < protected.file_pages * PAGE_BYTES / MIB < 205
    # The recording machine's kernel takes what nobody has touched for a minute.
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
    # Its rate is that of the time in which it runs.
    assert burst.units_per_s == pytest.approx(500.0, rel=0.05)


def test_a_writer_streams_over_its_file() -> None:
    writer = estimate_exogenous("detector-file", recorded("detector-file")).slots[1]
    assert writer.dirty_share == 1.0
    assert writer.stream_span_pages * PAGE_BYTES / MIB == pytest.approx(256, rel=0.05)
    # 120 MiB/s of which the first pass allocates pages.
    assert 40 < writer.stream_pages_per_s * PAGE_BYTES / MIB < 160


def test_a_loop_over_a_file_fills_memory_within_some_ticks() -> None:
    """In the first tick of its runs it has 46 to 90 MiB already, of 200."""
    swell, loop = estimate_exogenous("postgres-hogs", recorded("postgres-hogs")).slots
    assert 46 < loop.fill_pages_per_s * PAGE_BYTES * 0.1 / MIB < 200
    assert swell.fill_pages_per_s == 1e3, "it reads no files: the least there is"


def test_a_run_without_the_background_shows_nobody() -> None:
    alone = load_recording(RECORDINGS / "detector-anon-alone-s1")
    assert set(recorded_running(alone, 0)) == {0.0}


@pytest.mark.parametrize(("made_with", "workers"), [("postgres-hogs", 4), ("redis-sort", 1)])
def test_how_many_requests_are_served_at_once_is_the_scenarios(
    made_with: str, workers: int
) -> None:
    """Recordings of a scenario's present file say so; older ones are of a single server."""
    old = recorded("detector-anon")
    content = load_scenario(made_with).content
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
    seen = []
    for one in pressed:
        share = one.tick("zone_inactive_file_bytes") / one.tick("zone_file_bytes")
        seen.append(share[one.tick("zone_memory_usage_bytes") > 0.99 * one.run.sandbox_bytes])
    found = np.concatenate(seen)
    assert list(shares) == sorted(shares)
    for level in (0.0, 0.25, 0.5, 1.0):
        assert shares[round(level * (len(shares) - 1))] == pytest.approx(
            float(np.nanquantile(found, level)), abs=0.001
        )


def test_only_programs_that_are_run_over_and_over_begin_anew_when_they_are_terminated() -> None:
    assert [
        slot.restarts
        for slot in estimate_exogenous("memcached-gcc", recorded("memcached-gcc")).slots
    ] == [True]
    assert not any(
        slot.restarts
        for slot in estimate_exogenous("detector-file", recorded("detector-file")).slots
    )
