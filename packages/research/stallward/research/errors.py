"""The errors of research.

The class tree::

    StallwardError
    └── TrainingError
        └── SearchError  a search of recipes that cannot start or go on
"""

from __future__ import annotations

from stallward.training.errors import TrainingError


class SearchError(TrainingError):
    """Raised when a search of recipes cannot start or continue."""
