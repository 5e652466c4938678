"""Interpreters are started so that nothing in the current folder is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from planted_modules import plant, without_python_settings

from stallward.actuator.ipc.options import Modules
from stallward.actuator.runtime.process_start import EXIT_OPTIONS, command_line


@pytest.mark.parametrize(
    "module",
    [
        Modules().guardian,
        Modules().loop,
        Modules().service,
        Modules().recorder,
        Modules().collector,
        Modules().restorer,
        "stallward.actuator.journal.keeper_process",
        "stallward.actuator.guardian.restore_command",
    ],
)
def test_no_process_imports_what_lies_in_the_current_folder(tmp_path: Path, module: str) -> None:
    mark = plant(tmp_path)
    done = subprocess.run(
        command_line(module, Modules()),  # not its options, so it ends after its imports
        cwd=tmp_path,
        env=without_python_settings(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not mark.exists(), mark.read_text()
    assert done.returncode == EXIT_OPTIONS, done.stderr


def test_the_installed_command_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    mark = plant(tmp_path)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("stallward")), "serve", "--config", "/nowhere"],
        cwd=tmp_path,
        env=without_python_settings(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not mark.exists(), mark.read_text()
    assert "no configuration /nowhere" in done.stderr
