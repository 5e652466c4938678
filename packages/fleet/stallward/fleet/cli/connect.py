"""Connecting to the daemons that a file names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stallward.fleet.connections import Fleet


def connect_fleet(file: Path) -> Fleet:
    """Clients of all daemons that a file names.

    Raises:
        ConfigError: If the file cannot be used, or a certificate cannot be read.
        DiscoveryError: If nodes cannot be looked up.
    """
    from stallward.fleet import Fleet, load_fleet  # noqa: PLC0415

    return Fleet(load_fleet(file))
