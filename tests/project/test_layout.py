"""The layout of the repository, and the content of the wheel."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Final

import grimp
import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("env", "agent", "actuator", "proto", "training", "models", "evaluation")


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


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_is_one_package_of_the_namespace(folder: str) -> None:
    namespace = ROOT / folder / "stallward"
    assert not (namespace / "__init__.py").exists(), "it would hide the other six packages"
    package = namespace / folder
    assert (package / "__init__.py").exists()
    assert (package / "py.typed").exists()
    strays = [p for p in tracked(f"{folder}/*.py") if package not in p.parents]
    assert strays == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_git_ignores_no_package(folder: str) -> None:
    done = subprocess.run(
        ["git", "check-ignore", "-q", f"{folder}/stallward/{folder}/x.py"], cwd=ROOT, check=False
    )
    assert done.returncode == 1


def test_a_clone_takes_less_than_84_mb() -> None:
    """The files and their history. Every committed file stays in every clone."""
    files_bytes = sum(path.stat().st_size for path in tracked())
    # Packed as for a clone: in a working copy, new objects lie about one by one and larger.
    pack = subprocess.run(
        ["git", "pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset"],
        cwd=ROOT,
        input=b"HEAD\n",
        capture_output=True,
        check=True,
    )
    history_bytes = len(pack.stdout)
    assert files_bytes + history_bytes < 84_000_000, (files_bytes, history_bytes)


def test_there_are_no_catch_all_modules() -> None:
    names = {"utils.py", "util.py", "common.py", "helpers.py", "misc.py"}
    assert [p for p in tracked("*.py") if p.name in names] == []


def test_test_files_have_unique_names() -> None:
    names = [p.name for p in tracked("tests/*.py") if p.name.startswith("test_")]
    assert len(names) == len(set(names))


FILES_IN_A_FOLDER: Final = 15
LINES_OF_A_FILE: Final = 300
LONG_FILES: Final = {
    "actuator/stallward/actuator/levers/table.py": "a table",
    "actuator/stallward/actuator/sensors/signal_table.py": "a table",
    "agent/stallward/agent/observation/feature_table.py": "a table",
    "evaluation/stallward/evaluation/fidelity/measure.py": "one measure, read in one go",
    "training/stallward/training/ppo/train.py": "a recipe is read in one go",
}
"""Files that may be longer, and why."""


def shipped() -> list[Path]:
    """The modules of all packages, without generated ones."""
    return [
        path
        for folder in FOLDERS
        for path in tracked(f"{folder}/stallward/*.py")
        if "_pb2" not in path.name
    ]


def test_no_folder_holds_too_many_files() -> None:
    count = Counter(path.parent for path in shipped() if path.name != "__init__.py")
    crowded = {str(p.relative_to(ROOT)): n for p, n in count.items() if n > FILES_IN_A_FOLDER}
    assert crowded == {}


def test_a_file_is_short_or_there_is_a_reason() -> None:
    lines = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in shipped()}
    too_long = {name for name, count in lines.items() if count > LINES_OF_A_FILE}
    assert too_long - LONG_FILES.keys() == set()
    assert LONG_FILES.keys() - too_long == set(), "exceptions that are no longer needed"


def test_imports_make_no_circle() -> None:
    """Imports inside functions and for types count, too: a circle is one design in two files."""
    graph = grimp.build_graph(*(f"stallward.{folder}" for folder in FOLDERS))
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while free := [module for module, imports in left.items() if not imports & left.keys()]:
        for module in free:
            del left[module]
    # Each module that is left is in a circle or imports one; remove those that none imports.
    while ends := left.keys() - set().union(*left.values()):
        for module in ends:
            del left[module]
    assert sorted(left) == []


def test_users_mistakes_are_never_asserted() -> None:
    """Under -O an assert does nothing, so shipped code may only narrow types with it."""
    shipped = [
        p
        for p in tracked("*.py")
        if "tests" not in p.relative_to(ROOT).parts and "_pb2" not in p.name
    ]
    offenders = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in shipped
        for node in ast.walk(ast.parse(path.read_text()))
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


def test_the_wheel_holds_exactly_the_tracked_files(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    inside = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    expected = {
        str(path.relative_to(ROOT / folder))
        for folder in FOLDERS
        for path in tracked(f"{folder}/stallward/*")
    }
    assert inside == expected
