"""The twins that a name stands for in training and validation; fits that repeat or go on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from stallward.env.recording.stored import RecordingFolder, Selection, StoredRecording
from stallward.env.testing import small_twin
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted, save_fitted
from stallward.evaluation.cli import main
from stallward.training.errors import TrainingError
from stallward.training.parallel.local_processes import IN_THIS_PROCESS
from stallward.training.pipeline import fit as pipeline
from stallward.training.pipeline.fit import TwinFiles, fit_recordings, fit_twin
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


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_a_fit_bounded_by_generations_gives_the_same_twin_again(tmp_path: Path) -> None:
    recordings = [
        Path(f"recordings/detector-anon-{name}-s1")
        for name in ("ample", "background", "static-limit-0.35")
    ]
    places = [Path(__file__).parents[3] / path for path in recordings]
    files = [fit_twin(places, out=tmp_path / f"{name}.json", generations=2) for name in ("a", "b")]
    assert not [written for written in files if written.kept]
    one, other = (load_fitted(written.files[0]) for written in files)
    assert (one.draws, one.weights) == (other.draws, other.weights)
    assert one.provenance["generations"] == 2


@pytest.fixture
def two_scenarios() -> list[Path]:
    names = ("detector-anon", "detector-phases")
    return [Path(__file__).parents[3] / f"recordings/{name}-none-s1" for name in names]


@dataclass
class Fitting:
    """Fits that take no time; all twins are alike."""

    scenarios: list[str] = field(default_factory=list)
    """Those that were fitted, in order."""
    names: list[list[str]] = field(default_factory=list)
    """The recordings of each."""
    interrupted_at: str = ""

    def fit(self, recordings: Sequence[StoredRecording], **_: object) -> FittedTwin:
        name = recordings[0].scenario
        if name == self.interrupted_at:
            raise KeyboardInterrupt
        self.scenarios.append(name)
        self.names.append([one.name for one in recordings])
        return twin_of(name)


def twin_of(scenario: str) -> FittedTwin:
    twin = small_twin()
    return replace(twin, scenario=replace(twin.scenario, name=scenario))


@pytest.fixture
def fitting(monkeypatch: pytest.MonkeyPatch) -> Fitting:
    fitting = Fitting()
    monkeypatch.setattr(pipeline, "fit_recordings", fitting.fit)
    return fitting


def fit(places: Sequence[Path], out: Path, **options: Any) -> TwinFiles:
    return fit_twin(places, out=out, executor=IN_THIS_PROCESS, **options)


def test_an_interrupted_fit_goes_on_with_the_scenarios_that_are_missing(
    two_scenarios: list[Path], fitting: Fitting, tmp_path: Path
) -> None:
    out = tmp_path / "twins"
    fitting.interrupted_at = "detector-phases"
    with pytest.raises(KeyboardInterrupt):
        fit(two_scenarios, out)
    first = out / "detector-anon.json"
    before = first.stat().st_ino
    fitting.interrupted_at = ""
    both = fit(two_scenarios, out)
    assert fitting.scenarios == ["detector-anon", "detector-phases"]
    assert both == TwinFiles(files=(first, out / "detector-phases.json"), kept=(first,))
    assert first.stat().st_ino == before
    assert fit(two_scenarios, out).kept == both.files
    assert fit(two_scenarios, out, again=True).kept == ()
    assert fitting.scenarios == ["detector-anon", "detector-phases"] * 2


def test_an_arm_that_is_chosen_is_fitted_together_with_its_references(
    fitting: Fitting, tmp_path: Path
) -> None:
    folder = Path(__file__).parents[3] / "recordings"
    names = [f"detector-anon-{name}-s1" for name in ("alone", "ample", "excite", "none")]
    places = [folder / name for name in (*names, "detector-phases-ample-s1")]
    fit(places, tmp_path / "twins", selection=Selection(arm="excite"))
    assert fitting.names == [names[:3]], "no other arm, and no scenario without this one"
    with pytest.raises(TrainingError, match="no recording"):
        fit(places, tmp_path / "twins", selection=Selection(arm="moon"))


def test_a_twin_of_other_recordings_settings_or_versions_is_fitted_again(
    two_scenarios: list[Path],
    fitting: Fitting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = shutil.copytree(two_scenarios[0], tmp_path / "recording")
    other = two_scenarios[0].with_name("detector-anon-ample-s1")
    out = tmp_path / "twin.json"
    changes: list[tuple[list[Path], dict[str, Any]]] = [
        ([place], {}),
        ([place, other], {}),
        ([place], {"seed": 2}),
        ([place], {"generations": 3}),
        ([place], {"seconds": 9.0}),
        ([place], {"start": twin_of("detector-anon")}),
    ]
    for places, options in changes:
        assert fit(places, out, **options).kept == (), options
        assert fit(places, out, **options).kept == (out,), options
    fit([place], out)
    run = place / "run.json"
    run.write_text(run.read_text() + "\n")
    assert fit([place], out).kept == (), "a changed recording was not fitted again"
    with monkeypatch.context() as changed:
        changed.setattr(pipeline, "versions_here", lambda: {"numpy": "0.1"})
        assert fit([place], out).kept == (), "a twin of another version was kept"
    assert fit([place], out).kept == ()
    save_fitted(out, replace(load_fitted(out), provenance={}))
    assert fit([place], out).kept == (), "nothing says how it was fitted"
    assert len(fitting.scenarios) == len(changes) + 5


@pytest.mark.usefixtures("fitting")
def test_the_command_says_which_twins_it_kept(
    two_scenarios: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # jobs run in this process
    out = tmp_path / "twins"
    command = ["fit", *map(str, two_scenarios), "--out", str(out)]
    assert main(command) == 0
    first = capsys.readouterr()
    assert "is kept" not in first.err
    assert main(command) == 0
    second = capsys.readouterr()
    assert second.out == first.out
    assert second.err.count("is kept") == 2
    assert "--again" in second.err
    assert main([*command, "--again"]) == 0
    assert "is kept" not in capsys.readouterr().err


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
