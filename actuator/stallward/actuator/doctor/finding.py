"""One thing that the doctor looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["works", "degraded", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    area: str
    """``node``, ``signal``, ``lever``, ``safety`` or ``configuration``."""
    name: str
    state: State
    why: str = ""
    next_step: str = ""
    """What to do about it; empty where nothing needs doing."""


def finding(area: str, name: str, fault: str, next_step: str, works: str = "") -> Finding:
    """What works if there is no ``fault``, and is degraded by one."""
    if fault:
        return Finding(area=area, name=name, state="degraded", why=fault, next_step=next_step)
    return Finding(area=area, name=name, state="works", why=works)
