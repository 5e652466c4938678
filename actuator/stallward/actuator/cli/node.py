"""The commands of a node: ``stallward serve``, ``restore``, ``unit`` and ``doctor``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json
from stallward.agent.errors import UsageError

DEFAULT_CONFIG = Path("/etc/stallward/stallward.toml")


def check_config(config: Path) -> None:
    """Refuse a configuration file that does not exist.

    Raises:
        UsageError: If it does not exist.
    """
    if not config.is_file():
        raise UsageError(
            f"There is no configuration {config}.",
            next_step="`stallward init` writes one; --config names another.",
        )


def serve(
    config: Annotated[Path, typer.Option(help="The daemon's TOML file.")] = DEFAULT_CONFIG,
) -> None:
    """Run the actuator daemon in the foreground (needs root).

    It runs until SIGTERM or Ctrl-C. Everything it changed is put back when it stops, however
    it stops.
    """
    check_config(config)
    from importlib.metadata import version  # noqa: PLC0415

    from stallward.actuator.cli.start_text import start_lines  # noqa: PLC0415
    from stallward.actuator.config.load import load_config  # noqa: PLC0415
    from stallward.actuator.config.profiles import with_profiles  # noqa: PLC0415
    from stallward.actuator.ipc.options import GuardianOptions, Modules  # noqa: PLC0415
    from stallward.actuator.runtime.process_start import command_line  # noqa: PLC0415
    from stallward.actuator.targets.sources import follower_of_pods  # noqa: PLC0415

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
    config: Annotated[Path, typer.Option(help="The daemon's TOML file.")] = DEFAULT_CONFIG,
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
    from stallward.actuator.guardian.restore_command import RestoreOptions, main  # noqa: PLC0415

    if journal is None:
        check_config(config)
    if watch:
        from stallward.actuator.guardian.restorer import RestorerOptions  # noqa: PLC0415
        from stallward.actuator.ipc.options import Modules  # noqa: PLC0415
        from stallward.actuator.runtime.process_start import command_line  # noqa: PLC0415

        # A fresh process, as for `serve`: it stays, so each of its megabytes does.
        options = RestorerOptions(config=config, journal=journal and journal.absolute())
        command = command_line(Modules().restorer, options)
        os.execv(command[0], command)  # noqa: S606
    raise typer.Exit(main(RestoreOptions(config=config, journal=journal)))


def systemd_unit(
    config: Annotated[Path, typer.Option(help="The daemon's TOML file.")] = DEFAULT_CONFIG,
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
    from stallward.actuator.cli.unit.text import Installation, unit_text  # noqa: PLC0415
    from stallward.actuator.config.load import load_config  # noqa: PLC0415
    from stallward.actuator.kernel.hierarchies import detect  # noqa: PLC0415

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
    from stallward.actuator.cli.unit.install import install_unit  # noqa: PLC0415

    written = install_unit(text)
    output.line(f"installed {written}")
    output.line("start it now and at every boot: systemctl enable --now stallward")
    output.line("if it runs already: systemctl restart stallward")


def doctor(
    config: Annotated[
        Path | None, typer.Option(help="A daemon's TOML file: look at what it names as well.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also list what works.")] = False,
    as_json: Json = False,
) -> None:
    """Say what works on this machine and what does not.

    Nothing is changed. Exit code 0: an application can be protected here; 1: it cannot, and the
    last lines say why.
    """
    from dataclasses import asdict  # noqa: PLC0415

    from stallward.actuator.cli.doctor_text import finding_lines  # noqa: PLC0415
    from stallward.actuator.config.load import load_config  # noqa: PLC0415
    from stallward.actuator.config.profiles import with_profiles  # noqa: PLC0415
    from stallward.actuator.doctor.doctor import examine  # noqa: PLC0415
    from stallward.actuator.kernel.paths import DEFAULT_PATHS  # noqa: PLC0415
    from stallward.agent.registry import make_controller  # noqa: PLC0415

    if config is not None:
        check_config(config)
    loaded = None if config is None else with_profiles(load_config(config))
    paths = DEFAULT_PATHS if loaded is None else loaded.node.paths
    diagnosis = examine(paths, loaded, make_controller)
    if as_json:
        output.print_json({**asdict(diagnosis), "protectable": diagnosis.protectable})
        raise typer.Exit(0 if diagnosis.protectable else 1)
    output.line(f"node: {diagnosis.kind} ({diagnosis.why.rstrip('.')})")
    works = sum(f.state == "works" for f in diagnosis.findings)
    output.line(f"{works} of {len(diagnosis.findings)} things looked at work")
    output.line()
    for text in finding_lines(diagnosis.findings, everything=everything):
        output.line(text)
    output.line()
    for obstacle in diagnosis.obstacles:
        output.line(f"cannot protect: {obstacle}")
    if diagnosis.protectable:
        output.line("an application can be protected here")
    raise typer.Exit(0 if diagnosis.protectable else 1)
