"""Puts the systemd unit where systemd finds it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from stallward.actuator.cli.unit.text import UNIT_NAME
from stallward.actuator.kernel.refusals import next_step
from stallward.agent.errors import UsageError

SYSTEM_UNITS: Final = Path("/etc/systemd/system")
"""Where an administrator's units are."""
_MADE_BY: Final = "# Made by `stallward unit`"
_TIMEOUT_S: Final = 60.0


def install_unit(text: str, folder: Path = SYSTEM_UNITS) -> Path:
    """Write the unit, and have systemd read it; nothing is started.

    Args:
        text: The unit.
        folder: Where units are.

    Returns:
        The unit's file.

    Raises:
        UsageError: If systemd is not here, a unit of that name was made by somebody else, or the
            file cannot be written.
    """
    path = folder / UNIT_NAME
    systemctl = shutil.which("systemctl")
    if systemctl is None or not folder.is_dir():
        raise UsageError(
            f"systemd is not here: there is no {'systemctl' if systemctl is None else folder}.",
            next_step="Print the unit without --install, and run the daemon by other means.",
        )
    new = path.with_suffix(".new")
    try:
        if path.exists() and _MADE_BY not in path.read_text(encoding="utf-8", errors="replace"):
            raise UsageError(
                f"{path} was not made by `stallward unit`.",
                next_step="Move it away, or print the unit without --install.",
            )
        new.write_text(text, encoding="utf-8")
        new.chmod(0o644)
        new.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}).",
            next_step=next_step(error.errno or 0, path) or "Print the unit without --install.",
        ) from error
    done = subprocess.run(
        [systemctl, "daemon-reload"],
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if done.returncode:
        raise UsageError(
            f"{path} is written, but systemd has not read it: {done.stderr.strip()}.",
            next_step="Run `systemctl daemon-reload`.",
        )
    return path
