"""The errors of ``stallward.env``.

The class tree::

    StallwardError
    ├── ScenarioError     a scenario that is missing or has a mistake in its file
    ├── WorkloadError     a program of a scenario that is missing or fails
    ├── RecordingError    a recording that cannot be opened or written
    ├── CatalogueError    a catalogue of recordings that cannot be read, or is another version's
    ├── StorageError      shared storage that cannot be read or written
    ├── SplitError        a split of the recordings that has a mistake or forbids a use
    ├── TwinError         a twin that cannot be used as given
    └── SandboxError      a sandbox that cannot be made on this machine by this user
"""

from __future__ import annotations

from stallward.agent.errors import StallwardError


class ScenarioError(StallwardError):
    """Raised when a scenario is missing or its file has a mistake in it."""


class WorkloadError(StallwardError):
    """Raised when a program of a scenario is missing, fails or writes unreadable output."""


class SandboxError(StallwardError):
    """Raised when the sandbox cannot be made on this machine by this user."""


class RecordingError(StallwardError):
    """Raised when a recording is missing, not a recording, truncated or of another version."""


class CatalogueError(StallwardError):
    """Raised when a place is not a catalogue of recordings, or one of another version or damaged."""


class StorageError(StallwardError):
    """Raised when shared storage cannot be read or written."""


class TwinError(StallwardError):
    """Raised when a twin's exogenous inputs or parameters cannot be used as given."""


class SplitError(StallwardError):
    """Raised when the split has a mistake, or forbids learning from held-out recordings."""
