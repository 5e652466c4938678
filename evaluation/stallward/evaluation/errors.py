"""Errors of the evaluation.

The tree::

    StallwardError
    └── EvaluationError
        ├── MeasureError       a block or recording that cannot be measured
        ├── PlanError          a comparison that cannot be planned or resumed
        ├── ComparisonError    a comparison whose blocks cannot be run
        └── ResultError        a file of results that cannot be read
"""

from __future__ import annotations

from stallward.agent.errors import StallwardError


class EvaluationError(StallwardError):
    """An error of an evaluation that the user can act on."""


class MeasureError(EvaluationError):
    """Raised when a block has too little data, or unsuitable data, to be measured."""


class PlanError(EvaluationError):
    """Raised when a comparison cannot be planned, or its directory belongs to another one."""


class ComparisonError(EvaluationError):
    """Raised when blocks cannot be run."""


class ResultError(EvaluationError):
    """Raised when a file of results is missing or has another content."""
