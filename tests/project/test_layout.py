"""The layout of the repository, and the content of the wheel."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ("env", "agent", "actuator", "proto", "training", "models", "evaluation")
FOLDERS = {name: name for name in CORE} | {
    "lens": "packages/lens",
    "research": "packages/research",
    "papers": "packages/papers",
    "fleet": "packages/fleet",
    "kubernetes": "packages/kubernetes",
    "benchmarks": "packages/benchmarks",
}
"""The folder of each package: of the core, and beside it."""


def tracked(*patterns: str) -> list[Path]:
    """The files that git tracks, and the new ones that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


@pytest.mark.parametrize("name", FOLDERS)
def test_each_folder_is_one_package_of_the_namespace(name: str) -> None:
    folder = FOLDERS[name]
    namespace = ROOT / folder / "stallward"
    assert not (namespace / "__init__.py").exists(), "it would hide the other packages"
    package = namespace / name
    assert (package / "__init__.py").exists()
    assert (package / "py.typed").exists()
    strays = [p for p in tracked(f"{folder}/*.py") if package not in p.parents]
    assert strays == []


@pytest.mark.parametrize("name", FOLDERS)
def test_git_ignores_no_package(name: str) -> None:
    module = f"{FOLDERS[name]}/stallward/{name}/x.py"
    done = subprocess.run(["git", "check-ignore", "-q", module], cwd=ROOT, check=False)
    assert done.returncode == 1


def test_a_checkout_takes_less_than_50_mb() -> None:
    """Every committed file stays in every clone, even after it was deleted."""
    assert sum(path.stat().st_size for path in tracked()) < 50_000_000


def test_there_are_no_catch_all_modules() -> None:
    names = {"utils.py", "util.py", "common.py", "helpers.py", "misc.py"}
    assert [p for p in tracked("*.py") if p.name in names] == []


def shipped() -> list[Path]:
    """The modules of all packages, without generated ones."""
    return [
        path
        for folder in FOLDERS.values()
        for path in tracked(f"{folder}/stallward/*.py")
        if "_pb2" not in path.name
    ]


def test_a_file_has_at_most_800_lines() -> None:
    lines = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in shipped()}
    assert [name for name, count in lines.items() if count > 800] == []


def test_users_mistakes_are_never_asserted() -> None:
    """Under -O an assert does nothing, so shipped code may only narrow types with it."""
    sources = {path: path.read_text() for path in (*shipped(), *tracked("scripts/*.py"))}
    offenders = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, source in sources.items()
        if re.search(r"^\s*assert\b", source, re.MULTILINE)  # parsing all files takes seconds
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assert) and not _narrows(node.test)
    ]
    assert offenders == []


def _narrows(test: ast.expr) -> bool:
    is_not_none = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot)
    is_instance = (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Name)
        and test.func.id == "isinstance"
    )
    return is_not_none or is_instance


@pytest.mark.slow
@pytest.mark.parametrize(
    ("project", "folders"),
    [
        (".", CORE),
        ("packages/lens", ["packages/lens"]),
        ("packages/research", ["packages/research"]),
        ("packages/papers", ["packages/papers"]),
        ("packages/fleet", ["packages/fleet"]),
        ("packages/kubernetes", ["packages/kubernetes"]),
        ("packages/benchmarks", ["packages/benchmarks"]),
    ],
)
def test_the_wheel_holds_exactly_the_tracked_files(
    tmp_path: Path, project: str, folders: Sequence[str]
) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT / project,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    inside = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    expected = {
        str(path.relative_to(ROOT / folder))
        for folder in folders
        for path in tracked(f"{folder}/stallward/*")
    }
    assert inside == expected
