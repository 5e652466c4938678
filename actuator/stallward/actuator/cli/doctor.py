"""``stallward doctor``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.doctor_text import finding_lines
from stallward.actuator.cli.options import Json, check_config
from stallward.actuator.config.load import load_config
from stallward.actuator.config.profiles import with_profiles
from stallward.actuator.doctor.doctor import examine
from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.agent.registry import make_controller


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
