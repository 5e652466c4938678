"""Writes a tree of many small text files, for programs that read whole trees.

Run: ``python -m stallward.env.workloads.jobs.small_files DIR --files 20000 --kib 16 --seed 1``
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program

_FILES_OF_A_FOLDER: Final = 200
_WORDS: Final = 5_000
_PARAGRAPHS: Final = 4_000
_PARAGRAPH_BYTES: Final = 512
_WORDS_OF_A_PARAGRAPH: Final = _PARAGRAPH_BYTES // 8
"""A word has 7 letters on average, and a space."""
RARE_WORD: Final = "unmistakable"
"""A word that is once in every file, for programs that search."""


def write_tree(folder: Path, /, *, files: int, kib: int = 16, seed: int = 1) -> None:
    """Write files of about ``kib`` KiB, in folders of 200."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    words = [rng.randbytes(rng.randrange(2, 6)).hex() for _ in range(_WORDS)]
    paragraphs = [
        " ".join(rng.choices(words, k=_WORDS_OF_A_PARAGRAPH)) for _ in range(_PARAGRAPHS)
    ]
    paragraphs_of_a_file = (kib << 10) // _PARAGRAPH_BYTES
    for number in range(files):
        place = folder / str(number // _FILES_OF_A_FOLDER)
        place.mkdir(parents=True, exist_ok=True)
        text = "\n".join(rng.choices(paragraphs, k=paragraphs_of_a_file))
        (place / str(number)).write_text(f"{text}\n{RARE_WORD}\n", encoding="ascii")


if __name__ == "__main__":
    run_program(__doc__, write_tree)
