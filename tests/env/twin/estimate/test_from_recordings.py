"""A twin of a recording: described by it, with the parameters of fitted twins."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stallward.env.errors import RecordingError
from stallward.env.twin.estimate.background import growth_per_s
from stallward.env.twin.estimate.from_recordings import twin_of_recordings
from stallward.env.twin.inputs.exogenous import PAGE_BYTES
from stallward.env.twin.inputs.find import load_twins
from stallward.models.registry import twin_names

RECORDINGS = Path(__file__).parents[4] / "recordings"
EXCITE = RECORDINGS / "detector-anon-excite-s1"


def test_one_recording_says_what_runs_and_the_shipped_twin_how_the_node_behaves() -> None:
    twin = twin_of_recordings([EXCITE])
    (shipped,) = load_twins(["detector-anon"])
    assert twin.draws == shipped.draws
    assert [slot.name for slot in twin.scenario.slots] == ["anon-a", "anon-b"]
    for slot in twin.scenario.slots:
        assert max(slot.anon_pages) * PAGE_BYTES == pytest.approx(250 << 20, rel=0.1)
    assert twin.scenario.protected.request_rate_per_s == pytest.approx(15.0, rel=0.1)
    assert twin.scenario.zone_bytes == shipped.scenario.zone_bytes
    assert twin.provenance == {"described_by": ["detector-anon-excite-s1"]}
    assert not twin.saw_its_scenario


def test_an_application_that_no_twin_knows_has_the_parameters_of_similar_ones(
    tmp_path: Path,
) -> None:
    shutil.copytree(EXCITE, tmp_path / "own")
    facts = json.loads((EXCITE / "run.json").read_text()) | {"scenario": "own"}
    (tmp_path / "own" / "run.json").write_text(json.dumps(facts))
    twin = twin_of_recordings([tmp_path / "own"])
    assert twin.scenario.name == "own"
    assert len(twin.draws) == sum(len(one.draws) for one in load_twins(twin_names()))
    assert sum(twin.weights) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        ((), "of one scenario, and these are of 0"),
        (("detector-anon-none-s1", "redis-mix-none-s1"), "of 2: detector-anon, redis-mix"),
        (("detector-anon-alone-s1",), "everything together"),
    ],
)
def test_what_makes_no_twin_is_named(folders: tuple[str, ...], said: str) -> None:
    with pytest.raises(RecordingError, match=said):
        twin_of_recordings([RECORDINGS / folder for folder in folders])


def test_a_counter_that_began_anew_adds_nothing_in_that_step() -> None:
    columns = {"n": np.array([10.0, 20.0, np.nan, 3.0, 13.0]), "time_s": np.arange(5.0)}
    run: Any = SimpleNamespace(tick=columns.__getitem__)
    assert growth_per_s(run, "n") == 5.0
