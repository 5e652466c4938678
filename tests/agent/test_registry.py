"""Controllers are found by name, also in other packages; bad entries are refused with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stallward.agent import registry
from stallward.agent.controllers import SHIPPED
from stallward.agent.errors import ControllerError

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


def evaluate(packages: Path, expression: str) -> subprocess.CompletedProcess[str]:
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
    assert evaluate(packages, "make_controller('patient:wait_s=3').name").stdout == "none\n"


def test_a_package_cannot_replace_a_shipped_controller(packages: Path) -> None:
    assert evaluate(packages, "make_controller('none').name").stdout == "none\n"
    refused = evaluate(packages, "make_controller('none:wait_s=3')")
    assert "'none' does not take 'wait_s=3'" in refused.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root refuses what others can write")
def test_root_imports_no_controller_that_others_can_write(packages: Path) -> None:
    (packages / "patience.py").chmod(0o666)
    refused = evaluate(packages, "make_controller('patient')")
    assert "patience.py is not used: its owner is 0, its mode 666" in refused.stderr


def test_an_entry_that_cannot_be_imported_is_named(packages: Path) -> None:
    refused = evaluate(packages, "make_controller('broken')")
    assert "The controller 'broken' (no_such_module:ENTRY) cannot be imported" in refused.stderr


def test_an_entry_whose_name_differs_from_its_entry_point_is_refused(packages: Path) -> None:
    refused = evaluate(packages, "make_controller('hasty')")
    assert "'hasty' (patience:PATIENT) is no ControllerEntry of that name" in refused.stderr


def test_a_broken_entry_does_not_prevent_other_controllers(packages: Path) -> None:
    assert evaluate(packages, "make_controller('rule').name").stdout == "rule\n"
    assert evaluate(packages, "controllers()").returncode == 1, (
        "an incomplete list must not be printed"
    )


def test_the_shipped_controllers_have_the_names_by_which_they_are_looked_up() -> None:
    assert [registry.find_entry(name).name for name in SHIPPED] == list(SHIPPED)


def test_a_controller_that_is_not_installed_says_which_extra_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_plugins", dict)
    assert registry.EXTRA_OF.keys() & {entry.name for entry in registry.controllers()} == set()
    for name, extra in registry.EXTRA_OF.items():
        with pytest.raises(ControllerError) as refused:
            registry.make_controller(f"{name}:x=1")
        assert str(refused.value) == (
            f"The controller {name!r} is not installed. Run `pip install 'stallward[{extra}]'`."
        )


def test_an_unknown_name_is_refused_with_the_known_names(packages: Path) -> None:
    refused = evaluate(packages, "make_controller('nobody')").stderr
    assert "There is no controller 'nobody'" in refused
    assert "broken, bvt, dasec, earlyoom, excite, hasty, heracles, latd," in refused
