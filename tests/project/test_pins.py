"""Whatever the scripts download from PyPI is pinned by hash, and what is ours has one version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
STATED = re.compile(
    r"(?:^version: |^appVersion: \"|stallward[\w-]*[:-])(\d+\.\d+\.\d+)", re.MULTILINE
)
"""Of the chart, of an image and of a wheel."""
LOCK = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
PINNED = (
    "scripts/uv.txt",
    "scripts/hatchling.txt",
    "scripts/workloads-all.txt",
    "scripts/workloads-build.txt",
    "tests/vm/tools.txt",
    "proto/generator.txt",
)


def requirements(file: str) -> dict[str, str]:
    """The requirements of a file, without comments, by the name of the package."""
    text = re.sub(r"^#.*\n", "", (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", "").splitlines()
    return {Requirement(line.partition(" --hash")[0]).name: line for line in lines}


@pytest.mark.parametrize("file", PINNED)
def test_every_requirement_has_one_version_and_its_hashes(file: str) -> None:
    for line in requirements(file).values():
        assert re.fullmatch(r"[\w.-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+ *", line)


def test_the_scripts_install_what_has_a_hash_and_nothing_else() -> None:
    for script in ("scripts/setup.sh", "scripts/test_versions.sh"):
        text = (ROOT / script).read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            if "pip install" in line and not line.startswith("#"):
                assert "--require-hashes" in line or "--build-constraints" in line, line


def test_the_project_is_built_by_the_locked_hatchling() -> None:
    project, *others = (
        tomllib.loads(file.read_text(encoding="utf-8"))
        for file in (ROOT / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml")))
    )
    names = [one["project"]["name"] for one in (project, *others)]
    assert project["tool"]["uv"]["no-build-isolation-package"] == names
    assert all(one["build-system"] == project["build-system"] for one in others)
    (builder,) = map(Requirement, project["build-system"]["requires"])
    development = [group for group in project["dependency-groups"]["dev"] if group == str(builder)]
    assert development, "uv installs it before the project"
    locked = {package["name"]: package["version"] for package in LOCK["package"]}
    for line in requirements("scripts/hatchling.txt").values():
        pinned = Requirement(line.partition(" --hash")[0])
        assert str(pinned.specifier) == f"=={locked[pinned.name]}", "compile it anew"


def test_nothing_that_is_locked_is_built_from_source() -> None:
    from_source = [p["name"] for p in LOCK["package"] if "wheels" not in p]
    assert from_source == [
        "stallward",
        "stallward-benchmarks",
        "stallward-fleet",
        "stallward-kubernetes",
        "stallward-lens",
        "stallward-papers",
        "stallward-research",
    ], "its builder would not be pinned"


def test_whatever_is_made_or_shown_of_a_release_has_its_version() -> None:
    """docs/releases.md has the places."""
    stated = {
        (str(path.relative_to(ROOT)), version)
        for path in (*ROOT.glob("deploy/**/*.yaml"), *ROOT.glob("docs/**/*.md"))
        for version in STATED.findall(path.read_text("utf-8"))
    }
    assert ("deploy/chart/Chart.yaml", VERSION) in stated
    assert [one for one in stated if one[1] != VERSION] == []
    assert {p["version"] for p in LOCK["package"] if p["name"].startswith("stallward")} == {
        VERSION
    }


def test_a_package_beside_the_core_goes_with_this_version_of_it() -> None:
    for file in ROOT.glob("packages/*/pyproject.toml"):
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        assert project["version"] == VERSION
        needs = {one.name: one for one in map(Requirement, project["dependencies"])}
        own = [one for name, one in needs.items() if name.startswith("stallward")]
        assert {str(one.specifier) for one in own} == {f"=={VERSION}"}
