"""The imports of the daemon's small processes: each megabyte of them stays in memory for good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

MOST_MODULES: Final = 215
MOST_LINES: Final = 38_200
"""What the loop may import of our own code, which runs as root: a person must be able to read it.
Lower these when less is imported; raise them only with the reason in the same commit."""


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("actuator.guardian", {"numpy", "google", "grpc", "onnxruntime", "psutil"}),
        (
            "actuator.guardian.restorer",
            {"numpy", "google", "grpc", "onnxruntime", "psutil", "typer"},
        ),
        (
            "papers.levers.reader.reader_process",
            {"numpy", "google", "grpc", "onnxruntime", "psutil"},
        ),
        ("actuator.loop", {"grpc", "pandas", "prometheus_client", "psutil"}),
        ("actuator.service", {"onnxruntime", "pandas"}),
    ],
)
def test_processes_of_the_daemon_import_nothing_heavy(module: str, without: set[str]) -> None:
    code = (
        f"import sys, stallward.{module}\n"
        f"print(*sorted({without!r} & {{name.split('.')[0] for name in sys.modules}}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


@pytest.mark.slow
def test_the_loop_imports_little_of_our_own_code() -> None:
    """With the controller of a default configuration; without what protoc generated."""
    code = (
        "import sys, stallward.actuator.loop.loop\n"
        "from stallward.agent.registry import make_controller\n"
        "make_controller('partition')\n"
        "for name, module in sys.modules.items():\n"
        "    if name.startswith('stallward.') and not name.endswith('_pb2'):\n"
        "        print(name, module.__file__ or '')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    texts = [Path(file).read_text("utf-8") for file in imported.values() if file]
    assert len(texts) <= MOST_MODULES
    assert sum(len(text.splitlines()) for text in texts) <= MOST_LINES
    assert {name.split(".")[1] for name in imported} == {"actuator", "agent", "proto"}
    unnamed = {f"stallward.agent.controllers.{name}" for name in ("static", "latd", "peers")}
    assert not unnamed & imported.keys(), "it imports the controllers that are named"
