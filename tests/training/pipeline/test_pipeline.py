"""The twins that a name stands for, in training and in validation; and a fit that repeats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stallward.env.recording.stored import RecordingFolder
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted, save_fitted
from stallward.training.errors import TrainingError
from stallward.training.pipeline.fit import fit_twin
from stallward.training.pipeline.recordings import fit_recordings
from stallward.training.pipeline.train import load_twins


def test_a_directory_stands_for_its_twins_of_one_part_of_the_split(tmp_path: Path) -> None:
    twin = small_twin()
    for name in ("detector-anon", "nginx-hogs", "ruby-yosys", "mine"):
        save_fitted(
            tmp_path / f"{name}.json", replace(twin, scenario=replace(twin.scenario, name=name))
        )
    (empty := tmp_path / "empty").mkdir()
    assert names(load_twins([str(tmp_path)])) == ["detector-anon", "mine"]
    assert names(load_twins([str(tmp_path)], "validation")) == ["nginx-hogs"]
    assert len(load_twins([str(tmp_path)], None)) == 4, "those of every part"
    both = load_twins([str(tmp_path), "detector-file"])
    assert names(both) == ["detector-anon", "mine", "detector-file"]
    with pytest.raises(TrainingError, match="no fitted twin to choose by"):
        load_twins([str(empty)], "validation")


def names(twins: Sequence[FittedTwin]) -> list[str]:
    return [twin.scenario.name for twin in twins]


def test_default_stands_for_the_shipped_twins() -> None:
    training = {twin.scenario.name for twin in load_twins(["default"])}
    validation = {twin.scenario.name for twin in load_twins(["default"], "validation")}
    assert "detector-anon" in training
    assert "memcached-zstd" in validation
    assert not training & validation


def test_a_fit_bounded_by_generations_gives_the_same_twin_again(tmp_path: Path) -> None:
    recordings = [
        Path(f"recordings/detector-anon-{name}-s1")
        for name in ("ample", "background", "static-limit-0.35")
    ]
    places = [Path(__file__).parents[3] / path for path in recordings]
    files = [
        fit_twin(places, out=tmp_path / f"{name}.json", generations=2)[0] for name in ("a", "b")
    ]
    one, other = map(load_fitted, files)
    assert (one.draws, one.weights) == (other.draws, other.weights)
    assert one.provenance["generations"] == 2


def test_recordings_whose_work_was_counted_in_different_units_are_refused(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[3] / "recordings/detector-anon-ample-s1"
    places = []
    for number, unit in enumerate(("steps", "cpu-s")):
        place = shutil.copytree(recorded, tmp_path / f"{number}")
        run = json.loads((place / "run.json").read_text())
        run["slot_units"] = [unit] * len(run["slot_names"])
        (place / "run.json").write_text(json.dumps(run))
        places.append(RecordingFolder.open(place))
    with pytest.raises(TrainingError, match=r"different units: cpu-s.* and steps"):
        fit_recordings(places, generations=1)
