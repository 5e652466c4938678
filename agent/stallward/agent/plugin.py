"""What a package gives for a controller of its own: its entry, and how arguments are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from stallward.agent.controller import Controller
from stallward.agent.errors import ControllerError


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEntry:
    """One row of the registry."""

    name: str
    summary: str
    make: Callable[[Mapping[str, str]], Controller]
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameter name -> what it means, with its unit and default."""


PLUGIN_GROUP: Final = "stallward.controllers"
"""Entry points of this group are :class:`ControllerEntry` objects of installed packages."""


MAX_SEED: Final = (1 << 32) - 1


def number(
    arguments: Mapping[str, str],
    key: str,
    default: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
) -> float:
    """Read one numeric argument of a controller spec.

    Raises:
        ControllerError: If it is not a finite number from ``low`` to ``high``.
    """
    text = arguments.get(key)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise ControllerError(
            f"{key}={text!r} is not a number.", next_step=f"Try {key}={default}."
        )
    if not low <= value <= high:
        raise ControllerError(f"{key}={value:g} is outside {low:g} to {high:g}.")
    return value
