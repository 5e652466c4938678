"""Whether a line says that its request was answered. Pure.

Under overload many requests fail, and most of them at once. One that failed must never count as a
fast one, so a word that is neither known for success nor for failure is malformed.
"""

from __future__ import annotations

import math
import re
from typing import Final

from stallward.actuator.errors import ConfigError
from stallward.actuator.latency.lines.durations import parse_number

_ALWAYS_FAILED: Final = frozenset({"false", "no", ""})
_STATUS: Final = re.compile(r"\s*([0-9]{1,9})\s*(?:(-)\s*([0-9]{1,9})?\s*)?")


class Outcome:
    """Tells requests that failed from those that were answered.

    Args:
        failed_words: Words that mean a failure.
        ok_words: Words that mean success.
        failed_status: Status codes that mean a failure: ``499``, ``500-599`` or ``500-``.

    Raises:
        ConfigError: If ``failed_status`` has something else.
    """

    def __init__(
        self,
        failed_words: tuple[str, ...],
        ok_words: tuple[str, ...],
        failed_status: tuple[str, ...],
    ) -> None:
        self._failed = frozenset(map(_plain, failed_words))
        self._ok = frozenset(map(_plain, ok_words))
        try:
            self._ranges = tuple(map(parse_status, failed_status))
        except ValueError as error:
            raise ConfigError(
                f"failed_status of a latency source: {error}.",
                next_step='Write codes and ranges, such as ["499", "500-599"].',
            ) from error

    def is_failure(self, word: str) -> bool:
        """Whether a word in the place of a time or a latency says that the request failed."""
        return _plain(word) in self._failed

    def is_answered(self, word: str) -> bool:
        """Whether the field ``ok`` says that the request was answered.

        Raises:
            ValueError: If it says nothing that is known.
        """
        plain = _plain(word)
        if plain in _ALWAYS_FAILED or plain in self._failed:
            return False
        if plain in self._ok:
            return True
        number = parse_number(plain)
        return number > 0.0 and not any(low <= number <= high for low, high in self._ranges)


def _plain(word: str) -> str:
    return word.strip().lower()


def parse_status(text: str) -> tuple[float, float]:
    """Return the first and the last code of a range such as ``499``, ``500-599`` or ``500-``.

    Raises:
        ValueError: If it is none.
    """
    found = _STATUS.fullmatch(text)
    first = float(found[1]) if found else math.nan
    last = math.inf if found and found[2] else first
    if found and found[3]:
        last = float(found[3])
    if not first <= last:
        raise ValueError(f"{text!r} is not a range of status codes")
    return first, last
