"""ONNX Runtime is imported in one place, which turns its telemetry off."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_running_a_policy_writes_nothing_into_the_home_directory(tmp_path: Path) -> None:
    code = "from stallward.models.registry import load_policy; load_policy()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        # No CI variable is passed on, because it would turn the telemetry off, too.
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("*")) == []


def test_only_one_module_imports_onnx_runtime() -> None:
    direct = re.compile(r"^\s*import onnxruntime\b", re.MULTILINE)
    folders = ("agent", "actuator", "env", "models", "training", "evaluation")
    importers = [
        path.relative_to(ROOT)
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if direct.search(path.read_text())
    ]
    assert importers == [Path("agent/stallward/agent/inference.py")]
