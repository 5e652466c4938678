"""Writes files of one size for a web server, and one file with a known text.

Run: ``python -m stallward.env.workloads.web_files DIR --files 8000 --kib 32 --seed 1``
"""

from __future__ import annotations

import random
from pathlib import Path

from stallward.env.workloads.command_line import run_program

LAST_NAME = "last"
LAST_TEXT = b"that was all\n"
"""The text of the last file; no other contains it. A client that requests this file after others
knows by it that all replies have come."""


def write_web_files(folder: Path, /, *, files: int, kib: int = 32, seed: int = 1) -> None:
    """Write files ``0`` to ``FILES - 1`` of hexadecimal digits, and the last file."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    for number in range(files):
        (folder / str(number)).write_bytes(rng.randbytes(kib * 512).hex().encode())
    (folder / LAST_NAME).write_bytes(LAST_TEXT)


if __name__ == "__main__":
    run_program(__doc__, write_web_files)
