"""Fixtures of the tests inside the machine: its swap disk, and an empty zone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pressed_zone import MIB, Zone

from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import Paths


@pytest.fixture(scope="module")
def swap() -> Iterator[Path]:
    """The machine's swap disk, on for one module only, because sandboxes bring their own."""
    disk = Path(os.environ["STALLWARD_VM"])
    subprocess.run(["swapon", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["swapoff", disk], check=True)


@pytest.fixture
def zone(tmp_path: Path, swap: Path) -> Iterator[Zone]:
    """An empty zone of 96 MiB."""
    top = require(Paths()).group(f"stallward-vm-{os.getpid()}")
    made = Zone(
        zone=top,
        app=top.child("app"),
        slots=(top.child("slot0"), top.child("slot1")),
        folder=tmp_path,
    )
    try:
        for group in (made.zone, made.app, *made.slots):
            group.create()
        made.file(made.zone, "memory.max").write_text(str(96 * MIB))
        yield made
    finally:
        top.kill(timeout_s=60)
        for process in made.processes:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        top.remove(timeout_s=60)
