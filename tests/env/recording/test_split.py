"""The split is read strictly, holds out whole values, and chooses recordings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stallward.env.errors import SplitError
from stallward.env.recording.recording import Requests, Units, write_recording
from stallward.env.recording.run_info import NodeInfo, RunInfo
from stallward.env.recording.split import PARTS, choose_part, load_split
from stallward.env.recording.stored import RecordingFolder
from stallward.env.scenario.file import (
    find_scenarios,
    load_scenario,
    parse_scenario,
    scenario_from,
)
from stallward.env.scenario.scenario import CompressedSwap
from stallward.env.twin.inputs.fitted import load_fitted, save_fitted
from stallward.models.registry import find_twin
from stallward.training.pipeline.fit import drop_held_out, fit_twin
from stallward.training.pipeline.train import train_policy

GOOD = """
[application]
train = ["a"]
validation = []
test = ["b"]
[background]
train = ["x"]
validation = ["y"]
test = []
[zone_mib]
train = [100]
validation = []
test = [200]
"""


def recording(path: Path, scenario: str, **changed: object) -> Path:
    content = {**load_scenario(scenario).content, **changed}
    content = {key: value for key, value in content.items() if value is not None}
    write_recording(
        path,
        run=RunInfo(
            scenario=scenario,
            condition="together",
            arm="none",
            seed=1,
            start_s=0.0,
            end_s=1.0,
            burn_in_s=0.0,
            sandbox_bytes=1,
            slo_ms=1.0,
            node=NodeInfo(kind="none", kernel="", cpu_count=1, memory_total_bytes=1),
            scenario_parameters=content,
        ),
        ticks=[],
        requests=Requests.empty(),
        units=Units.empty(),
    )
    return path


def test_every_shipped_scenario_has_a_part_and_every_part_has_scenarios() -> None:
    split = load_split()
    parts = {scenario.name: split.part_of(scenario) for scenario in find_scenarios()}
    assert set(parts.values()) == set(PARTS)
    assert len([part for part in parts.values() if part == "train"]) >= 5


def test_compressed_swap_is_not_learned_from_whatever_it_is_in() -> None:
    split = load_split()
    scenario = load_scenario("detector-anon")
    assert split.part_of(scenario) == "train"
    swap = CompressedSwap(kind="zram", compressor="lzo")
    for one in (scenario, replace(scenario, application="")):
        sandbox = replace(one.sandbox, compressed_swap=swap)
        assert split.part_of(replace(one, sandbox=sandbox)) == "test"


def test_values_are_held_out_as_a_whole() -> None:
    split = load_split()
    of_part: dict[str, set[object]] = {part: set() for part in PARTS}
    for scenario in find_scenarios():
        if scenario.others:  # nothing can be learned from several applications
            assert split.part_of(scenario) == "test"
            continue
        assert scenario.application, f"{scenario.name} names no application"
        made_of = of_part[split.part_of(scenario)]
        made_of |= {scenario.application, scenario.sandbox.limit_bytes >> 20}
        for group in scenario.background:
            assert group.kind, f"{scenario.name}: {group.name} names no kind"
            made_of.add(group.kind)
    for axis in (split.application, split.background, split.zone_mib):
        for value, part in axis.items():
            for earlier in PARTS[: PARTS.index(part)]:
                assert value not in of_part[earlier]
            assert value in of_part[part], f"{value!r} is in no scenario of {part}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[application]", "[applications]", "unknown key 'applications'"),
        ('test = ["b"]', "", r"application\.test is missing"),
        ('train = ["x"]', 'train = ["y"]', "background has 'y' in train and in validation"),
        ("[100]", '["100"]', r"zone_mib\.train\[0\] is '100', not a whole number"),
        ("[100]", "[true]", r"zone_mib\.train\[0\] is True, not a whole number"),
        ('train = ["a"]', 'train = "a"', "application.train is 'a', not a list of strings"),
        ("[zone_mib]", "zone_mib = 3\n[x]", "cannot be read|unknown key"),
        ("train = [100]", "trian = [100]", "unknown key 'trian'"),
        ("[application]", "[application", "cannot be read"),
    ],
)
def test_a_split_with_a_mistake_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "split.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(SplitError, match=message):
        load_split(path)


def test_a_split_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SplitError, match="cannot be read"):
        load_split(tmp_path / "split.toml")


def test_a_value_in_no_part_is_named(tmp_path: Path) -> None:
    path = tmp_path / "split.toml"
    path.write_text(GOOD)
    with pytest.raises(SplitError, match="application 'detector' in no part") as caught:
        load_split(path).part_of(load_scenario("detector-anon"))
    assert "[application]" in caught.value.next_step


def test_a_scenario_without_an_application_is_for_training() -> None:
    content = dict(load_scenario("ruby-yosys").content)
    del content["application"]
    split = load_split()
    assert split.part_of(scenario_from(content, Path("mine.toml"))) == "train"
    assert split.part_of_name("mine") == "train"
    assert split.part_of_name("../ruby-yosys") == "train"


@pytest.mark.parametrize(("base", "part"), [("redis-sort", "train"), ("ruby-yosys", "test")])
def test_a_scenario_that_is_based_on_another_is_held_out_with_it(
    tmp_path: Path, base: str, part: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'based_on = "{base}"\n[sandbox]\nlimit_mib = 333\n')
    own = parse_scenario(file)
    split = load_split()
    assert 333 not in split.zone_mib
    assert split.part_of(own) == part
    of_its_own = replace(own, background=(replace(own.background[0], kind="mine"),))
    assert split.part_of(of_its_own) == part
    with pytest.raises(SplitError, match="zone_mib 333 in no part"):
        split.part_of(replace(own, name=base))


def test_recordings_are_chosen_by_their_part(tmp_path: Path) -> None:
    paths = [
        recording(tmp_path / "train", "detector-anon"),
        recording(tmp_path / "test", "ruby-yosys"),
        recording(tmp_path / "older", "ruby-yosys", application=None),  # before there was a split
        recording(
            tmp_path / "size", "detector-anon", sandbox={"limit_mib": 540, "ample_mib": 600}
        ),
    ]
    stored = [RecordingFolder.open(path) for path in paths]
    chosen = choose_part(stored)
    assert chosen.kept == (stored[0],)
    assert chosen.left_out == tuple((one, "test") for one in stored[1:])
    assert chosen.note == "left out 3 of test (detector-anon, ruby-yosys)"
    assert choose_part(stored, ("test",)).kept == tuple(stored[1:])
    bad = RecordingFolder.open(recording(tmp_path / "bad", "ruby-yosys", summary=3))
    with pytest.raises(SplitError, match="no usable scenario"):
        choose_part([bad])


def test_held_out_recordings_are_not_fitted_to(tmp_path: Path) -> None:
    train, test = (
        RecordingFolder.open(recording(tmp_path / "both" / part, scenario))
        for part, scenario in (("train", "detector-anon"), ("test", "ruby-yosys"))
    )
    messages: list[str] = []
    kept = drop_held_out([train, test], report=lambda message, _share: messages.append(message))
    assert (kept, messages) == ((train,), ["left out 1 of test (ruby-yosys)"])
    assert drop_held_out([train, test], held_out=True) == [train, test]
    with pytest.raises(SplitError, match="All these recordings are held out") as caught:
        fit_twin([test.path], out=tmp_path / "twins", seconds=1.0)
    assert "--held-out" in caught.value.next_step
    assert not (tmp_path / "twins").exists()


def test_no_policy_is_trained_on_the_twin_of_a_held_out_scenario(
    tmp_path: Path,
) -> None:
    fitted = Path(find_twin("detector-anon"))
    renamed = tmp_path / "etcd.json"
    save_fitted(renamed, load_fitted(fitted))
    renamed.write_text(renamed.read_text().replace('"detector-anon"', '"ruby-yosys"'))
    with pytest.raises(SplitError, match="'ruby-yosys' is held out for test"):
        train_policy([str(renamed)], out=tmp_path / "run", seconds=1.0)
    assert not (tmp_path / "run").exists()
