"""The shipped policies, twins and recordings load, belong together, and are enough."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from stallward.env.recording.recording import Recording, load_recording
from stallward.env.recording.split import load_split
from stallward.env.scenario.file import find_scenarios
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.models.registry import find_policy, find_twin, load_policy, twin_names
from stallward.training.export.card import card

RECORDINGS = Path(__file__).parents[2] / "recordings"
_MAX_BYTES = 30 * 1000 * 1000


@pytest.fixture(scope="module")
def recordings() -> tuple[Recording, ...]:
    return tuple(load_recording(file.parent) for file in sorted(RECORDINGS.glob("*/run.json")))


def test_the_scenarios_that_were_to_be_learned_from_have_a_readable_twin_each(
    recordings: tuple[Recording, ...],
) -> None:
    recorded = {recording.run.scenario for recording in recordings}
    assert recorded <= {scenario.name for scenario in find_scenarios()}
    part_of = load_split().part_of_name
    learned_from = {name for name in recorded if part_of(name) != "test"}
    assert set(twin_names()) == learned_from
    for name in twin_names():
        assert load_fitted(Path(find_twin(name))).scenario.name == name


def test_the_default_policy_loads_and_its_card_belongs_to_it() -> None:
    path = find_policy("default")
    provenance = load_policy(path).metadata.provenance
    split = load_split()
    parts = {name: split.part_of_name(name) for name in twin_names()}
    # A twin may have been added since.
    assert {n for n in parts if n.startswith("detector")} <= set(provenance["twins"])
    assert set(provenance["twins"]) <= {n for n, part in parts.items() if part == "train"}
    assert set(provenance["judged_on"]) <= {n for n, p in parts.items() if p == "validation"}
    assert len(provenance["seeds"]) >= 2, "nobody could say how much chance there is in it"
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert hashlib.sha256(path.read_bytes()).hexdigest() in text


def test_the_card_of_the_default_policy_is_generated_from_its_file() -> None:
    path = find_policy("default")
    made = card("default", load_policy(path).metadata, path.stat().st_size)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == made, (
        "stale: write card(name, load_policy(path).metadata, size) of training/export/card.py"
    )


def test_there_are_enough_recordings_of_real_pressure_and_all_are_readable(
    recordings: tuple[Recording, ...],
) -> None:
    together = [
        r.run
        for r in recordings
        if r.run.condition == "together" and r.run.end_s - r.run.start_s >= 60.0
    ]
    assert len(together) >= 24
    assert len({run.scenario for run in together}) >= 4
    arms = {run.arm for run in together}
    assert len(arms) >= 5
    assert any(arm.startswith("excite") for arm in arms)
    size_bytes = sum(f.stat().st_size for f in RECORDINGS.glob("*/*"))
    assert size_bytes <= _MAX_BYTES


@pytest.mark.parametrize("name", sorted(twin_names()))
def test_a_twin_was_fitted_to_the_recordings_that_are_shipped(name: str) -> None:
    """And to some that are only in the history now, so that a clone stays small."""
    shipped = {path.name for path in RECORDINGS.iterdir() if path.name.startswith(f"{name}-")}
    fitted = set(load_fitted(Path(find_twin(name))).provenance["recordings"])
    assert {r for r in shipped if "-background-" not in r} <= fitted
    thinned_out = {
        name
        for name in fitted
        if name.endswith(("-psi-hold-s1", "-static-limit-0.25-1-s1", "-static-limit-0.6-s1"))
    }
    assert fitted - shipped == thinned_out
