"""Servers that tests of the scenarios' programs start."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def needed(program: str, package: str) -> str:
    """The path of a program; the test is skipped where it is not installed."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        pytest.skip(f"{program} is not installed; try `apt-get install {package}`")
    return path


@contextmanager
def serving(ready: Path | None, *argv: str, patience_s: float = 20.0) -> Iterator[None]:
    """Run a server until the block ends, which begins when ``ready`` is there."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline_s = time.monotonic() + patience_s
        while ready is not None and not ready.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.communicate()
