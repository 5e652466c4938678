"""What the product imports is declared, and a missing module is said with the extra to install."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement

from stallward.actuator.levers.base.plugin import KNOWN, LEVER_GROUP
from stallward.agent import registry
from stallward.agent.plugin import PLUGIN_GROUP
from stallward.evaluation import cli
from stallward.evaluation.cli.plugins import COMMAND_GROUP, EXTRA_OF

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "proto",
    "agent",
    "models",
    "actuator",
    "env",
    "training",
    "evaluation",
    "lens",
    "research",
    "papers",
    "fleet",
    "kubernetes",
    "benchmarks",
)
PACKAGES = [f"stallward.{folder}" for folder in FOLDERS]
OF_SCENARIOS = {
    line.partition("==")[0]
    for line in (ROOT / "scripts/workloads-all.txt").read_text().splitlines()
    if "==" in line
}
"""What programs of shipped scenarios import; a scenario that lacks it is skipped, and says so."""
BROUGHT = {"llvmlite": "numba"}
"""What comes with another distribution, of which it is a part."""


@pytest.mark.slow
def test_every_module_that_is_imported_is_declared() -> None:
    """In the extra that is named where the module is missing, or for every install.

    A package beside the core may declare what it alone imports.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = {
        f"stallward.{file.parent.name}": tomllib.loads(file.read_text())["project"]["dependencies"]
        for file in ROOT.glob("packages/*/pyproject.toml")
    }
    distributions = metadata.packages_distributions()
    # A cache that graphs without other packages share would be taken for new when it is not.
    graph = grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)
    others = {name for name in graph.modules if graph.is_module_squashed(name)}
    imported = others - sys.stdlib_module_names - OF_SCENARIOS
    undeclared = {}
    for module in imported:
        extra = cli.extra_of(module)
        of_extra = project["optional-dependencies"][extra] if extra else project["dependencies"]
        having = (one.lower().replace("_", "-") for one in distributions.get(module, [module]))
        brought = {BROUGHT.get(one, one) for one in having}
        importers = {
            importer
            for importer in graph.find_modules_that_directly_import(module)
            if not brought & names(own.get(".".join(importer.split(".")[:2]), []))
        }
        if importers and not brought & names(of_extra):
            undeclared[module] = sorted(importers)
    assert {"numpy", "google", "torch"} <= imported
    assert undeclared == {}


def names(requirements: list[str]) -> set[str]:
    return {Requirement(one).name for one in requirements}


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("grpc.aio", "node"),
        ("yaml", "node"),
        ("PIL.Image", "train"),
        ("scipy.stats", "train"),
        ("minari", "minari"),
        ("duckdb", "workloads"),
        ("ray", "ray"),
    ],
)
def test_a_missing_module_is_said_with_the_smallest_extra(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(*_: object, **__: object) -> int:
        raise ModuleNotFoundError(name=module)

    monkeypatch.setattr("stallward.evaluation.cli.app.app", lacking)
    assert cli.main(["arms"]) == cli.MISTAKE
    root = module.partition(".")[0]
    said = f"stallward: {root} is not installed. Run `pip install 'stallward[{extra}]'`.\n"
    assert capsys.readouterr().err == said


def test_a_missing_module_of_nobody_is_no_mistake_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lacking(*_: object, **__: object) -> int:
        raise ModuleNotFoundError(name="stallward.agent.no_such_file")

    monkeypatch.setattr("stallward.evaluation.cli.app.app", lacking)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["arms"])


@pytest.mark.parametrize(
    ("group", "extra_of"),
    [
        (COMMAND_GROUP, EXTRA_OF),
        (PLUGIN_GROUP, registry.EXTRA_OF),
        (LEVER_GROUP, {name: known.extra for name, known in KNOWN.items()}),
    ],
)
def test_what_a_package_beside_the_core_adds_is_known_with_its_extra(
    group: str, extra_of: dict[str, str]
) -> None:
    """Where the package is not installed, its commands, controllers and levers say what to install."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    known: dict[str, str] = {}
    for file in ROOT.glob("packages/*/pyproject.toml"):
        project = tomllib.loads(file.read_text())["project"]
        (extra,) = [name for name, of_it in extras.items() if of_it == [project["name"]]]
        assert f"stallward[{extra}]" in extras["all"]
        known |= dict.fromkeys(project["entry-points"].get(group, ()), extra)
    assert known == extra_of
