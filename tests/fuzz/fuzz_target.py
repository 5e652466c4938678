"""The targets of the fuzzer, and the definition of a finding."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from fuzz_mutations import Material

from stallward.actuator.errors import PartlyReadError
from stallward.agent.errors import StallwardError

MAX_COUNT: Final = 2**64 - 1
MAX_MESSAGE: Final = 6000
"""The most characters in an error's message, which must not repeat a whole hostile input."""


_MEMORY: Final = Path("/dev/shm")


class Folder:
    """A folder in memory that lives as long as the fuzzer."""

    _all: ClassVar[list[Folder]] = []

    def __init__(self) -> None:
        self._all.append(self)
        where = _MEMORY if _MEMORY.is_dir() else None
        self._kept = tempfile.TemporaryDirectory(prefix="stallward-fuzz-", dir=where)
        self.path = Path(self._kept.name)

    def file(self, name: str, content: bytes) -> Path:
        """Write one file."""
        path = self.path / name
        path.write_bytes(content)
        return path


class FindingError(AssertionError):
    """An input that was neither refused with a typed error nor understood correctly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reader of input that another program wrote.

    Attributes:
        name: Its name on the command line and in reports.
        run: Reads an input; returns a value or raises.
        material: Real contents and words of the format.
        errors: The typed errors that it may raise.
        names: The path that the message of an error must contain.
        check: Raises ``AssertionError`` if the value is not what the input says.
        slow: The short run tries only one in ``slow`` of its inputs.
    """

    name: str
    run: Callable[[bytes], Any]
    material: Material
    errors: tuple[type[StallwardError], ...]
    names: str = ""
    check: Callable[[bytes, Any], None]
    slow: int = 1


def try_input(target: Target, content: bytes) -> bool:
    """Give one input to a target; returns whether it was understood rather than refused.

    Raises:
        FindingError: It was neither understood correctly nor refused with a good error.
    """
    try:
        value = target.run(content)
    except PartlyReadError as error:
        _check_error(target, content, error)
        value = error.value
    except target.errors as error:
        _check_error(target, content, error)
        return False
    except Exception as error:
        raise FindingError(_said(target, content, f"raised {error!r:.300}")) from error
    try:
        target.check(content, value)
    except Exception as error:
        why = f"{error!r}"[:600]
        raise FindingError(_said(target, content, f"gave {value!r:.300}: {why}")) from error
    return True


def _check_error(target: Target, content: bytes, error: StallwardError) -> None:
    message = str(error)
    problem = ""
    if target.names not in message:
        problem = f"does not name {target.names!r}"
    elif not error.cause.strip() or error.cause.strip() == target.names:
        problem = "has no cause"
    elif len(message) > MAX_MESSAGE:
        problem = f"is {len(message)} characters long"
    else:
        try:
            message.encode()
        except UnicodeEncodeError:
            problem = "cannot be printed"
    if problem:
        raise FindingError(_said(target, content, f"the error {problem}: {message!r:.300}"))


def _said(target: Target, content: bytes, what: str) -> str:
    shown = f"{content!r}" if len(content) <= 2000 else f"{content[:300]!r}... ({len(content)} B)"
    return f"{target.name}: {what}\ninput: {shown}"


def sound(_content: bytes, value: object) -> None:
    """Every number in ``value`` is finite, a counter fits its 64 bits, every text is Unicode."""
    _sound(value, low=0)


def sound_signed(_content: bytes, value: object) -> None:
    """:func:`sound`, but whole numbers may be negative."""
    _sound(value, low=-(2**63))


def _sound(value: object, low: int) -> None:
    if value is None or isinstance(value, bool | bytes):
        return
    if isinstance(value, int):
        assert low <= value <= MAX_COUNT, f"{value} is out of range"
    elif isinstance(value, float):
        assert math.isfinite(value), f"{value} is not finite"
    elif isinstance(value, str | Path):
        assert "\0" not in str(value), "a text holds NUL"
        str(value).encode()
    elif isinstance(value, np.ndarray):
        assert value.dtype == object or np.isfinite(value.astype(np.float64)).all(), "not finite"
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _sound(getattr(value, field.name), low)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _sound(key, low)
            _sound(item, low)
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            _sound(item, low)
