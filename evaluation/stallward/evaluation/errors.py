"""Errors of the evaluation.

The tree::

    StallwardError
    └── EvaluationError
        ├── MeasureError       a block or recording that cannot be reduced to measures
        ├── PlanError          a comparison that cannot be planned or resumed
        ├── ComparisonError    a comparison that could not be carried out
        ├── ResultError        a file of results that cannot be read
        └── UsageError         a command line that makes no sense
"""

from __future__ import annotations

from stallward.agent.errors import StallwardError


class EvaluationError(StallwardError):
    """Something in an evaluation went wrong that the user can act on."""


class MeasureError(EvaluationError):
    """Raised when a block holds too little, or the wrong things, to be measured."""


class PlanError(EvaluationError):
    """Raised when a comparison makes no sense or a directory belongs to another one."""


class ComparisonError(EvaluationError):
    """Raised when blocks cannot be run."""


class ResultError(EvaluationError):
    """Raised when a file of results is missing, or holds something else."""


class BenchError(EvaluationError):
    """Raised when something cannot be measured on this machine."""
