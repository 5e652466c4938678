"""Makes a Git repository of large text files with many versions, for packing.

The versions of a file differ by some lines. ``git pack-objects`` compares each with a window of
others, all of them in memory, so its need follows from ``--kib`` and the window.

Run: ``python -m stallward.env.workloads.jobs.git_repository DIR --files 4 --versions 100``
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program

_LINE_BYTES: Final = 64
_CHANGED_SHARE: Final = 0.02


def history(*, files: int, versions: int, kib: int, seed: int) -> Iterator[bytes]:
    """Generate the commits in the format of ``git fast-import``."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    count = (kib << 10) // (_LINE_BYTES + 1)
    texts = [[_line(rng) for _ in range(count)] for _ in range(files)]
    for version in range(versions):
        yield b"commit refs/heads/main\n"
        yield b"committer nobody <nobody@localhost> %d +0000\n" % version
        yield b"data 0\n"
        for number, lines in enumerate(texts):
            for place in rng.sample(range(count), max(1, int(count * _CHANGED_SHARE))):
                lines[place] = _line(rng)
            text = b"".join(lines)
            yield b"M 100644 inline file-%d\ndata %d\n%b\n" % (number, len(text), text)


def _line(rng: random.Random) -> bytes:
    return rng.randbytes(_LINE_BYTES // 2).hex().encode() + b"\n"


def make_repository(
    folder: Path, /, *, files: int = 4, versions: int = 100, kib: int = 1024, seed: int = 1
) -> None:
    """Make a bare repository in ``folder``.

    Raises:
        SystemExit: If Git is not installed or fails.
    """
    try:
        subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
        # Not one large pack of loose deltas: what packs it later does the work.
        command = ["git", "-C", str(folder), "fast-import", "--quiet", "--depth=1"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.writelines(history(files=files, versions=versions, kib=kib, seed=seed))
    except OSError as error:
        sys.exit(f"git cannot be run ({error.strerror}); try `apt-get install git`")
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
    if process.returncode != 0:
        sys.exit(f"git fast-import failed with status {process.returncode}")


if __name__ == "__main__":
    run_program(__doc__, make_repository)
