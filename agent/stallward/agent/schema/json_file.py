"""Reads JSON that another version or a person wrote; every fault is the same kind of error."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str) -> object:
    """The value of a JSON file.

    Raises:
        ValueError: If the text is not JSON, or a key stands twice in one object.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("objects or lists are nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {key!r:.80} is there twice")
        table[key] = value
    return table
