"""The linters run as tests, so that one command checks everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.linter
@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy",),
        ("lint-imports",),
    ],
    ids=" ".join,
)
def test_the_linter_finds_nothing(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wire_code_is_generated_from_the_proto(tmp_path: Path) -> None:
    """Generate the code again with the pinned generator and compare every byte."""
    generator = ROOT / "build/proto/bin/python"
    installed = ROOT / "build/proto/installed.txt"
    pinned = ROOT / "proto/generator.txt"
    if not installed.exists() or installed.read_bytes() != pinned.read_bytes():
        reason = "proto/generator.txt is not installed: run scripts/setup.sh proto"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    source = Path("stallward/proto/v1/stallward.proto")
    subprocess.run(
        [
            str(generator),
            "-m",
            "grpc_tools.protoc",
            "-I.",
            f"--python_out={tmp_path}",
            f"--pyi_out={tmp_path}",
            f"--grpc_python_out={tmp_path}",
            str(source),
        ],
        cwd=ROOT / "proto",
        check=True,
        timeout=60,
    )
    made = sorted((tmp_path / source.parent).iterdir())
    assert len(made) == 3
    for path in made:
        committed = ROOT / "proto" / source.parent / path.name
        assert path.read_text() == committed.read_text(), f"run `make proto`: {path.name} is stale"
