"""The sim-to-real gap of features, on nodes and twins under the same levers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stallward.agent.observation.encoder import OBSERVATION_NAMES, OBSERVATION_SIZE
from stallward.env.recording.recording import load_recording
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.research.sim_to_real import (
    FeatureMeans,
    feature_gaps,
    feature_means,
    gap_table,
)
from stallward.training.errors import DatasetError

RECORDINGS = Path(__file__).parents[2] / "recordings"
TWINS = Path(__file__).parents[2] / "models/stallward/models/twins"
COLUMN = {name: i for i, name in enumerate(OBSERVATION_NAMES)}


def test_the_features_of_a_twin_are_about_those_of_its_node() -> None:
    means = feature_means(
        load_recording(RECORDINGS / "detector-anon-static-limit-0.35-s1"),
        load_fitted(TWINS / "detector-anon.json"),
    )
    for name in ("zone_usage_ratio", "protected_usage_ratio", "slot0_usage_ratio"):
        assert means.twin[COLUMN[name]] == pytest.approx(means.live[COLUMN[name]], abs=0.1), name
    for name in ("slot0_limit_ratio", "slot1_reference_ratio", "slot0_paused_share"):
        assert means.twin[COLUMN[name]] == pytest.approx(means.live[COLUMN[name]], abs=1e-6), name
    assert means.live[COLUMN["slot2_present"]] == means.twin[COLUMN["slot2_present"]] == 0.0


def test_no_twin_for_any_recording_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="has a twin in"):
        gap_table(RECORDINGS, tmp_path)


def means_of(name: str, live: dict[str, float], twin: dict[str, float]) -> FeatureMeans:
    values = []
    for given in (live, twin):
        row = np.zeros(OBSERVATION_SIZE)
        for feature, value in given.items():
            row[COLUMN[feature]] = value
        values.append(row)
    return FeatureMeans(name=name, live=values[0], twin=values[1])


def test_features_are_compared_by_their_logarithms_with_all_slots_together() -> None:
    factors = np.exp(0.5 * np.array([-2.0, -1.0, 0.0, 1.0, 2.0]))
    runs = [
        means_of(
            str(k),
            {"zone_psi_io_some_share": 0.1, "slot0_usage_ratio": 0.2, "slot1_usage_ratio": 0.3},
            {
                "zone_psi_io_some_share": 0.11 * factor - 0.01,
                "slot0_usage_ratio": 0.2,
                "slot1_usage_ratio": 0.6,
            },
        )
        for k, factor in enumerate(factors)
    ]
    rows = {row.feature: row for row in feature_gaps(runs)}
    assert set(rows) == {"zone_psi_io_some_share", "slotN_usage_ratio"}, (
        "features that are 0 are left out"
    )
    io = rows["zone_psi_io_some_share"]
    assert io.median == pytest.approx(0.0, abs=1e-9)
    # From -0.8 to 0.8 between the tenth and the ninetieth percentile.
    assert io.spread == pytest.approx(1.6 / 2.5631)
    usage = rows["slotN_usage_ratio"]
    assert usage.live == pytest.approx(0.25)
    assert usage.twin == pytest.approx(0.4)
