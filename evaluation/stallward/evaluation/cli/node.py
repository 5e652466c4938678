"""``stallward serve``, ``restore`` and ``unit``: the daemon as a service."""

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


def restore(
    config: Annotated[Path, typer.Option(help="The daemon's TOML file.")] = DEFAULT_CONFIG,
    journal: Annotated[
        Path | None, typer.Option(help="Its journal, where there is no such file any more.")
    ] = None,
) -> None:
    """Put back what a dead daemon left changed.

    It starts none, and prints what it undid. It may be run at any time and again. Exit code 0:
    everything is as it was; 1: something could not be undone, and stays in the journal; 2: it
    could not be tried, e.g. because a daemon runs.
    """
    from stallward.actuator.restore_command import main  # noqa: PLC0415

    if journal is None:
        check_config(config)
    chosen = ["--config", str(config)] if journal is None else ["--journal", str(journal)]
    raise typer.Exit(main(chosen))


def systemd_unit(
    config: Annotated[Path, typer.Option(help="The daemon's TOML file.")] = DEFAULT_CONFIG,
    program: Annotated[
        Path | None, typer.Option(help="The stallward command [the one that runs].")
    ] = None,
) -> None:
    """Print the systemd unit for this installation.

    Every setting has its reason on the line above it.
    """
    from stallward.actuator.systemd_unit import unit_text  # noqa: PLC0415

    ours = Path(sys.executable).parent / "stallward"
    output.line(unit_text(program or ours, config).rstrip())
