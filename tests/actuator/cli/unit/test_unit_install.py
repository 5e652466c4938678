"""The systemd unit is put in its place, and a foreign one is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit_settings import HERE, config_of

from stallward.actuator.cli.unit.command import install_unit
from stallward.actuator.cli.unit.text import UNIT_NAME, unit_text
from stallward.agent.errors import UsageError

TEXT = unit_text(HERE, config_of())


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of units, and a systemctl that notes what it was asked to do."""
    folder, programs = tmp_path / "units", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    systemctl = programs / "systemctl"
    systemctl.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        f"[ ! -e {tmp_path}/fails ] || {{ echo no bus >&2; exit 1; }}\n"
    )
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return folder


def test_the_unit_is_written_and_read_by_systemd(units: Path) -> None:
    for _ in range(2):  # its own unit is written again
        assert install_unit(TEXT, units) == units / UNIT_NAME
    assert (units / UNIT_NAME).read_text() == TEXT
    assert (units / UNIT_NAME).stat().st_mode & 0o777 == 0o644
    assert [path.name for path in units.iterdir()] == [UNIT_NAME]
    assert (units.parent / "asked").read_text() == "daemon-reload\n" * 2


def test_a_foreign_unit_is_left_alone(units: Path) -> None:
    (units / UNIT_NAME).write_text("[Unit]\nDescription=mine\n")
    with pytest.raises(UsageError, match="was not made by `stallward unit`"):
        install_unit(TEXT, units)
    assert (units / UNIT_NAME).read_text() == "[Unit]\nDescription=mine\n"
    assert not (units.parent / "asked").exists()


def test_where_systemd_is_not_nothing_is_written(
    units: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"systemd is not here: there is no .*/none"):
        install_unit(TEXT, units / "none")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="there is no systemctl"):
        install_unit(TEXT, units)
    assert list(units.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(units: Path) -> None:
    (units / "stallward.new").mkdir()
    with pytest.raises(
        UsageError,
        match=r"cannot be written \(Is a directory\)\. Print the unit without --install",
    ):
        install_unit(TEXT, units)


def test_a_systemd_that_does_not_answer_is_said(units: Path) -> None:
    (units.parent / "fails").touch()
    with pytest.raises(UsageError, match="has not read it: no bus"):
        install_unit(TEXT, units)
