"""A fitted twin explains its recordings; recordings without pressure are refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.guard.budgets import Budgets
from stallward.agent.registry import make_controller
from stallward.env.catalogue.add import add_recordings
from stallward.env.catalogue.read import Catalogue
from stallward.env.errors import RecordingError
from stallward.env.recording.recording import Recording, Requests, load_recording, write_recording
from stallward.env.recording.run_info import Condition, NodeInfo, RunInfo
from stallward.env.recording.stored import (
    RecordingFolder,
    Selection,
    StoredRecording,
    dataset_hash,
)
from stallward.env.twin.estimate.exogenous import estimate_exogenous
from stallward.env.twin.inputs.exogenous import Exogenous, ProtectedProgram, SlotProgram
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.env.twin.inputs.parameters import TwinParameters, to_array, to_unit
from stallward.env.twin.node import TwinNode
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.training.pipeline.fit import fit_twin
from stallward.training.twin_fit import fit as held
from stallward.training.twin_fit.fit import FitSettings, fit_scenario
from stallward.training.twin_fit.loss import NAMES, live_summary, loss
from stallward.training.twin_fit.replay import twin_summaries

SCENARIO = Exogenous(
    name="small",
    zone_bytes=400 << 20,
    swap_bytes=2 << 30,
    slo_ms=20.0,
    protected=ProtectedProgram(
        request_rate_per_s=40.0, service_s=0.005, file_pages=40_000.0, touch_file_pages=5_000.0
    ),
    slots=(SlotProgram(name="hog", units_per_s=10.0, anon_pages=(90_000.0,)),),
)
TRUTH = TwinParameters(read_latency_s=3e-4, coldness_exponent=0.5)


def record(path: Path, arm: str, condition: Condition, seconds: float = 16.0) -> Recording:
    """A recording of a twin with known parameters, which a fit should find."""
    node = TwinNode(SCENARIO, TRUTH, seed=3)
    engine = Engine(
        settings=EngineSettings(context=node.context(), budgets=Budgets(lift_budgets=True)),
        configured=make_controller(arm),
        default=make_controller("none"),
    )
    ticks = []
    for k in range(round(seconds / 0.1)):
        sample = node.sample()
        granted = engine.step(sample, late=False).granted
        wire = pb.TickRecord(sequence=k, time_s=sample.time_s)
        wire.sample.profile = sample.profile
        for group, message in (
            (sample.protected, wire.sample.protected),
            (sample.slots[0], wire.sample.slots.add()),
        ):
            message.memory_usage_bytes = group.memory_usage_bytes or 0
            message.anon_bytes = group.anon_bytes or 0
            message.file_bytes = group.file_bytes or 0
            message.swap_bytes = group.swap_bytes or 0
            message.psi.memory_some_us = group.psi.memory_some_us or 0
        state = wire.sample.slot_states.add(paused=sample.slot_states[0].paused)
        limit = sample.slot_states[0].limit_bytes
        if limit is not None:
            state.limit_bytes = limit
        ticks.append(wire)
        node.step(granted)
    run = RunInfo(
        scenario="small",
        condition=condition,
        arm=arm,
        seed=3,
        start_s=0.0,
        end_s=seconds,
        burn_in_s=4.0,
        sandbox_bytes=SCENARIO.zone_bytes,
        slo_ms=20.0,
        node=NodeInfo(kind="hybrid", kernel="test", cpu_count=2, memory_total_bytes=1 << 33),
        slot_names=("hog",),
    )
    write_recording(path, run=run, ticks=ticks, requests=node.requests(), units=node.units())
    return load_recording(path)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recordings")
    for arm in ("none", "static:limit=0.4", "excite"):
        record(root / arm.replace(":", "-"), arm, "together")
    return root


def loaded(root: Path) -> list[Recording]:
    return [load_recording(path) for path in sorted(root.iterdir())]


def stored(root: Path) -> list[RecordingFolder]:
    return [RecordingFolder.open(path) for path in sorted(root.iterdir())]


def test_the_true_parameters_explain_their_recordings_better_than_wrong_ones(
    recordings: Path,
) -> None:
    for recording in loaded(recordings):
        live = live_summary(recording, SCENARIO)
        assert live.shape == (2, len(NAMES))  # the whole recording, and 12 s as one segment
        wrong = TwinParameters(read_latency_s=3e-5, coldness_exponent=3.0, reclaim_s_per_page=4e-5)
        many = to_array([TRUTH] * 6 + [wrong] * 6)
        losses = loss(live, twin_summaries([recording], SCENARIO, many, seed=9)[0])
        assert losses[:6].mean() < losses[6:].mean(), recording.run.arm


def test_a_short_fit_describes_the_scenario_and_explains_the_arms(recordings: Path) -> None:
    stages: list[float] = []
    fast = FitSettings(candidates=24, generations=3, draws=6)
    twin = fit_scenario(stored(recordings), fast, lambda _, share: stages.append(share))
    assert twin.scenario.name == "small"
    assert twin.scenario.protected.request_rate_per_s == pytest.approx(40.0, rel=0.15)
    assert max(twin.scenario.slots[0].anon_pages) == pytest.approx(90_000.0, rel=0.05)
    assert len(twin.draws) == 6
    assert sum(twin.weights) == pytest.approx(1.0)
    assert twin.provenance["arms"] == ["excite", "none", "static:limit=0.4"]
    assert stages == sorted(stages)
    assert twin.provenance["generations"] == fast.generations, "the time has ended it"
    hurried = fit_scenario(stored(recordings), replace(fast, max_seconds=1e-3))
    assert hurried.provenance["generations"] == 1


def test_a_fit_that_begins_at_a_twin_stays_near_it(recordings: Path) -> None:
    scenario = estimate_exogenous("small", loaded(recordings))
    start = FittedTwin(scenario=scenario, draws=(TRUTH,), weights=(1.0,), provenance={})
    brief = FitSettings(candidates=16, generations=1, draws=4)
    truth = to_unit(to_array([TRUTH]))
    errors = [
        np.abs(to_unit(to_array(twin.draws)) - truth).mean()
        for twin in (
            fit_scenario(stored(recordings), brief, start=start),
            fit_scenario(stored(recordings), brief),
        )
    ]
    assert errors[0] < 0.07
    assert errors[0] < errors[1]


def test_the_dataset_is_named_by_its_contents(recordings: Path) -> None:
    paths = stored(recordings)
    assert len(paths) == 3
    assert dataset_hash(paths) == dataset_hash(paths[::-1])
    assert dataset_hash(paths) != dataset_hash(paths[:2])


def test_recordings_without_pressure_describe_no_scenario(tmp_path: Path) -> None:
    alone = record(tmp_path / "alone", "none", "alone", seconds=6.0)
    with pytest.raises(RecordingError, match="everything together"):
        estimate_exogenous("small", [alone])


def test_a_recording_without_requests_still_has_a_summary(tmp_path: Path) -> None:
    recording = record(tmp_path / "r", "none", "together", seconds=6.0)
    write_recording(
        tmp_path / "quiet",
        run=recording.run,
        ticks=[pb.TickRecord(time_s=0.1 * k) for k in range(60)],
        requests=Requests.empty(),
        units=recording.units,
    )
    summary = live_summary(load_recording(tmp_path / "quiet"), SCENARIO)
    assert np.isnan(summary[:, :3]).all()
    assert np.isfinite(summary[:, 3]).all()


def test_memory_counts_for_the_time_in_which_it_is_held(recordings: Path) -> None:
    """Half of the zone until 7 s, read ten times a second, and nothing after it, read twice."""
    even = loaded(recordings)[0]
    time_s = even.tick("time_s")
    held = np.where(time_s < 7.0, 0.5 * SCENARIO.zone_bytes, 0.0)
    kept = (time_s < 7.0) | (np.arange(time_s.size) % 5 == 0)
    ticks = {**even.ticks, "slot0_memory_usage_bytes": held}
    uneven = replace(even, ticks={name: column[kept] for name, column in ticks.items()})
    usage = live_summary(uneven, SCENARIO)[0, NAMES.index("usage_1")]
    assert usage == pytest.approx(0.5 * (7.0 - 4.0) / (16.0 - 4.0), abs=0.005)


@pytest.mark.parametrize("change", [{"oom_kills": 1}, {"end_s": 0.0, "burn_in_s": 0.0}])
def test_recordings_of_which_none_can_be_compared_are_refused_before_the_search(
    recordings: Path, tmp_path: Path, change: dict[str, float]
) -> None:
    """In each a process was killed for memory, or each ends where it starts."""
    one = Path(shutil.copytree(recordings / "excite", tmp_path / "excite"))
    run = json.loads((one / "run.json").read_text())
    (one / "run.json").write_text(json.dumps(run | change))
    stages: list[str] = []
    brief = FitSettings(candidates=8, generations=1, draws=2)
    with pytest.raises(RecordingError, match="None of the 1 recordings of small can be fitted"):
        fit_scenario([RecordingFolder.open(one)], brief, lambda stage, _: stages.append(stage))
    assert stages == []
    both = [RecordingFolder.open(one), RecordingFolder.open(recordings / "none")]
    assert fit_scenario(both, brief).provenance["recordings"] == ["none"]


def test_one_request_says_no_rate(recordings: Path) -> None:
    one = loaded(recordings)[0]
    requests = one.requests.scheduled_in(5.0, 16.0).where(np.arange(1))
    with pytest.raises(RecordingError, match="no two requests"):
        estimate_exogenous("small", [replace(one, requests=requests)])


def test_segments_tell_apart_twins_that_are_equal_on_the_whole() -> None:
    live = np.full((3, len(NAMES)), np.nan)
    live[:, 3] = (0.5, 0.2, 0.8)
    twin = np.zeros((3, len(NAMES), 2))
    twin[:, 3, 0] = (0.5, 0.2, 0.8)
    twin[:, 3, 1] = (0.5, 0.8, 0.2)
    right, swapped = loss(live, twin)
    assert right == 0.0
    assert swapped > 1.0


def test_the_twin_is_summarised_over_the_same_segments_as_the_recording(tmp_path: Path) -> None:
    recording = record(tmp_path / "r", "excite", "together", seconds=38.0)
    live = live_summary(recording, SCENARIO)
    twin = twin_summaries([recording], SCENARIO, to_array([TRUTH] * 8), seed=9)[0]
    assert live.shape == (4, len(NAMES))
    assert twin.shape == (4, len(NAMES), 8)
    work, usage = NAMES.index("work_0"), NAMES.index("usage_1")
    for name in (work, usage):
        assert np.ptp(live[1:, name]) > 0.05, "the actions made no difference"
        assert twin[:, name].mean(axis=-1) == pytest.approx(live[:, name], abs=0.06)


def test_recordings_replayed_in_parts_are_those_replayed_together(recordings: Path) -> None:
    three, many = loaded(recordings), to_array([TRUTH] * 8)
    together = twin_summaries(three, SCENARIO, many, seed=9)
    parts = [
        *twin_summaries(three[:2], SCENARIO, many, seed=9),
        *twin_summaries(three[2:], SCENARIO, many, seed=9, first=2),
    ]
    for one, other in zip(together, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_catalogue_gives_the_same_twin_as_directories(recordings: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "catalogue")
    paths = sorted(recordings.iterdir())
    add_recordings(paths, place, node="edge-7", day=date(2026, 11, 20))
    catalogued = sorted(Catalogue(place).recordings(), key=lambda one: one.name)
    brief = FitSettings(candidates=16, generations=2, draws=4)
    twin = fit_scenario(catalogued, brief)
    assert twin == fit_scenario(stored(recordings), brief)
    written = fit_twin(
        [place], selection=Selection(arm="none"), out=tmp_path / "twin.json", generations=1
    )
    assert load_fitted(written.files[0]).provenance["recordings"] == ["none"]


def test_few_recordings_are_held_and_the_latest_used_stay(
    recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "MOST_HELD", 2)
    loads: list[str] = []
    load = RecordingFolder.load

    def count(folder: RecordingFolder) -> Recording:
        loads.append(folder.name)
        return load(folder)

    monkeypatch.setattr(RecordingFolder, "load", count)
    folders = stored(recordings)
    first: dict[StoredRecording, Recording] = {folders[0]: load_recording(folders[0].path)}
    cache = held.HeldRecordings(folders, SCENARIO, first)
    for number in (0, 1, 0, 2, 0, 1):  # 1 is forgotten for 2, and 2 for 1
        got = cache.get(number)
        assert got.recording.path == folders[number].path
        np.testing.assert_array_equal(got.live, live_summary(got.recording, SCENARIO))
    assert loads == [folders[number].name for number in (1, 2, 1)]
