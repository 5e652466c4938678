"""``stallward serve``: the daemon."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from stallward.evaluation.cli import output
from stallward.evaluation.errors import UsageError

DEFAULT_CONFIG = Path("/etc/stallward/stallward.toml")


def check_config(config: Path) -> None:
    """Refuse a configuration that is not there.

    Raises:
        UsageError: If it is not.
    """
    if not config.is_file():
        raise UsageError(
            f"There is no configuration {config}.",
            next_step="Name one with --config; docs/reference/config.md describes it.",
        )


def serve(
    config: Annotated[Path, typer.Option(help="The daemon's TOML file.")] = DEFAULT_CONFIG,
) -> None:
    """Run the actuator daemon in the foreground (needs root).

    It runs until SIGTERM or Ctrl-C. Everything it changed is put back when it stops, however
    it stops.
    """
    check_config(config)
    from stallward.actuator.config import load_config  # noqa: PLC0415

    socket = load_config(config).service.socket
    output.note(f"serving; ask it with `stallward ctl status --socket {socket}`, Ctrl-C ends it")
    # A fresh process: the guardian must not carry the command line's imports.
    os.execv(  # noqa: S606
        sys.executable,
        [sys.executable, "-m", "stallward.actuator.guardian", "--config", str(config)],
    )
