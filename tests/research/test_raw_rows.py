"""The raw frames of a recording have what it has, and say what it lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from stallward.agent.observation.encoder import ObservationEncoder
from stallward.agent.observation.raw import NODE
from stallward.env.recording.recording import load_recording
from stallward.research.raw_rows import recorded_frames

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
