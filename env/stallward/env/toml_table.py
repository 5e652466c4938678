"""Typed reading of one TOML table: keys that nobody asked for are refused."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from stallward.env.errors import ScenarioError

T = TypeVar("T")

_INT64 = 1 << 63
"""Beyond a signed integer of 64 bits TOML promises nothing."""
_SHOWN = 200
"""So much of a wrong value is in a message."""
_TYPE_NAMES = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


class Table:
    """A TOML table that knows where it is, so that errors can say so.

    Args:
        file: The file it comes from.
        prefix: Its dotted name in the file; empty for the file itself.
        values: What the file says.
    """

    def __init__(self, file: Path, prefix: str, values: Mapping[str, Any]) -> None:
        self._file = file
        self._prefix = prefix
        self._values = values
        self._asked: set[str] = set()

    def where(self, key: str) -> str:
        """``FILE: KEY`` with the whole dotted key, for messages."""
        return f"{self._file}: {self._prefix}{'.' if self._prefix else ''}{key}"

    def fail(self, key: str, why: str, next_step: str = "") -> ScenarioError:
        """An error about ``key``."""
        return ScenarioError(f"{self.where(key)} {why}", next_step=next_step)

    def has(self, key: str) -> bool:
        """Whether the file gives ``key``."""
        self._asked.add(key)
        return key in self._values

    def is_text(self, key: str) -> bool:
        """Whether the file gives ``key`` and it is a string."""
        return self.has(key) and isinstance(self._values[key], str)

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """The value of ``key``; it is needed when there is no default.

        Raises:
            ScenarioError: If it is missing or of another type.
        """
        self._asked.add(key)
        if key not in self._values:
            if default is None:
                raise self._missing(key, kind)
            return default
        return self._typed(key, self._values[key], kind)

    def maybe(self, key: str, kind: type[T]) -> T | None:
        """The value of ``key``, or ``None`` when the file does not give it."""
        return self.get(key, kind) if self.has(key) else None

    def number(
        self, key: str, *, default: float | None = None, low: float = 0, high: float | None = None
    ) -> float:
        """A number within bounds, both included."""
        value = self.get(key, float, default)
        if value < low or (high is not None and value > high):
            bounds = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
            raise self.fail(key, f"is {value:g}, but must be {bounds}.")
        return value

    def strings(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A list of strings that is not empty."""
        if default is not None and not self.has(key):
            return default
        items = self.get(key, list)
        if not items or not all(isinstance(item, str) for item in items):
            raise self.fail(
                key,
                "must be a list of strings that is not empty.",
                'Write each argument as a string of its own, e.g. ["sleep", "10"].',
            )
        return tuple(items)

    def table(self, key: str) -> Table:
        """The table under ``key``, which is needed."""
        return Table(self._file, self._name(key), self.get(key, dict))

    def tables(self, key: str) -> tuple[Table, ...]:
        """The tables of the list under ``key``; none when it is not given."""
        items = self.get(key, list, [])
        for index, item in enumerate(items):
            self._typed(f"{key}[{index}]", item, dict)
        return tuple(
            Table(self._file, self._name(f"{key}[{index}]"), item)
            for index, item in enumerate(items)
        )

    def remaining(self) -> dict[str, Any]:
        """Everything nobody asked for yet, for tables whose keys are names the user chose."""
        left = {key: value for key, value in self._values.items() if key not in self._asked}
        self._asked.update(left)
        return left

    def done(self) -> None:
        """Refuse keys that nobody asked for.

        Raises:
            ScenarioError: If there are any; it names the first and what was meant.
        """
        for key in self._values:
            if key not in self._asked:
                raise self.fail(key, "is not a known key.", self._suggestion(key))

    def _name(self, key: str) -> str:
        return f"{self._prefix}.{key}" if self._prefix else key

    def _suggestion(self, key: str) -> str:
        close = difflib.get_close_matches(key, self._asked, n=1, cutoff=0.6)
        if close:
            return f"Did you mean {close[0]}?"
        return f"Keys that can stand here: {', '.join(sorted(self._asked))}."

    def _missing(self, key: str, kind: type[object]) -> ScenarioError:
        close = difflib.get_close_matches(key, self._values, n=1, cutoff=0.6)
        hint = f" There is {close[0]}; did you mean {key}?" if close else ""
        return self.fail(key, "is missing.", f"Add it; it is {_TYPE_NAMES[kind]}.{hint}")

    def _typed(self, key: str, value: object, kind: type[T]) -> T:
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise self.fail(key, "does not fit into 64 bits.")
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        # bool is an int in Python, but `nice = true` is a mistake.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            got = _TYPE_NAMES.get(type(value), type(value).__name__)
            raise self.fail(
                key, f"must be {_TYPE_NAMES[kind]}, but it is {got} ({_shown(value)})."
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise self.fail(key, f"is {value}, but must be a finite number.")
        if kind is str and "\0" in str(value):
            raise self.fail(key, f"is {_shown(value)}: it holds a NUL, which no name can.")
        return value


def _shown(value: object) -> str:
    """What the file says, for a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python prints no number of more than 4300 digits
        return "..."
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
