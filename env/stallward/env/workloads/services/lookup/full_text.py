"""A full-text search: Groonga over documents of random words, some of which are frequent.

``prepare DIR --documents N`` makes the database, whose files are mapped. ``serve DIR --port PORT
--ready PATH`` reads them once and becomes Groonga on the loopback address.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.mapped_files import read_once
from stallward.env.workloads.services.programs import become_server, needed

_PACKAGE: Final = "groonga-bin"
WORDS: Final = 4_000
"""How many words there are: ``w0000`` and so on, the first the most frequent."""
_FIRST_RANK: Final = 40.0
"""Word number N occurs as often as 1 / (40 + N)."""
_WORDS_OF_A_DOCUMENT: Final = 140
_NAME: Final = "database"

_TABLES: Final = """\
table_create Documents TABLE_NO_KEY
column_create Documents text COLUMN_SCALAR Text
column_create Documents price COLUMN_SCALAR UInt32
table_create Words TABLE_PAT_KEY ShortText --default_tokenizer TokenDelimit
"""
_INDEX: Final = "column_create Words documents COLUMN_INDEX|WITH_POSITION Documents text\n"


def commands(*, documents: int, seed: int) -> Iterator[str]:
    """Generate the commands that make the tables, load the documents and make the index."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    words = [f"w{number:04d}" for number in range(WORDS)]
    weights = list(itertools.accumulate(1 / (_FIRST_RANK + number) for number in range(WORDS)))
    yield f"{_TABLES}load --table Documents\n[\n"
    for number in range(documents):
        text = " ".join(rng.choices(words, cum_weights=weights, k=_WORDS_OF_A_DOCUMENT))
        comma = "," if number + 1 < documents else ""
        yield json.dumps({"text": text, "price": rng.randrange(1 << 30)}) + comma + "\n"
    yield f"]\n{_INDEX}"


def prepare(folder: Path, /, *, documents: int = 100_000, seed: int = 1) -> None:
    """Make the database below ``folder``.

    Raises:
        SystemExit: If Groonga is not installed or fails.
    """
    place = folder / "groonga"
    place.mkdir(parents=True, exist_ok=True)
    argv = [needed("groonga", _PACKAGE), "--log-path", "/dev/null", "-n", str(place / _NAME)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.writelines(commands(documents=documents, seed=seed))
    if process.returncode != 0:
        sys.exit(f"groonga failed with status {process.returncode}")


def serve_command(folder: Path, *, port: int) -> list[str]:
    """Return the command line of the server.

    Raises:
        SystemExit: If Groonga is not installed.
    """
    options = ["--protocol", "gqtp", "--bind-address", "127.0.0.1", "-p", str(port)]
    quiet = ["--log-path", "/dev/null", "--max-threads", "2"]
    database = str(folder / "groonga" / _NAME)
    return [needed("groonga", _PACKAGE), "-s", *options, *quiet, database]


def serve(folder: Path, /, *, ready: Path, port: int = 28041) -> None:
    """Replace this process by the server, once its files are in memory."""
    command = serve_command(folder, port=port)
    for path in sorted((folder / "groonga").iterdir()):
        read_once(path)
    become_server(command, port=port, ready=ready)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve)
