"""The configuration of oomd for a sandbox is the packaged one, with the sandbox's groups."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stallward.actuator.kernel.cgroups import Hierarchy, Kind
from stallward.actuator.kernel.paths import Paths
from stallward.env.sandbox.peers.programs import OOMD_CONFIG, find_peer, oomd_rules, why_not
from stallward.env.sandbox.sandbox import Sandbox

is_installed = pytest.mark.skipif(
    bool(why_not(find_peer("oomd"))), reason=why_not(find_peer("oomd")) or "it is installed"
)


def sandbox_on(kind: Kind, folder: Path) -> Sandbox:
    hierarchy = Hierarchy(kind=kind, memory_root=folder, unified_root=folder)
    zone = hierarchy.group("stallward/1")
    return Sandbox(
        zone=zone,
        protected=zone.child("app"),
        slots=(zone.child("bg0"), zone.child("bg1")),
        load=hierarchy.group("stallward/1-load"),
        peer=hierarchy.group("stallward/1-peer"),
        folder=folder,
        paths=Paths(),
    )


def rules_on(kind: Kind, folder: Path) -> dict[str, Any]:
    """The rulesets by name."""
    rules = json.loads(oomd_rules(sandbox_on(kind, folder)))["rulesets"]
    return {ruleset["name"]: ruleset for ruleset in rules}


def plugins(ruleset: dict[str, Any]) -> list[dict[str, Any]]:
    """The detectors of the first group, and the actions."""
    return [*ruleset["detectors"][0][1:], *ruleset["actions"]]


@is_installed
def test_with_cgroup_v2_it_is_the_packaged_one_but_for_the_groups(tmp_path: Path) -> None:
    text = re.sub(r"^\s*//.*$", "", OOMD_CONFIG.read_text(), flags=re.MULTILINE)
    packaged = {ruleset["name"]: ruleset for ruleset in json.loads(text)["rulesets"]}
    ours = rules_on("v2", tmp_path)
    assert set(packaged) - set(ours) == {"system overview"}, "it only logs"
    for name, ruleset in ours.items():
        for mine, theirs in zip(plugins(ruleset), plugins(packaged[name]), strict=True):
            assert mine["name"] == theirs["name"]
            for one in (mine, theirs):
                one["args"].pop("cgroup", None)
            assert mine["args"] == theirs["args"]


@pytest.mark.parametrize("kind", ["v2", "hybrid"])
def test_the_zone_is_watched_and_only_the_background_is_killed(tmp_path: Path, kind: Kind) -> None:
    for ruleset in rules_on(kind, tmp_path).values():
        *detectors, action = plugins(ruleset)
        assert {one["args"].get("cgroup", "stallward/1") for one in detectors} == {"stallward/1"}
        assert action["args"]["cgroup"] == "stallward/1/bg0,stallward/1/bg1"


def test_without_memory_files_it_goes_by_stall_alone(tmp_path: Path) -> None:
    (ruleset,) = rules_on("hybrid", tmp_path).values()
    assert [one["name"] for one in plugins(ruleset)] == ["pressure_above", "kill_by_pressure"]
    numbers = plugins(ruleset)[0]["args"]
    assert (numbers["threshold"], numbers["duration"]) == ("60", "30")


@is_installed
@pytest.mark.parametrize("kind", ["v2", "hybrid"])
def test_oomd_takes_it(tmp_path: Path, kind: Kind) -> None:
    config = tmp_path / "config"
    config.write_text(oomd_rules(sandbox_on(kind, tmp_path)))
    run = subprocess.run(
        ["oomd", "--check-config", str(config)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    config.write_text(config.read_text().replace("pressure_above", "pressure_below"))
    run = subprocess.run(
        ["oomd", "--check-config", str(config)], capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
