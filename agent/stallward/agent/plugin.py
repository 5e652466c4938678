"""For packages that add a controller: the entry that registers it, and a reader of arguments."""

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
    """One controller in the registry."""

    name: str
    summary: str
    """What it does, one clause; ``stallward arms`` lists it."""
    make: Callable[[Mapping[str, str]], Controller]
    """Makes the controller from the arguments of its spec."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The meaning of each parameter by its name, with its unit and default."""
    levers: tuple[str, ...] = ()
    """The levers of other packages without which it can do nothing (``stallward.levers``); the
    daemon loads them where its configuration names the controller."""
    unbudgeted: bool = False
    """Whether a comparison runs it as it was published: without the guard's pause budgets and its
    pace of limits, and with permission to end background work."""


PLUGIN_GROUP: Final = "stallward.controllers"
"""Entry points of this group are :class:`ControllerEntry` objects of installed packages."""


MAX_SEED: Final = (1 << 32) - 1
"""The largest ``seed`` that a controller takes as an argument."""


def number(
    arguments: Mapping[str, str],
    key: str,
    default: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
) -> float:
    """Read one numeric argument of a controller spec; a missing one has the default.

    Raises:
        ControllerError: If the argument is not a finite number from ``low`` to ``high``.
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
