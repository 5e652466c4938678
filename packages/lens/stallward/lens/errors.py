"""The errors of the lens.

The class tree::

    StallwardError
    └── LensError              something that cannot be looked at
        ├── TraceError         a trace of memory references that cannot be read on
        ├── TraceFileError     a trace of memory that cannot be read or drawn
        └── ProfilingError     an application that cannot be profiled
"""

from __future__ import annotations

from stallward.agent.errors import StallwardError


class LensError(StallwardError):
    """Raised when something cannot be traced, or not to the end."""


class TraceError(LensError):
    """Raised when a trace of memory references is truncated, foreign or of several processes."""


class TraceFileError(LensError):
    """Raised when the file of a trace is missing, foreign or has nothing to draw."""


class ProfilingError(LensError):
    """Raised when an application cannot be profiled."""
