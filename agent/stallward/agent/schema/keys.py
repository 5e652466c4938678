"""The keys of a dataclass in its file, from its fields and their marks."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from stallward.agent.schema.describe import expectation
from stallward.agent.schema.marks import FLAT, OMITTED


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a dataclass in its file."""

    kind: Any
    """The type of the value, with what ``Annotated`` adds."""
    required: bool
    """Whether the file must have it."""
    flat: bool = False
    """Whether the file has the keys of the value in place of this key."""
    omitted: bool = False
    """Whether the file has no such key where the value is ``None``."""


@functools.cache
def fields_of(cls: Any) -> dict[str, Key]:
    """The fields of a dataclass by name, without those that it computes itself."""
    hints = get_type_hints(cls, include_extras=True)
    fields = (field for field in dataclasses.fields(cls) if field.init)
    return {field.name: _key(field, hints[field.name]) for field in fields}


@functools.cache
def keys_of(cls: Any) -> dict[str, Key]:
    """The keys of a dataclass by name, with the keys of its flat fields among them."""
    keys: dict[str, Key] = {}
    for name, field in fields_of(cls).items():
        keys |= keys_of(bare_type(field.kind)) if field.flat else {name: field}
    return keys


def bare_type(kind: Any) -> Any:
    """A type without what ``Annotated`` adds."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def is_literal(key: Key | None) -> bool:
    """Whether the value of a key is a ``Literal``: one of a few values."""
    return key is not None and get_origin(key.kind) is Literal


def _key(field: dataclasses.Field[Any], hint: Any) -> Key:
    has_no_default = field.default is field.default_factory is dataclasses.MISSING
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return Key(
        kind=hint,
        required=has_no_default or expectation(hint).required,
        flat=FLAT in marks,
        omitted=OMITTED in marks,
    )
