"""The systemd unit lets the daemon write where the configuration says, and hides the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from unit_settings import CONFIGS, HERE, STATSD, config_of, settings

from stallward.actuator.cli.unit.text import Installation, unit_text
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import ConfigError


def test_a_folder_of_its_own_elsewhere_is_writable() -> None:
    found = settings(CONFIGS["everything"])
    assert "/srv/recordings/edge" in found["ReadWritePaths"]


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("latency.listen", config_of(latency=STATSD.format("/run/statsd.sock"))),
        ("service.metrics", config_of(service='metrics = "/var/run/metrics.sock"')),
        ("record.dir", config_of(record='dir = "/var/lib"')),
    ],
)
def test_a_folder_that_others_use_is_not_made_writable_for_one_file(
    key: str, config: DaemonConfig
) -> None:
    with pytest.raises(ConfigError, match=f"{key} is in .*, which other programs use") as caught:
        unit_text(HERE, config)
    assert "/run/stallward" in str(caught.value.next_step)


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("latency.path", config_of(latency='source = "lines"\npath = "/tmp/log"\nlatency = "0"')),
        ("latency.listen", config_of(latency=STATSD.format("/tmp/app/statsd.sock"))),
        ("record.dir", config_of(record='dir = "/var/tmp/recording"')),
        ("policy.dir", config_of(policy='dir = "/tmp/policies"')),
        ("control.controller.path", config_of(control='controller = "onnx:path=/tmp/p.onnx"')),
        (
            "control.default_controller.path",
            config_of(control='default_controller = "onnx:path=/tmp/p.onnx"'),
        ),
    ],
)
def test_a_file_that_the_unit_would_hide_is_refused(key: str, config: DaemonConfig) -> None:
    with pytest.raises(ConfigError, match=f"{key} .*temporary folders of its own"):
        unit_text(HERE, config)


def test_an_installation_that_the_unit_would_hide_is_refused() -> None:
    with pytest.raises(ConfigError, match="--program is in /tmp/checkout"):
        unit_text(replace(HERE, program=Path("/tmp/checkout/stallward")), config_of())
    with pytest.raises(ConfigError, match="--config is in /var/tmp"):
        unit_text(replace(HERE, config=Path("/var/tmp/stallward.toml")), config_of())


@pytest.mark.parametrize(
    ("home", "installation", "config"),
    [
        ("yes", HERE, config_of()),
        ("read-only", replace(HERE, program=Path("/home/me/.venv/bin/stallward")), config_of()),
        ("read-only", replace(HERE, config=Path("/root/stallward.toml")), config_of()),
        ("read-only", replace(HERE, read=(Path("/home/me/.local/lib"),)), config_of()),
        (
            "read-only",
            HERE,
            config_of(latency='source = "lines"\npath = "/home/me/log"\nlatency = "0"'),
        ),
        ("read-only", HERE, config_of(policy='dir = "/root/policies"')),
        ("read-only", HERE, config_of(work='source = "file", path = "/home/me/steps"')),
        ("read-only", HERE, config_of(work='source = "command", command = ["/root/n"]')),
        ("read-only", HERE, config_of(control='controller = "onnx:path=/home/me/p.onnx"')),
        ("read-only", HERE, config_of(control='default_controller = "onnx:path=/root/p.onnx"')),
    ],
)
def test_homes_are_hidden_unless_something_that_is_read_lies_there(
    home: str, installation: Installation, config: DaemonConfig
) -> None:
    assert f"\nProtectHome={home}\n" in unit_text(installation, config)


@pytest.mark.parametrize("table", ["protected", "background"])
def test_a_profile_is_read_where_it_lies(table: str) -> None:
    def named(path: str) -> DaemonConfig:
        config = config_of()
        if table == "protected":
            return replace(config, protected=replace(config.applications[0], profile=Path(path)))
        return replace(config, background=(replace(config.background[0], profile=Path(path)),))

    assert "\nProtectHome=read-only\n" in unit_text(HERE, named("/home/me/app.json"))
    with pytest.raises(ConfigError, match=rf"{table}.*\.profile is in /tmp"):
        unit_text(HERE, named("/tmp/app.json"))


def test_others_pass_to_a_socket_that_is_for_them() -> None:
    assert settings(config_of())["RuntimeDirectoryMode"] == ["0700"]
    assert settings(CONFIGS["everything"])["RuntimeDirectoryMode"] == ["0711"]


def test_a_socket_for_reports_is_given_to_its_group_without_a_capability() -> None:
    report = 'report_socket = "/run/stallward/report.sock"'
    found = settings(config_of(service=report + '\nreport_group = "detector"'))
    assert found["RuntimeDirectoryMode"] == ["0711"]
    assert found["SupplementaryGroups"] == ["detector"]
    assert "chown fchownat" in found["SystemCallFilter"]
    assert "CHOWN" not in "".join(found["CapabilityBoundingSet"])
    without = settings(config_of(service=report))
    assert without["RuntimeDirectoryMode"] == ["0711"]
    assert "SupplementaryGroups" not in without
    with pytest.raises(ConfigError, match="report_group"):
        settings(config_of(service=report + '\nreport_group = "two words"'))
