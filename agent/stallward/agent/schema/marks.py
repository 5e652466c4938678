"""Marks for fields of dataclasses that lie in their file in a way of their own."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

T = TypeVar("T")

FLAT: Final = "flat"
OMITTED: Final = "omitted"
Flat = Annotated[T, FLAT]
"""A dataclass whose keys stand beside those of the other fields."""
Omitted = Annotated[T | None, OMITTED]
"""A field that is left out of the file where it is ``None``."""
