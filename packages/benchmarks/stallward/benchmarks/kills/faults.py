"""System calls of a daemon that fail, while it is killed: no descriptor, no memory, I/O errors.

The daemon's processes load a small library that lets their calls on files of the kernel, and on the
journal, fail. It is compiled when it is needed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.evaluation.errors import ComparisonError

_SOURCE: Final = Path(__file__).with_name("faults.c")
_NONE: Final = 0
_MODES: Final = {1: "one call in ten fails", 2: "no file can be opened"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How long faults last, around one kill."""

    mode: int
    before_s: float
    """From the first fault to the kill."""
    after_s: float
    """From the kill to the last fault."""

    @property
    def what(self) -> str:
        """What fails, in words."""
        return _MODES[self.mode]


MOST_AFTER_S: Final = 1.5


def draw_window(rng: random.Random) -> Window:
    """Draw what fails around the next kill, and for how long."""
    return Window(
        mode=rng.choice(tuple(_MODES)),
        before_s=rng.uniform(0.0, 0.3),
        after_s=rng.uniform(0.0, MOST_AFTER_S),
    )


class Faults:
    """The switch of the faults of all processes that are started with its environment.

    Args:
        folder: Where the library and the switch are put.
        below: A folder whose files are meant, too.

    Raises:
        ComparisonError: If the library cannot be compiled.
    """

    def __init__(self, folder: Path, below: Path) -> None:
        library, switch = folder / "faults.so", folder / "faults.switch"
        compiler = shutil.which("cc")
        if compiler is None:
            raise ComparisonError(
                "Letting system calls fail takes a C compiler, and there is no cc.",
                next_step="Install gcc, or leave out --faults.",
            )
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ComparisonError(f"{_SOURCE} cannot be compiled: {done.stderr.strip()[-300:]}")
        switch.write_bytes(b"\0")
        with switch.open("r+b") as file:
            self._switch = mmap.mmap(file.fileno(), 1)
        self._environment = {
            "LD_PRELOAD": str(library),
            "FAULTS_SWITCH": str(switch),
            "FAULTS_BELOW": str(below),
        }

    @contextlib.contextmanager
    def inherited(self) -> Iterator[None]:
        """Let processes that are started meanwhile have the faults."""
        os.environ.update(self._environment)
        try:
            yield
        finally:
            for name in self._environment:
                os.environ.pop(name, None)

    def begin(self, window: Window) -> None:
        """Let calls fail from now on."""
        self._switch[0] = window.mode

    def end(self) -> None:
        """Let all calls through again."""
        self._switch[0] = _NONE
