"""Recorded lever states are replayed on the twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from stallward.env.recording.recording import load_recording
from stallward.training.twin_fit.replay import replay_levers

RECORDINGS = Path(__file__).parents[3] / "recordings"


def test_the_settings_that_latd_tunes_are_replayed() -> None:
    levers = replay_levers(load_recording(RECORDINGS / "detector-file-latd-s1"))
    assert np.median(levers.swappiness) == 90, "Algorithm 1 sets it once and leaves it"
    blocks = set(np.unique(levers.dirty_ratios[:, 1]))
    assert blocks == {0.2, 1.0}, "dirty_ratio 100 while some rises, else 20"


def test_the_protected_groups_own_settings_are_replayed() -> None:
    latd = replay_levers(load_recording(RECORDINGS / "detector-file-latd-cgroup-s1"))
    assert np.median(latd.protected_swappiness) == 90, "Algorithm 2 tunes this group alone"
    assert np.median(latd.swappiness) == 60
    recording = load_recording(RECORDINGS / "detector-file-none-s1")
    count = len(recording.ticks["time_s"])
    low, willneed = np.full(count, np.nan), np.full(count, None)
    low[count // 2 :] = 4096.0 * 100
    willneed[count // 2 : count // 2 + 9] = True
    granted = {"granted_protected_low_bytes": low, "granted_protected_willneed": willneed}
    swappiness = {"granted_protected_swappiness": np.where(np.isnan(low), np.nan, 0.0)}
    actions = {**recording.actions, **granted, **swappiness}
    levers = replay_levers(replace(recording, actions=actions))
    assert set(np.unique(levers.protected_low_pages)) == {0.0, 100.0}
    assert levers.read_back.sum() == 1.0, "the advice is given once"
    assert set(np.unique(levers.protected_swappiness)) == {0.0, 60.0}
    assert set(np.unique(levers.swappiness)) == {60.0}


def test_cpu_weights_are_replayed() -> None:
    recording = load_recording(RECORDINGS / "detector-file-none-s1")
    assert (replay_levers(recording).cpu_weight == 100.0).all(), "as where none was recorded"
    weight = np.full(len(recording.ticks["time_s"]), np.nan)
    weight[len(weight) // 2 :] = 1.0
    actions = {**recording.actions, "granted_slot1_cpu_weight": weight}
    levers = replay_levers(replace(recording, actions=actions))
    assert set(np.unique(levers.cpu_weight[:, 1])) == {1.0, 100.0}
    assert (levers.cpu_weight[:, 0] == 100.0).all()


def test_a_pause_of_processes_is_a_pause() -> None:
    """latd stops processes, not groups; its recording shows the first slot mostly stopped."""
    levers = replay_levers(load_recording(RECORDINGS / "detector-file-latd-s1"))
    assert levers.paused[:, 0].mean() > 0.5
    assert np.isinf(levers.limit_pages).all()
