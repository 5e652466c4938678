"""Writes a long manuscript in Markdown, for programs that convert documents.

Run: ``python -m stallward.env.workloads.jobs.manuscript FILE --chapters 200 --seed 1``
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program

_WORDS: Final = 3_000
_PARAGRAPHS: Final = 20
_WORDS_OF_A_PARAGRAPH: Final = 80
_STYLES: Final = ("{}", "{}", "{}", "{}", "{}", "{}", "*{}*", "**{}**", "`{}`", "[{}](#chapter)")


def manuscript(*, count: int, seed: int) -> Iterator[str]:
    """Generate chapters, each with paragraphs, a list and a table."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    words = [rng.randbytes(rng.randrange(2, 6)).hex() for _ in range(_WORDS)]

    def text(length: int) -> str:
        return " ".join(rng.choice(_STYLES).format(word) for word in rng.choices(words, k=length))

    for number in range(count):
        yield f"# Chapter {number}\n\n"
        for _ in range(_PARAGRAPHS):
            yield f"{text(_WORDS_OF_A_PARAGRAPH)}.\n\n"
        yield "".join(f"- {text(6)}\n" for _ in range(10)) + "\n"
        yield "| name | value |\n| --- | --- |\n"
        yield "".join(f"| {rng.choice(words)} | {rng.random():.6f} |\n" for _ in range(20)) + "\n"


def write_manuscript(file: Path, /, *, chapters: int, seed: int = 1) -> None:
    """Write a manuscript into a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as written:
        written.writelines(manuscript(count=chapters, seed=seed))


if __name__ == "__main__":
    run_program(__doc__, write_manuscript)
