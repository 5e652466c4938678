"""``stallward unit``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import DEFAULT_CONFIG, ConfigFile, check_config
from stallward.actuator.cli.unit.install import install_unit
from stallward.actuator.cli.unit.text import Installation, unit_text
from stallward.actuator.config.load import load_config
from stallward.actuator.kernel.hierarchies import detect


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
