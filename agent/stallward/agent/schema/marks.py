"""Marks for fields of dataclasses that their file holds in a special way."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

T = TypeVar("T")

FLAT: Final = "flat"
OMITTED: Final = "omitted"
Flat = Annotated[T, FLAT]
"""A dataclass whose keys the file holds beside the keys of the other fields."""
Omitted = Annotated[T | None, OMITTED]
"""A field that is left out of the file where it is ``None``."""
