"""Connecting to the daemons that a file names."""

from __future__ import annotations

from pathlib import Path

from stallward.fleet import Fleet, load_fleet


def connect_fleet(file: Path) -> Fleet:
    """Clients of all daemons that a file names.

    Raises:
        ConfigError: If the file cannot be used, or a certificate cannot be read.
        DiscoveryError: If nodes cannot be looked up.
    """
    return Fleet(load_fleet(file))
