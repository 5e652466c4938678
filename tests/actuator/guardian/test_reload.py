"""SIGHUP makes the guardian read its file again, and a bad file changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import JournalConfig, ProtectedConfig, ServiceConfig
from stallward.actuator.guardian.guardian import Reload
from stallward.actuator.guardian.sd_notify import Notifier

CONFIG = DaemonConfig(
    protected=ProtectedConfig(group="edge/app"),
    background=(),
    service=ServiceConfig(socket=Path("/run/s.sock")),
    journal=JournalConfig(path=Path("/run/journal")),
)


class Case:
    """A reload, and what it put in force."""

    def __init__(self, file: Path | None) -> None:
        self.applied: list[tuple[DaemonConfig, bool]] = []
        self.reload = Reload(CONFIG, file, self.apply, Notifier(""))

    def apply(self, config: DaemonConfig, *, target_changed: bool) -> None:
        self.applied.append((config, target_changed))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "daemon.toml"
    made.write_text(config_toml(CONFIG))
    return made


def test_nothing_is_read_unless_it_was_asked_for(file: Path) -> None:
    case = Case(file)
    case.reload.run()
    assert case.applied == []
    assert case.reload.ask()
    case.reload.run()
    case.reload.run()
    assert case.applied == [(CONFIG, False)]


def test_another_target_is_put_in_force(file: Path) -> None:
    case = Case(file)
    other = replace(CONFIG, control=replace(CONFIG.control, slo_ms=5.0))
    file.write_text(config_toml(other))
    case.reload.ask()
    case.reload.run()
    assert case.applied == [(other, True)]


@pytest.mark.parametrize("text", ["no TOML", "", "[protected]\ngroup = 'edge/other'\n"])
def test_what_cannot_be_used_changes_nothing(
    file: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    case = Case(file)
    file.write_text(text)
    case.reload.ask()
    case.reload.run()
    assert case.applied == []
    assert "not reloaded: " in capfd.readouterr().err


def test_a_change_that_takes_a_restart_is_compared_with_what_is_in_force(file: Path) -> None:
    case = Case(file)
    for slo_ms in (5.0, 6.0):
        other = replace(CONFIG, control=replace(CONFIG.control, slo_ms=slo_ms))
        file.write_text(config_toml(other))
        case.reload.ask()
        case.reload.run()
    file.write_text(config_toml(replace(CONFIG, journal=JournalConfig(path=Path("/run/j")))))
    case.reload.ask()
    case.reload.run()
    assert [config.control.slo_ms for config, _ in case.applied] == [5.0, 6.0]


def test_where_a_terminal_started_it_there_is_no_file_to_read() -> None:
    assert not Case(None).reload.ask()
