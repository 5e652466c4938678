"""What a test can reach: the files that it imports or starts, and the data beside them.

A file reaches what its text names: the modules of the product, as an import or in a string (which
is how a process of another module is started), and the modules beside the tests. What names a
group of entry points reaches what the packages beside the core register there. A module also
reaches the data files in its own folder. This names too much rather than too little: a module in a
comment counts as well. What no module names, such as recordings or the chart, stands in the marker
``reaches`` of the test.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

CORE: Final = ("proto", "agent", "models", "actuator", "env", "training", "evaluation")
PLACES: Final = {
    **{package: f"{package}/stallward/{package}" for package in CORE},
    "lens": "packages/lens/stallward/lens",
    "research": "packages/research/stallward/research",
    "papers": "packages/papers/stallward/papers",
    "fleet": "packages/fleet/stallward/fleet",
    "kubernetes": "packages/kubernetes/stallward/kubernetes",
    "benchmarks": "packages/benchmarks/stallward/benchmarks",
}
"""The folders of the packages."""
GROUPS: Final = ("commands", "controllers", "levers", "nodes", "targets")
"""The groups of entry points, without the namespace."""
EVERYTHING: Final = (
    "uv.lock",
    "pyproject.toml",
    "scripts/setup.sh",
    "tests/conftest.py",
    "tests/suite",
)
"""Whatever changes here may change the outcome of any test."""

_NAMED: Final = re.compile(r"\bstallward(?:\.\w+)+")
_FROM: Final = re.compile(
    r"^\s*from (stallward[\w.]*|\w+) import (\([^)]*\)|[^\n]*)", re.MULTILINE
)
_IMPORT: Final = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
_WORD: Final = re.compile(r"\w+")
_NO_LIBRARY: Final = sys.stdlib_module_names | {"stallward", "pytest", "hypothesis"}


class Reach:
    """The files that test files can reach, each read once.

    Args:
        root: The root of the repository.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._direct: dict[Path, frozenset[Path]] = {}
        self._beside_tests = {path.stem: path for path in root.glob("tests/**/*.py")}

    def files(self, *first: Path) -> frozenset[Path]:
        """All files that these files reach, themselves among them; absolute paths."""
        found: set[Path] = set()
        left = list(first)
        while left:
            path = left.pop()
            if path in found:
                continue
            found.add(path)
            if path.suffix == ".py":
                left += self._named_by(path)
        return frozenset(found)

    def touches_a_library(self, test: Path) -> bool:
        """Whether a test file, or a module of the product that it names, imports a library."""
        return any(self._imports_a_library(path) for path in {test, *self._named_by(test)})

    def _imports_a_library(self, path: Path) -> bool:
        if path.suffix != ".py" or not path.exists():
            return False
        lines = _IMPORT.findall(path.read_text("utf-8"))
        return any(name not in _NO_LIBRARY and name not in self._beside_tests for name in lines)

    def _named_by(self, path: Path) -> frozenset[Path]:
        if path not in self._direct:
            self._direct[path] = frozenset(self._names(path))
        return self._direct[path]

    def _names(self, path: Path) -> Iterator[Path]:
        try:
            text = path.read_text("utf-8")
        except OSError:  # it was deleted since
            return
        for name in _NAMED.findall(text):
            yield from self._module(name)
        for origin, names in _FROM.findall(text):
            if origin.startswith("stallward"):
                for name in _WORD.findall(names):
                    yield from self._module(f"{origin}.{name}")
        for name in _IMPORT.findall(text):
            if (beside := self._beside_tests.get(name)) is not None:
                yield beside
        if path.suffix == ".py" and "tests" not in path.relative_to(self._root).parts[:1]:
            yield from (p for p in path.parent.iterdir() if p.is_file() and p.suffix != ".py")
        if (conftest := path.with_name("conftest.py")).exists():
            yield conftest

    def _module(self, name: str) -> Iterator[Path]:
        """The files of a module and of the packages that hold it; of the longest part there is."""
        _, package, *rest = name.split(".")
        if package in GROUPS:
            yield from self._registered(f"stallward.{package}")
        if package not in PLACES:
            return
        place = self._root / PLACES[package]
        yield place / "__init__.py"
        for part in rest:
            place /= part
            if not place.is_dir():
                yield place.with_suffix(".py")  # or a name inside the package, which is no file
                return
            yield from (place / name for name in ("__init__.py", "__main__.py"))

    def _registered(self, group: str) -> Iterator[Path]:
        """The modules that packages beside the core name in a group of entry points."""
        for path in self._root.glob("packages/*/pyproject.toml"):
            yield path
            project = tomllib.loads(path.read_text("utf-8")).get("project", {})
            for value in project.get("entry-points", {}).get(group, {}).values():
                yield from self._module(value.partition(":")[0])


def is_reached(changed: Iterable[str], reached: frozenset[Path], root: Path) -> bool:
    """Whether a changed file is among those reached.

    Args:
        changed: Paths of files, relative to ``root``.
        reached: Absolute paths of files, and of folders that stand for all that they hold.
        root: The root of the repository.
    """
    for name in changed:
        path = root / name
        if path in reached or any(folder in reached for folder in path.parents):
            return True
    return False
