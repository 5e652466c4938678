"""Recorded lever states are replayed on the twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stallward.env.recording.recording import load_recording
from stallward.training.twin_fit.replay import replay_levers

RECORDINGS = Path(__file__).parents[3] / "recordings"


def test_the_settings_that_latd_tunes_are_replayed() -> None:
    _, _, swappiness, dirty = replay_levers(load_recording(RECORDINGS / "detector-file-latd-s1"))
    assert np.median(swappiness) == 90, "Algorithm 1 sets it once and leaves it"
    assert set(np.unique(dirty[:, 1])) == {0.2, 1.0}, "dirty_ratio 100 while some rises, else 20"


def test_a_pause_of_processes_is_a_pause() -> None:
    """latd stops processes, not groups; its recording shows the first slot mostly stopped."""
    paused, limits, _, _ = replay_levers(load_recording(RECORDINGS / "detector-file-latd-s1"))
    assert paused[:, 0].mean() > 0.5
    assert np.isinf(limits).all()
