"""Errors of ``stallward.models``.

The tree::

    StallwardError
    └── RegistryError    a policy, fitted twin or file of thresholds that is missing
"""

from __future__ import annotations

from stallward.agent.errors import StallwardError


class RegistryError(StallwardError):
    """Raised when a policy, fitted twin or file of thresholds is neither shipped nor a file."""
