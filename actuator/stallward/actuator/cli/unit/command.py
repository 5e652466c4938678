"""``stallward unit``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import DEFAULT_CONFIG, ConfigFile, check_config
from stallward.actuator.cli.unit.text import UNIT_NAME, Installation, unit_text
from stallward.actuator.config.load import load_config
from stallward.actuator.kernel.hierarchies import detect
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


def unit(
    config: ConfigFile = DEFAULT_CONFIG,
    program: Annotated[
        Path | None, typer.Option(help="The stallward command [the one that runs].")
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Write it where systemd finds it (needs root).")
    ] = False,
) -> None:
    """Print or install the systemd unit for this configuration.

    Every setting has its reason on the line above it. What only some configurations need, such as
    eBPF or the network, is in the unit only if this one does. Installing starts no daemon.
    """
    check_config(config)
    loaded = load_config(config)
    python = (sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), *sys.path)  # noqa: TID251
    installation = Installation(
        program=program or Path(sys.executable).parent / "stallward",  # noqa: TID251
        config=config.absolute(),
        read=tuple(Path(folder) for folder in python),
        kind=detect(loaded.node.paths).kind,
    )
    text = unit_text(installation, loaded)
    if not install:
        output.text(text)
        return
    written = install_unit(text)
    output.line(f"installed {written}")
    output.line("start it now and at every boot: systemctl enable --now stallward")
    output.line("if it runs already: systemctl restart stallward")
