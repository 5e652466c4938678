"""The systemd unit: filled in, every setting with its reason, and taken by systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stallward.actuator.cli.systemd_unit import UNIT_NAME, unit_text
from stallward.actuator.errors import ConfigError
from stallward.actuator.levers.table import LEVERS

PROGRAM, CONFIG = Path("/usr/bin/env"), Path("/etc/stallward/stallward.toml")


def test_it_is_filled_in_for_this_installation() -> None:
    text = unit_text(PROGRAM, CONFIG)
    assert "@" not in text.replace("@system-service", "").replace("~@mount @module", "").replace(
        "@clock @reboot @swap @obsolete @cpu-emulation", ""
    ).replace("@resources", "")
    assert f"ExecStart={PROGRAM} serve --config {CONFIG}\n" in text
    assert f"ExecStopPost=-{PROGRAM} restore --config {CONFIG}\n" in text


def test_every_setting_of_the_service_has_its_reason_above_it() -> None:
    lines = unit_text(PROGRAM, CONFIG).partition("[Service]\n")[2].partition("[Install]")[0]
    explained = False
    for line in filter(None, lines.splitlines()):
        if line.startswith("#"):
            explained = True
            continue
        assert explained, f"{line} has no reason"


def test_there_is_room_for_the_threads_of_many_slots() -> None:
    for_slots = 16 * sum(lever.blocking for lever in LEVERS)
    others = 64  # gRPC's, the processes' own, and what restores
    (room,) = re.findall(r"^TasksMax=(\d+)$", unit_text(PROGRAM, CONFIG), re.MULTILINE)
    assert for_slots + others <= int(room)


@pytest.mark.parametrize("path", ["stallward", "/opt/a b/stallward", "/opt/%h", '/opt/"x"'])
def test_a_path_that_a_unit_would_misread_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be named in a systemd unit"):
        unit_text(Path(path), CONFIG)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_it(tmp_path: Path) -> None:
    unit = tmp_path / UNIT_NAME
    unit.write_text(unit_text(PROGRAM, CONFIG))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, UNIT_NAME in done.stderr) == (0, False), done.stderr
    unit.write_text(unit_text(PROGRAM, CONFIG).replace("TasksMax=", "TasksMax=many\nNope="))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert UNIT_NAME in done.stderr, "the check finds mistakes"
