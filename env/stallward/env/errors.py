"""Errors of ``stallward.env``.

The tree::

    StallwardError
    ├── ScenarioError     a scenario file that cannot be used as it is written
    ├── WorkloadError     a program of a scenario that is missing or failed
    ├── RecordingError    a recording that is missing, foreign, torn or of another version
    ├── SplitError        a split of the recordings with a mistake, or one that forbids a use
    ├── TwinError         a twin or its parameters that cannot be used as given
    └── SandboxError      this machine or user cannot hold the sandbox
"""

from __future__ import annotations

from stallward.agent.errors import StallwardError


class ScenarioError(StallwardError):
    """Raised when a scenario is missing or its file has a mistake in it."""


class WorkloadError(StallwardError):
    """Raised when a program of a scenario is missing, fails or writes what cannot be read."""


class SandboxError(StallwardError):
    """Raised when the sandbox cannot be made on this machine by this user."""


class RecordingError(StallwardError):
    """Raised when a recording is missing, foreign, truncated or of another schema version."""


class TwinError(StallwardError):
    """Raised when a twin's description or parameters cannot be used as given."""


class SplitError(StallwardError):
    """Raised when the split has a mistake, or held-out recordings are to be learned from."""
