"""Controllers are found by name, those of other packages too; bad entries say what they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
from stallward.agent.controllers.none import NoneController
from stallward.agent.plugin import ControllerEntry

PATIENT = ControllerEntry(
    name="patient",
    summary="waits",
    make=lambda arguments: NoneController(),
    parameters={"wait_s": "seconds"},
)
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of installed packages: one with good and bad entry points."""
    info = tmp_path / "patience-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: patience\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[stallward.controllers]\n"
        "patient = patience:PATIENT\n"
        "hasty = patience:PATIENT\n"
        "broken = no_such_module:ENTRY\n"
        "none = patience:PATIENT\n"
    )
    (tmp_path / "patience.py").write_text(PLUGIN)
    return tmp_path


def ask(packages: Path, expression: str) -> subprocess.CompletedProcess[str]:
    """Evaluate an expression in an interpreter that finds the packages."""
    program = (
        f"import sys; sys.path.insert(0, {str(packages)!r})\n"
        "from stallward.agent.registry import controllers, make_controller\n"
        f"print({expression})"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_controller_of_another_package_is_found_by_its_name(packages: Path) -> None:
    assert ask(packages, "make_controller('patient:wait_s=3').name").stdout == "none\n"


def test_a_shipped_name_cannot_be_taken(packages: Path) -> None:
    assert ask(packages, "make_controller('none').name").stdout == "none\n"
    refused = ask(packages, "make_controller('none:wait_s=3')")
    assert "'none' does not take 'wait_s=3'" in refused.stderr


def test_an_entry_that_cannot_be_imported_is_named(packages: Path) -> None:
    refused = ask(packages, "make_controller('broken')")
    assert "The controller 'broken' (no_such_module:ENTRY) cannot be imported" in refused.stderr


def test_an_entry_of_another_name_is_refused(packages: Path) -> None:
    refused = ask(packages, "make_controller('hasty')")
    assert "'hasty' (patience:PATIENT) is no ControllerEntry of that name" in refused.stderr


def test_a_broken_entry_stands_in_nobody_elses_way(packages: Path) -> None:
    assert ask(packages, "make_controller('rule').name").stdout == "rule\n"
    assert ask(packages, "controllers()").returncode == 1, "a list that is not whole is none"


def test_an_unknown_name_lists_the_known_ones(packages: Path) -> None:
    refused = ask(packages, "make_controller('nobody')").stderr
    assert "There is no controller 'nobody'" in refused
    assert "broken, excite, hasty, latd," in refused
