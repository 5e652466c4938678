"""The systemd unit that ships with the project, filled in for this installation."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ConfigError

UNIT_NAME: Final = "stallward.service"
_SAFE: Final = re.compile(r"/[A-Za-z0-9_./+@:,-]*")
"""Paths that need no quoting in a unit; % would be a specifier."""


def unit_text(program: Path, config: Path) -> str:
    """Return the text of the unit.

    Args:
        program: The installed ``stallward`` command.
        config: The daemon's TOML file.

    Raises:
        ConfigError: If a path is relative, or has a character that a unit needs quoted.
    """
    for path in (program, config):
        if not _SAFE.fullmatch(str(path)):
            raise ConfigError(
                f"{str(path)!r} cannot be named in a systemd unit.",
                next_step="Use a whole path of letters, digits and _ . / + @ : , -",
            )
    folder = resources.files("stallward.actuator.cli")
    template = (folder / UNIT_NAME).read_text(encoding="utf-8")
    return template.replace("@STALLWARD@", str(program)).replace("@CONFIG@", str(config))
