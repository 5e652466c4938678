"""Notes the commit at which all tests passed, in tests/full_run.txt; `make test-all` calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from selection import FULL_RUN

ROOT = Path(__file__).parents[2]


def main(root: Path = ROOT) -> int:
    """Write it; returns 1 if the files that were tested are not those of a commit."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    others = [line for line in changed if line[3:] not in {FULL_RUN, "tests/reruns.txt"}]
    if others:
        sys.stderr.write(
            f"All tests passed. {FULL_RUN} stays as it is, because {len(others)} files are not"
            " committed; commit them and run it again.\n"
        )
        return 1
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    (root / FULL_RUN).write_text(head)
    sys.stdout.write(f"All tests passed: commit {FULL_RUN} with this commit's id, {head}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
