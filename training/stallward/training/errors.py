"""Errors of ``stallward.training``.

The tree::

    StallwardError
    ├── DatasetError     no usable recordings, or too few of them
    ├── TrainingError    a training that cannot start or whose result cannot be read
    │   └── RecipeError  a recipe with a setting that there is not, or that cannot run
    ├── ExportError      a policy that cannot be exported
    ├── WorkerError      a worker process that died, or cannot do its job
    └── ClusterError     a Ray that cannot be started, reached or used
"""

from __future__ import annotations

from stallward.agent.errors import StallwardError


class DatasetError(StallwardError):
    """Raised when there are no usable recordings, or too few."""


class TrainingError(StallwardError):
    """Raised when a training cannot start or its result cannot be read."""


class RecipeError(TrainingError):
    """Raised when a recipe has an unknown setting, or one that cannot run."""


class ExportError(StallwardError):
    """Raised when a policy cannot be exported."""


class WorkerError(StallwardError):
    """Raised when a worker process ended without a result, or lacks what its job needs."""


class ClusterError(StallwardError):
    """Raised when Ray cannot be started, reached or used."""
