"""Errors of what repeats the founding documents."""

from __future__ import annotations

from stallward.agent.errors import StallwardError


class ReplicationError(StallwardError):
    """Raised when an experiment of a document cannot be repeated here."""
