"""Twins of scenarios whose runs under pressure no fit has seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.models.registry import find_twin
from stallward.training.errors import TrainingError
from stallward.training.pipeline.fit import transfer_twins

RECORDINGS = Path(__file__).parents[3] / "recordings"


def test_sizes_come_from_references_and_parameters_from_other_scenarios(tmp_path: Path) -> None:
    for condition in ("alone", "ample", "background"):
        name = f"memcached-zstd-{condition}-s1"
        shutil.copytree(RECORDINGS / name, tmp_path / "references" / name)
    own, other = load_fitted(find_twin("memcached-zstd")), load_fitted(find_twin("memcached-gcc"))
    (made,) = transfer_twins(
        [tmp_path / "references"], out=tmp_path / "twin.json", fitted=(own, other)
    )
    twin = load_fitted(made)
    assert twin.scenario.name == "memcached-zstd"
    assert twin.scenario.zone_bytes == own.scenario.zone_bytes, "the limit of the sandbox"
    assert twin.draws == other.draws, "its own twin is left out"
    assert np.sum(twin.weights) == pytest.approx(1.0)
    assert own.saw_its_scenario
    assert not twin.saw_its_scenario


def test_without_references_or_other_twins_there_is_no_twin(tmp_path: Path) -> None:
    pressed = RECORDINGS / "memcached-zstd-none-s1"
    with pytest.raises(TrainingError, match="reference"):
        transfer_twins([pressed], out=tmp_path / "twin.json", fitted=(small_twin(),))
    own = load_fitted(find_twin("memcached-zstd"))
    with pytest.raises(TrainingError, match="other than memcached-zstd"):
        transfer_twins(
            [RECORDINGS / "memcached-zstd-ample-s1"], out=tmp_path / "twin.json", fitted=(own,)
        )
