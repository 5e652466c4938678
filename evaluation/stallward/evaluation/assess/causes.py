"""What the seconds that missed the target show signs of. Pure.

docs/explanation/when-it-helps.md explains the rule.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import numpy as np

from stallward.actuator.guard.hold_budget import REFAULTS_PER_S, STALL_SHARE
from stallward.evaluation.assess.readings import Array
from stallward.evaluation.assess.seconds import Mask, Seconds

USUAL: Final = 0.95
"""What is usual is this quantile of a signal over the seconds that met the target."""
LEAST_MET: Final = 60
"""With fewer seconds that met it, nothing is known to be usual."""


class Cause(StrEnum):
    """What a second shows a sign of."""

    MEMORY = "memory"
    """The application waited for memory, or read back pages that it had lost."""
    DISK = "disk"
    """It waited for a disk, and not for memory."""
    CPU = "cpu"
    """It waited for a processor."""
    LOAD = "load"
    """It had more requests than usual."""
    UNKNOWN = "unknown"
    """None of these."""


def causes_of(seconds: Seconds) -> dict[Cause, Mask]:
    """The seconds with requests that show a sign of each cause, whether they missed or not.

    A signal is a sign above a floor, which for memory is the guard's, and above what is usual. A
    wait for memory is one for the disk as well, because the page comes from there, and the kernel
    counts both (Documentation/accounting/psi.rst). So a second with a sign of memory has none of
    the disk. Otherwise a second may show several.
    """
    met = seconds.judged & ~seconds.missed
    memory = _above(seconds.stall, met, STALL_SHARE)
    memory |= _above(seconds.refaults_per_s, met, REFAULTS_PER_S)
    signs = {
        Cause.MEMORY: memory,
        Cause.DISK: _above(seconds.disk, met, STALL_SHARE) & ~memory,
        Cause.CPU: _above(seconds.cpu, met, STALL_SHARE),
        Cause.LOAD: _above(seconds.requests_per_s, met, None),
    }
    signs[Cause.UNKNOWN] = ~np.any(list(signs.values()), axis=0)
    return {cause: sign & seconds.judged for cause, sign in signs.items()}


def short_of_memory(seconds: Seconds) -> Mask:
    """The seconds in which the application waited for memory, however usual that is."""
    return (seconds.stall > STALL_SHARE) | (seconds.refaults_per_s > REFAULTS_PER_S)


def _above(signal: Array, met: Mask, floor: float | None) -> Mask:
    """Where a signal is above its floor, if it has one, and above what is usual, if that is known."""
    known = signal[met & np.isfinite(signal)]
    if known.size < LEAST_MET:
        return signal > (np.inf if floor is None else floor)
    usual = float(np.quantile(known, USUAL))
    return signal > (usual if floor is None else max(usual, floor))
