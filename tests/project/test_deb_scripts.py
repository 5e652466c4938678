"""The scripts of the Debian package, as dpkg calls them, in a folder in place of the root."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SYSTEMCTL = """#!/bin/sh
case "$*" in
  *is-active*) test -e {active} ;;
  stop*) rm -f {active} ;;
  start*) touch {active} ;;
  *disable*) rm {enabled} ;;
esac
"""


@pytest.mark.parametrize(
    ("calls", "stays"),
    [
        (["prerm upgrade 2", "postrm upgrade 2", "postinst configure 1"], True),
        (["prerm upgrade 2", "postinst abort-upgrade 2"], True),
        (["prerm remove", "postinst abort-remove"], True),
        (["prerm remove in-favour a 1", "postinst abort-remove in-favour a 1"], True),
        (["prerm deconfigure in-favour a 1", "postinst abort-deconfigure in-favour a 1"], True),
        (["prerm remove", "postrm remove"], False),
    ],
    ids=["an upgrade", "one that fails", "a removal that fails", "one for another that fails",
         "a deconfiguration that fails", "a removal"],
)  # fmt: skip
@pytest.mark.parametrize("ran", [True, False], ids=["it ran", "it did not run"])
def test_a_daemon_that_ran_runs_again_unless_its_package_was_removed(
    tmp_path: Path, calls: list[str], stays: bool, ran: bool
) -> None:
    for folder in ("run/systemd/system", "etc/systemd/system", "opt/stallward/lib", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/systemd/system/stallward.service").touch()
    active, enabled = tmp_path / "active", tmp_path / "enabled"
    enabled.touch()
    if ran:
        active.touch()
    systemctl = tmp_path / "bin/systemctl"
    systemctl.write_text(SYSTEMCTL.format(active=active, enabled=enabled))
    systemctl.chmod(0o755)
    for call in calls:
        name, *arguments = call.split()
        text = (ROOT / "deploy/deb" / name).read_text()
        script = re.sub(r"/(?=(?:run|etc|opt)/)", f"{tmp_path}/", text)
        subprocess.run(
            ["sh", "-c", script, name, *arguments],
            env={"PATH": f"{systemctl.parent}:{os.environ['PATH']}"},
            check=True,
        )
    assert active.exists() == (ran and stays)
    assert enabled.exists() == stays
    assert not (tmp_path / "run/stallward-upgrade").exists()
