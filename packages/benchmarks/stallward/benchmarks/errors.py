"""Errors of the benchmarks."""

from __future__ import annotations

from stallward.evaluation.errors import EvaluationError


class BenchError(EvaluationError):
    """Raised when a benchmark cannot be run on this machine."""
