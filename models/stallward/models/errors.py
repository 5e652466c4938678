"""Errors of ``stallward.models``.

The tree::

    StallwardError
    └── RegistryError    a policy or fitted twin that is not there
"""

from __future__ import annotations

from stallward.agent.errors import StallwardError


class RegistryError(StallwardError):
    """Raised when a policy or fitted twin is neither shipped nor a file."""
