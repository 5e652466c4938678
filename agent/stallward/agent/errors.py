"""Errors of every stallward package.

The tree::

    StallwardError                 anything a user can act on
    ├── agent.ActionError          an action that is not in the table
    ├── agent.ControllerError      an unknown controller or wrong arguments for it
    ├── agent.PolicyError          a policy file that cannot be run safely
    ├── agent.ProfileError         a profile of an application that cannot be used
    ├── agent.SchemaError          a file whose keys or values break its format
    ├── agent.ThresholdError       thresholds of a rule that cannot be used
    ├── agent.UnbelievedFileError  a file that others than root can have written
    ├── agent.UsageError           arguments of a command that cannot be used
    └── (each package derives its own, in its own ``errors`` module)
"""

from __future__ import annotations

from typing import Any, Final

from stallward.agent.printable import printable_lines

_MAX_CHARACTERS: Final = 2000
"""The longest cause, and the longest next step."""


class StallwardError(Exception):
    """Something went wrong that the user can act on.

    Args:
        cause: What happened, one sentence, with the numbers and the path in it. A text far too
            long for a sentence, such as one that quotes a broken file, is cut off.
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
        """Let the error be pickled, whatever arguments a subclass takes."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _printable(text: str) -> str:
    """The text cut to the length of a message, with only what a terminal or log shows."""
    if len(text) > _MAX_CHARACTERS:
        text = f"{text[:_MAX_CHARACTERS]}..."
    return printable_lines(text)


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


class ProfileError(StallwardError):
    """Raised when a file is not a profile of an application, or of another version."""


class SchemaError(StallwardError):
    """Raised when the keys or values of a file break its format."""


class ThresholdError(StallwardError):
    """Raised when a file or a list of a rule's thresholds cannot be used."""


class UsageError(StallwardError):
    """Raised when the arguments of a command can be parsed but not used."""


class UnbelievedFileError(StallwardError):
    """Raised when something is not a file, larger than allowed, or one that others than root can have written."""
