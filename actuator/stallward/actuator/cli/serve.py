"""``stallward serve`` and ``restore``."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import DEFAULT_CONFIG, ConfigFile, check_config
from stallward.actuator.cli.start_text import start_lines
from stallward.actuator.config.load import load_config
from stallward.actuator.config.profiles import with_profiles
from stallward.actuator.guardian.restore_command import RestoreOptions, main
from stallward.actuator.guardian.restorer import RestorerOptions
from stallward.actuator.ipc.options import GuardianOptions, Modules
from stallward.actuator.runtime.process_start import command_line
from stallward.actuator.targets.sources import follower_of_pods


def serve(
    config: ConfigFile = DEFAULT_CONFIG,
) -> None:
    """Run the actuator daemon in the foreground (needs root).

    It runs until SIGTERM or Ctrl-C. Everything it changed is put back when it stops, however
    it stops.
    """
    check_config(config)
    settings = load_config(config)
    options = GuardianOptions(
        config=config, pods_module=follower_of_pods() if settings.follows_pods else ""
    )
    for text in start_lines(with_profiles(settings), config, version("stallward")):
        output.note(f"stallward: {text}")
    # A fresh process: the guardian must not carry the command line's imports.
    command = command_line(Modules().guardian, options)
    os.execv(command[0], command)  # noqa: S606


def restore(
    config: ConfigFile = DEFAULT_CONFIG,
    journal: Annotated[
        Path | None, typer.Option(help="Its journal, where there is no such file any more.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay, and do it whenever a daemon has died.")
    ] = False,
) -> None:
    """Put back what a dead daemon left changed.

    It starts no daemon, and prints what it undid. It may be run at any time and again. Exit code 0:
    everything is as it was; 1: something could not be undone, and stays in the journal; 2: it
    could not be tried, e.g. because a daemon runs.

    With --watch, SIGTERM or Ctrl-C ends it as soon as no daemon runs any more; a second one, at
    once.
    """
    if journal is None:
        check_config(config)
    if watch:
        # A fresh process, as for `serve`: it stays, so each of its megabytes does.
        options = RestorerOptions(config=config, journal=journal and journal.absolute())
        command = command_line(Modules().restorer, options)
        os.execv(command[0], command)  # noqa: S606
    raise typer.Exit(main(RestoreOptions(config=config, journal=journal)))
