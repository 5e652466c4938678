"""What a machine of the tests is to those who boot one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class SkippedError(Exception):
    """Raised when a machine cannot be booted here; the message says what is missing."""


def say(text: str) -> None:
    """Print one line of progress."""
    sys.stdout.write(f"vm: {text}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """The files of one run of a machine."""

    tree: Path
    """The project, which is read inside as it is here."""
    results: Path
    """The one folder whose changes reach this machine."""
    scratch: Path
    """A folder for whatever the machine's own program writes."""
    swap: Path
    disk: Path
    memory_mib: int
    cpus: int


class Machine(Protocol):
    """A kernel of its own on this machine's files."""

    name: str
    limit_s: float
    """After so long a run is killed."""

    def prepare(self) -> str:
        """Make sure that it can be booted; returns what will be.

        Raises:
            SkippedError: If it cannot be booted here.
        """

    def command(self, boot: Boot) -> list[str]:
        """The command that boots it and runs there what the results' file ``command`` says.

        It is one process with its descendants.
        """
