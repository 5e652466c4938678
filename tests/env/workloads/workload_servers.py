"""Servers that tests of the scenarios' programs start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from stallward.env.sandbox.launch import is_ready
from stallward.env.scenario.file import load_scenario

SERVICES = "stallward.env.workloads.services"


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
        while ready is not None and not is_ready(ready):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.communicate()


def answered(programs: Path, folder: Path, scenario: str, **changed: str) -> np.ndarray:
    """Run a scenario's own load until some requests were answered; return the lines of its log.

    Requests that were open when the load ended are left out: how many depends on the host. So does
    how long it takes until ten are answered, which a busy host does not manage in half a second.
    """
    request = load_scenario(scenario).protected.load.argv
    options = [word.replace("{run}", str(folder)) for word in request[1:]]
    given = {"seed": "1", "rate": "200", "connections": "2", **changed}
    for name, value in given.items():
        options[options.index(f"--{name}") + 1] = value
    options = _without(options, "--wave")
    for load_s in (0.5, 4.0, 20.0):
        command = [str(programs / "load"), *options, "--seconds", str(load_s)]
        subprocess.run(command, check=True, timeout=60 + load_s)
        lines = np.loadtxt(folder / "requests.lines", ndmin=2)
        lines = lines[: np.flatnonzero(lines[:, 3]).max(initial=-1) + 1]
        if len(lines) > 10:
            return np.asarray(lines)
    raise AssertionError(f"{len(lines)} requests answered in {load_s} s")


def _without(options: list[str], name: str) -> list[str]:
    at = options.index(name) if name in options else len(options)
    return options[:at] + options[at + 2 :]


def run_service(module: str, *options: str) -> None:
    subprocess.run([sys.executable, "-m", f"{SERVICES}.{module}", *options], check=True)
