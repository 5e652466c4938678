"""The result of examining one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["works", "degraded", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of examining one thing."""

    area: str
    """``node``, ``signal``, ``lever``, ``safety`` or ``configuration``."""
    name: str
    state: State
    why: str = ""
    next_step: str = ""
    """What to do about it; empty if nothing needs to be done."""


def finding(area: str, name: str, fault: str, next_step: str, works: str = "") -> Finding:
    """Make a finding: it works if ``fault`` is empty, and is degraded if not."""
    if fault:
        return Finding(area=area, name=name, state="degraded", why=fault, next_step=next_step)
    return Finding(area=area, name=name, state="works", why=works)
