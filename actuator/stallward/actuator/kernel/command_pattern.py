"""Regular expressions that are searched for in what others write.

Python's engine goes back over the text for every choice in a pattern: a command line of 4 kB that
was made for a pattern with two wildcards takes it seconds, in which no thread runs. RE2 takes a
time that grows with the length alone, lets other threads run, and bounds its memory
(https://github.com/google/re2/wiki/WhyRE2). It has neither look-around nor back-references.
"""

from __future__ import annotations

from typing import Any, Final

from stallward.actuator.errors import ConfigError

_PATTERN_BYTES: Final = 1 << 20
"""The memory that one pattern may take, together with what its searches remember."""


class CommandPattern:
    """A pattern that is searched for in command lines; a dot also matches a line break.

    Args:
        pattern: The regular expression.

    Raises:
        ValueError: If it is none.
        ConfigError: If RE2 is not installed.
    """

    def __init__(self, pattern: str) -> None:
        re2 = _import()
        options = re2.Options()
        options.dot_nl = True
        options.log_errors = False
        options.max_mem = _PATTERN_BYTES
        try:
            self._search = re2.compile(pattern, options).search
        except (re2.error, UnicodeEncodeError) as error:
            raise ValueError(_said(error)) from error

    def found_in(self, line: str) -> bool:
        """Whether the pattern matches anywhere in a line."""
        return self._search(line) is not None


def _said(error: Exception) -> str:
    """What RE2 says, which is bytes."""
    said = error.args[0] if error.args else error
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def _import() -> Any:
    try:
        import re2  # noqa: PLC0415 - it takes 5 MiB, and only `command` needs it
    except ImportError as error:
        raise ConfigError(
            "Processes are named by `command`, and google-re2 is not installed.",
            next_step="Install stallward[node].",
        ) from error
    return re2
