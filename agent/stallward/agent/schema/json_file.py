"""Reads JSON that another version or a person wrote; every fault is the same kind of error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stallward.agent.schema.text_file import read_text_file


def read_json_file(path: Path) -> object:
    """The value of a JSON file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: As by :func:`read_json`, or if the file is no text in UTF-8.
    """
    return read_json(read_text_file(path))


def read_json(text: str) -> object:
    """The value of a JSON text.

    Raises:
        ValueError: If the text is not JSON, or a key stands twice in one object.
    """
    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("objects or lists are nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {key!r:.80} is there twice")
        table[key] = value
    return table
