"""The raw frames and the samples of a recording have what it has, and say what it lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from stallward.agent.observation.encoder import ObservationEncoder
from stallward.agent.observation.raw import NODE
from stallward.env.recording.recording import load_recording
from stallward.research.raw_rows import recorded_frames, recorded_samples

RECORDING = Path(__file__).parents[2] / "recordings/detector-anon-none-s1"


def test_what_an_older_version_did_not_record_is_absent_in_its_frames() -> None:
    names = ("protected_anon_bytes", "protected_swap_bytes", "protected_working_set_bytes")
    recording = load_recording(RECORDING)
    frame = recorded_frames(recording)[7]
    for name in names[:1]:
        assert frame.node[NODE[name]] == recording.tick(name)[7] > 0.0
    older = replace(recording, ticks={k: v for k, v in recording.ticks.items() if k not in names})
    frame = recorded_frames(older)[7]
    assert np.isnan([frame.node[NODE[name]] for name in names]).all()
    assert np.isfinite(ObservationEncoder().encode(frame)).all()


def test_the_samples_of_a_recording_have_its_signals() -> None:
    recording = load_recording(RECORDING)
    sample = recorded_samples(recording)[300]
    groups = {"zone": sample.zone, "protected": sample.protected}
    groups |= {f"slot{number}": group for number, group in enumerate(sample.slots)}
    assert len(groups) == 4
    for prefix, group in groups.items():
        assert (
            group.memory_usage_bytes == recording.tick(f"{prefix}_memory_usage_bytes")[300] > 0.0
        )
        assert group.psi.memory_some_us == recording.tick(f"{prefix}_psi_memory_some_us")[300]
    assert [group.name for group in sample.slots] == list(recording.run.slot_names)
    assert sample.time_s == recording.tick("time_s")[300]
    assert sample.node.swap_total_bytes == recording.tick("node_swap_total_bytes")[300]
    assert sample.latency is not None
    assert sample.latency.completed == recording.tick("latency_completed")[300]
    assert not any(state.paused for state in sample.slot_states)
    assert (sample.profile, sample.processes) == ("default", None)
    names = ("protected_anon_bytes", "latency_completed", "slot0_state_paused")
    ticks = {name: column for name, column in recording.ticks.items() if name not in names}
    sample = recorded_samples(replace(recording, ticks=ticks))[300]
    assert (sample.protected.anon_bytes, sample.latency) == (None, None)
    assert sample.slot_states[0].paused is False
