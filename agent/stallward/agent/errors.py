"""Errors of every stallward package.

The tree::

    StallwardError                 anything a user can act on
    ├── agent.ActionError          an action that is not in the table
    ├── agent.ControllerError      an unknown controller or wrong arguments for it
    ├── agent.PolicyError          a policy file that cannot be run safely
    ├── agent.SchemaError          a file whose keys or values are not as its format says
    ├── agent.ThresholdError       thresholds of a rule that are none
    └── (each package derives its own, in its own ``errors`` module)
"""

from __future__ import annotations

from typing import Any, Final

_LONGEST: Final = 2000
"""Characters of a cause, and of a next step."""


class StallwardError(Exception):
    """Something went wrong that the user can act on.

    Args:
        cause: What happened, one sentence, with the numbers and the path in it; cut off where
            it is far too long for one, as when a broken file is quoted.
        next_step: What the user can do about it, one sentence; empty if nothing can be done.
    """

    def __init__(self, cause: str, *, next_step: str = "") -> None:
        cause, next_step = _printable(cause), _printable(next_step)
        super().__init__(cause, next_step)
        self.cause = cause
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.cause} {self.next_step}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it cross to another process, whatever arguments a subclass takes."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _printable(text: str) -> str:
    """A text that is no longer than a message, and that can be written to a terminal or log."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    # JSON may hold half a surrogate, which no encoding takes.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _rebuilt(kind: type[StallwardError], args: Any, state: dict[str, Any]) -> StallwardError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class ActionError(StallwardError):
    """Raised when an action is not in the action table."""


class ControllerError(StallwardError):
    """Raised when a controller is unknown or its arguments do not fit."""


class PolicyError(StallwardError):
    """Raised when a policy file cannot be loaded or run safely."""


class SchemaError(StallwardError):
    """Raised when the keys or values of a file are not as its format says."""


class ThresholdError(StallwardError):
    """Raised when a file or a list of a rule's thresholds cannot be used."""


class UsageError(StallwardError):
    """Raised when a command line is well-formed but cannot be meant."""
