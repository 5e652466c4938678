"""The imports of the daemon's small processes: each megabyte of them stays in memory for good."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("guardian", {"numpy", "google", "grpc", "onnxruntime", "psutil"}),
        ("guardian.restorer", {"numpy", "google", "grpc", "onnxruntime", "psutil", "typer"}),
        (
            "levers.process.reader.reader_process",
            {"numpy", "google", "grpc", "onnxruntime", "psutil"},
        ),
        ("loop", {"grpc", "pandas", "prometheus_client", "psutil"}),
        ("service", {"onnxruntime", "pandas"}),
    ],
)
def test_processes_of_the_daemon_import_nothing_heavy(module: str, without: set[str]) -> None:
    code = (
        f"import sys, stallward.actuator.{module}\n"
        f"print(*sorted({without!r} & {{name.split('.')[0] for name in sys.modules}}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
