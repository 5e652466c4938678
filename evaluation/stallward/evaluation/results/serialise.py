"""Results to JSON and back: the only module that knows the layout of result files.

A result is a dataclass of types that ``agent/schema/read.py`` can read. Its fields are the keys,
but the keys of a ``Flat`` field stand in the object around it, and an ``Omitted`` field is left
out of the file where it is ``None``.

Files of other versions can be read: a missing key takes the field's default, and an unknown key is
ignored. Present values must have the right type.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.keys import fields_of
from stallward.agent.schema.read import read
from stallward.agent.schema.text_file import read_text_file
from stallward.evaluation.errors import PlanError, ResultError

T = TypeVar("T")

_TEMPORARY: Final = ".tmp"
"""The end of the name of a file that is being written."""


def to_json(value: object) -> Any:
    """The JSON value of a result: objects, lists, strings, numbers, booleans and ``None``."""
    if is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def _object(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    written: dict[str, Any] = {}
    for name, field in fields_of(kind).items():
        item = getattr(value, name)
        if field.flat:
            written |= _object(item)
        elif item is not None or not field.omitted:
            written[name] = to_json(item)
    return written


def from_json(kind: type[T], value: object) -> T:
    """The inverse of :func:`to_json`.

    Args:
        kind: A dataclass, or a mapping to values of one type.
        value: The value as parsed by ``json``.

    Raises:
        ResultError: If a key is missing or has a wrong value; the message names the key.
    """
    try:
        return read(kind, value, strict=False)
    except SchemaError as error:
        raise ResultError(error.cause, next_step=error.next_step) from error


def load(kind: type[T], path: Path) -> T:
    """Read the result in a file.

    Raises:
        ResultError: If there is no such file, or it holds something else.
    """
    try:
        value = json.loads(read_text_file(path), parse_constant=_refuse_constant)
        return from_json(kind, value)
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise ResultError(
            f"{path} is no JSON that can be read: {error}.", next_step=next_step_of(error, "")
        ) from error
    except ResultError as error:
        raise ResultError(f"{path}: {error.cause}", next_step=error.next_step) from error


def load_if_there(kind: type[T], path: Path) -> T | None:
    """Like :func:`load`, but ``None`` if there is no file or it cannot be read."""
    try:
        return load(kind, path)
    except ResultError:
        return None


def holds_object(path: Path) -> bool:
    """Whether a file holds a complete JSON object of any kind."""
    try:
        return isinstance(json.loads(read_text_file(path)), dict)
    except (OSError, ValueError, RecursionError):
        return False


def save(path: Path, value: object) -> None:
    """Write a result so that a reader sees either all of it or the previous file."""
    text = json.dumps(to_json(value), indent=2, allow_nan=False)
    temporary = path.with_name(f".{path.name}{_TEMPORARY}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:  # as on a full disk
        temporary.unlink(missing_ok=True)
        raise


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


# ---------- The file by which a directory belongs to one plan, so that the same command resumes it

PLAN_FILE: Final = "plan.json"
RESUME_OR_RENAME: Final = "Repeat its settings to resume it, or name another directory with --out."

_P = TypeVar("_P")


def claim(root: Path, plan: _P, what: str) -> _P:
    """Make a directory belong to a plan, unless it belongs to one already.

    Args:
        root: The directory; it is made if it does not exist.
        plan: The plan.
        what: What is planned, such as ``comparison``.

    Returns:
        The plan that the directory belongs to now, which may be another one.

    Raises:
        PlanError: If it holds anything else.
    """
    if root.is_file():
        raise PlanError(f"{root} is a file.", next_step="Name a directory with --out.")
    if not holds_object(root / PLAN_FILE):
        unfinished = f".{PLAN_FILE}{_TEMPORARY}"  # of a process that ended while it wrote the plan
        if root.exists() and any(path.name != unfinished for path in root.iterdir()):
            raise PlanError(
                f"{root} is not empty and holds no {what}.",
                next_step="Name an empty or a new directory with --out.",
            )
        root.mkdir(parents=True, exist_ok=True)
        save(root / PLAN_FILE, plan)
        return plan
    try:
        return load(type(plan), root / PLAN_FILE)
    except ResultError as error:
        raise PlanError(
            f"{root} holds another {what}: {error.cause}", next_step=RESUME_OR_RENAME
        ) from error
