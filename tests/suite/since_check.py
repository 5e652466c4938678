"""Leaves out the files of tests that nothing has changed since the last ``make check`` that passed.

``make check`` is run many times a day, and most changes can reach few tests. What passed is noted
in a file that git ignores: a digest of each file of the repository. A file of tests is collected
only if it reaches one that differs now (:mod:`reach`). Those that read files of the repository
without naming them, the ones about the project itself, are always collected. ``make test`` and
``ALL=1 make check`` collect everything.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from reach import EVERYTHING, Reach, is_reached

NOTED: Final = "build/checked.json"
ALWAYS: Final = ("tests/project", "tests/suite")


def digests(root: Path) -> dict[str, str]:
    """The digest of each file of the repository, new ones included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    found = {}
    for name in filter(None, done.stdout.split("\0")):
        path = root / name
        if path.is_file():
            found[name] = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    return found


def changed_since(root: Path, now: dict[str, str]) -> tuple[str, ...] | None:
    """The files that differ from those of the last check that passed; ``None`` if all count."""
    if os.environ.get("ALL") == "1":
        return None
    try:
        before = json.loads((root / NOTED).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    names = before.keys() | now.keys()
    changed = tuple(sorted(name for name in names if before.get(name) != now.get(name)))
    return None if any(name.startswith(EVERYTHING) for name in changed) else changed


class SinceCheck:
    """The plugin of ``--since-check``."""

    def __init__(self, root: Path, *, notes: bool) -> None:
        self._root = root
        self._notes = notes
        self._now = digests(root)
        self._changed = changed_since(root, self._now)
        self._reach = Reach(root)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out a file of tests that no change reaches, before it is imported."""
        is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
        if self._changed is None or not is_test:
            return None
        if any(collection_path.is_relative_to(self._root / folder) for folder in ALWAYS):
            return None
        reached = self._reach.files(collection_path)
        return None if is_reached(self._changed, reached, self._root) else True

    def pytest_report_header(self) -> str:
        """Say what decides."""
        if self._changed is None:
            return "since the last check: everything"
        return f"since the last check: what reaches one of {len(self._changed)} changed files"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Note what passed, as it was when the check began."""
        if self._notes and exitstatus == 0:
            noted = self._root / NOTED
            noted.parent.mkdir(exist_ok=True)
            noted.write_text(json.dumps(self._now), "utf-8")
