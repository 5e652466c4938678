"""``swap-assign`` and ``mat`` on a twin: what they limit and pause, and what that brings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stallward.env.recording.recording import Recording, load_recording
from stallward.env.scenario.file import load_scenario
from stallward.evaluation.arms import Arm
from stallward.evaluation.blocks.request import RunRequest
from stallward.evaluation.blocks.twin import open_twin

pytestmark = [pytest.mark.slow, pytest.mark.reaches]
BURN_IN_S = 10.0


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    """Blocks of detector-anon, whose two hogs overfill the zone, with the same twin each."""
    folder = tmp_path_factory.mktemp("blocks")
    runner = open_twin(load_scenario("detector-anon"), "default")
    found = {}
    for spec in ("none", "swap-assign:cpu=0", "swap-assign:cpu=0,degrees=2+1", "mat"):
        request = RunRequest(
            condition="together",
            arm=Arm(label=spec, spec=spec),
            slo_ms=100.0,
            duration_s=30.0,
            burn_in_s=BURN_IN_S,
            seed=3,
        )
        path = Path(folder) / spec.replace(":", "-")
        runner.run_block(request, path)
        found[spec] = load_recording(path)
    return found


def settled(recording: Recording, column: str) -> np.ndarray:
    """An action after the burn-in; NaN where it was never taken."""
    times_s = np.asarray(recording.ticks["time_s"], dtype=np.float64)
    values = recording.actions.get(column)
    known = np.full(len(times_s), np.nan) if values is None else np.asarray(values, np.float64)
    return known[times_s >= BURN_IN_S]


def mean_latency_ms(recording: Recording) -> float:
    requests = recording.requests
    measured = requests.where(requests.scheduled_s >= BURN_IN_S)
    return float(np.mean(measured.sojourn_ms))


def limited(recording: Recording, slot: int) -> float:
    """The share of ticks at which a slot was limited."""
    return float(np.mean(np.isfinite(settled(recording, f"granted_slot{slot}_limit_bytes"))))


def test_the_lowest_priority_is_limited_and_the_application_is_faster(
    recordings: dict[str, Recording],
) -> None:
    arm = recordings["swap-assign:cpu=0"]
    assert limited(arm, 0) > 0.9
    assert mean_latency_ms(arm) < 0.7 * mean_latency_ms(recordings["none"])


def test_degrees_turn_the_order_round(recordings: dict[str, Recording]) -> None:
    arm = recordings["swap-assign:cpu=0,degrees=2+1"]
    assert limited(arm, 1) > 0.9
    assert limited(arm, 1) >= limited(arm, 0)


def test_mat_pauses_while_it_thrashes(recordings: dict[str, Recording]) -> None:
    paused = settled(recordings["mat"], "granted_slot0_paused")
    assert 0.0 < float(np.mean(paused)) < 1.0
