"""Loads what is named by its place, so that a process imports only what it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load_named(place: str) -> Any:
    """Import what is at a place.

    Args:
        place: The module and the name there, as ``package.module:name``.
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
