"""Which tests run: those marked ``reaches`` by what has changed.

They run if a file that they can reach has changed since the last run of everything, whose commit
is in ``tests/full_run.txt``; if that commit is not there, is too old, or has been unknown to this
clone; or if everything is asked for (``ALL=1``, which ``make test-all`` sets). ``make test-all``
writes the file where all tests passed.

``--libraries`` leaves out what calls no library itself: other versions of them cannot change it.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from reach import EVERYTHING, Reach, is_reached

FULL_RUN: Final = "tests/full_run.txt"
MOST_COMMITS: Final = 200
"""After so many commits since the last full run, everything runs."""


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def why_everything(root: Path) -> str:
    """Why all tests run, whatever has changed; empty if the change decides."""
    if os.environ.get("ALL") == "1":
        return "ALL=1"
    try:
        commit = (root / FULL_RUN).read_text("utf-8").split()[0]
        count = int(_git(root, "rev-list", "--count", f"{commit}..HEAD"))
    except (OSError, IndexError, subprocess.SubprocessError):
        return f"the commit of {FULL_RUN} is not to be found here"
    if count > MOST_COMMITS:
        return f"the last full run is {count} commits back"
    changed = changed_files(root)
    shared = next((name for name in changed if name.startswith(EVERYTHING)), None)
    return f"{shared} has changed" if shared else ""


def changed_files(root: Path) -> tuple[str, ...]:
    """The files that differ from the commit of the last full run, new ones included."""
    commit = (root / FULL_RUN).read_text("utf-8").split()[0]
    changed = _git(root, "diff", "--name-only", "--no-renames", commit).splitlines()
    new = _git(root, "ls-files", "--others", "--exclude-standard").splitlines()
    return tuple(name for name in (*changed, *new) if name != FULL_RUN)


class Selection:
    """Leaves out the tests marked ``reaches`` of which nothing has changed."""

    def __init__(self, root: Path, *, libraries: bool = False) -> None:
        self._root = root
        self._libraries = libraries
        self._everything = why_everything(root)
        self._changed = () if self._everything else changed_files(root)
        self._reach = Reach(root)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselect them, unless a test is named on the command line."""
        if any("::" in word for word in config.args):
            return
        left_out = [item for item in items if not self._runs(item)]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            gone = set(left_out)
            items[:] = [item for item in items if item not in gone]

    def _runs(self, item: pytest.Item) -> bool:
        if self._libraries and not self._touches_a_library(item.path):
            return False
        marks = list(item.iter_markers("reaches"))
        if self._everything or not marks:
            return True
        return self._is_reached(item.path, tuple(name for mark in marks for name in mark.args))

    @functools.cache  # noqa: B019 - it lives as long as the session
    def _touches_a_library(self, file: Path) -> bool:
        return self._reach.touches_a_library(file)

    @functools.cache  # noqa: B019
    def _is_reached(self, file: Path, named: tuple[str, ...]) -> bool:
        paths = [self._root / name for name in named]
        return is_reached(self._changed, self._reach.files(file, *paths), self._root)

    def pytest_report_header(self) -> str:
        """Say what decides."""
        if self._everything:
            return f"tests by change: all of them ({self._everything})"
        return (
            f"tests by change: those that reach one of {len(self._changed)} files changed since"
            " the last full run; `make test-all` runs all"
        )
