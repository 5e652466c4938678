"""ONNX Runtime is imported in one place, which keeps it from reporting to its maker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_is_kept_in_the_home_of_a_node_that_runs_a_policy(tmp_path: Path) -> None:
    code = "from stallward.models.registry import load_policy; load_policy()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},  # no CI variable: it hides it too
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("*")) == []


def test_nobody_imports_it_directly() -> None:
    direct = re.compile(r"^\s*import onnxruntime\b", re.MULTILINE)
    folders = ("agent", "actuator", "env", "models", "training", "evaluation")
    found = [
        path.relative_to(ROOT)
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if direct.search(path.read_text())
    ]
    assert found == [Path("agent/stallward/agent/inference.py")]
