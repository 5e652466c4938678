"""Which code the twin is compiled to: vectors of eight nodes, or one node after the other.

Both give the same numbers. Vectors take half of the time, and need parts of numba that are not its
public interface and change between minor versions. So with a version of numba that has not been
tried, each node is computed by itself, for which the public interface is enough.
"""

from __future__ import annotations

from typing import Final

import numba

from stallward.actuator.runtime.stderr_line import say

FIRST_VERSION: Final = (0, 65)
"""The oldest minor version of numba that works."""
NEXT_VERSION: Final = (0, 69)
"""The first minor version of numba with which vectors have not been tried."""


def is_tried(version: str) -> bool:
    """Return whether vectors work with a version of numba."""
    parts = version.split(".")[:2]
    minor_version = tuple(int(part) if part.isdigit() else 0 for part in parts)
    return FIRST_VERSION <= minor_version < NEXT_VERSION


def _has_vectors() -> bool:
    version = numba.__version__
    if is_tried(version):
        try:
            from stallward.env.twin.simd import numba_internals  # noqa: F401, PLC0415
        except ImportError as error:
            why = f"numba {version} lacks what vectors need ({error})"
        else:
            return True
    else:
        first, following = (f"{major}.{minor}" for major, minor in (FIRST_VERSION, NEXT_VERSION))
        why = f"numba {version} is not one of those that vectors work with, >={first},<{following}"
    say(f"{why}: the same numbers take about twice the time.", "twin")
    return False


VECTORS: Final = _has_vectors()
"""Whether compiled code computes several nodes at once."""
WIDTH: Final = 8 if VECTORS else 1
"""How many nodes are computed at once."""
