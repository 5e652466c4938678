"""The versions of numba that the twin can be compiled with."""

from __future__ import annotations

from typing import Final

from stallward.env.errors import TwinError

FIRST_VERSION: Final = (0, 65)
"""The oldest minor version of numba that works."""
NEXT_VERSION: Final = (0, 69)
"""The first minor version of numba that has not been tried."""


def numba_requirement() -> str:
    """Return the versions that work, in the form that ``pip`` takes."""
    first, following = (f"{major}.{minor}" for major, minor in (FIRST_VERSION, NEXT_VERSION))
    return f"numba>={first},<{following}"


def unknown_version(version: str) -> TwinError:
    """Make the error that refuses a version of numba."""
    return TwinError(
        f"The twin cannot be compiled with numba {version}: it relies on internals of numba "
        "that change between minor versions.",
        next_step=f'Install a version that works: pip install "{numba_requirement()}".',
    )


def check_numba_version(version: str) -> None:
    """Refuse a version of numba with which the twin has not been tried.

    Raises:
        TwinError: If it is older or newer than the versions that work.
    """
    parts = version.split(".")[:2]
    minor_version = tuple(int(part) if part.isdigit() else 0 for part in parts)
    if not FIRST_VERSION <= minor_version < NEXT_VERSION:
        raise unknown_version(version)
