"""Writes a long manuscript in Markdown, for programs that convert documents.

Run: ``python -m stallward.env.workloads.jobs.manuscript FILE --chapters 200 --seed 1``
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from stallward.env.workloads.command_line import arguments

_WORDS: Final = 3_000
_PARAGRAPHS: Final = 20
_WORDS_OF_A_PARAGRAPH: Final = 80
_STYLES: Final = ("{}", "{}", "{}", "{}", "{}", "{}", "*{}*", "**{}**", "`{}`", "[{}](#chapter)")


def chapters(*, count: int, seed: int) -> Iterator[str]:
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


def main() -> None:
    """Write the manuscript named on the command line."""
    args = arguments(__doc__, "file", chapters=None, seed=1)
    args.file.parent.mkdir(parents=True, exist_ok=True)
    with args.file.open("w", encoding="utf-8") as file:
        file.writelines(chapters(count=args.chapters, seed=args.seed))


if __name__ == "__main__":
    main()
