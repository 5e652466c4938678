"""Writes frozen dataclasses as plain tables and as TOML that the reader reads back."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def to_table(value: Any) -> dict[str, Any]:
    """The table of a dataclass, with only values that TOML and JSON can express.

    ``None`` and empty lists are left out where they are the default.
    """
    table: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        left_out = (item is None or item == ()) and item == field.default
        if field.init and not left_out:
            table[field.name] = _plain(item)
    return table


def to_toml(value: Any) -> str:
    """The TOML file of a dataclass; reading it gives the same value.

    Raises:
        ValueError: If a value is ``None`` and the default is not: TOML cannot express it.
    """
    return "\n".join(_lines(to_table(value), "")).lstrip("\n") + "\n"


def toml_literal(value: object) -> str:
    """One value as TOML writes it after a key.

    Raises:
        ValueError: If TOML cannot express it.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_literal, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {toml_literal(item)}" for key, item in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, str | Path):
        # JSON strings are TOML basic strings, except that TOML wants U+007F escaped.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    raise ValueError(f"TOML cannot express {value!r:.80}")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_table(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _lines(table: Mapping[str, Any], prefix: str) -> list[str]:
    plain, nested = [], []
    for key, value in table.items():
        name = f"{prefix}{_key(key)}"
        if isinstance(value, Mapping):
            nested += ["", f"[{name}]", *_lines(value, f"{name}.")]
        elif value and isinstance(value, list) and all(isinstance(v, Mapping) for v in value):
            for item in value:
                nested += ["", f"[[{name}]]", *_lines(item, f"{name}.")]
        else:
            plain.append(f"{_key(key)} = {toml_literal(value)}")
    return plain + nested


def _key(key: object) -> str:
    text = str(key)
    return text if _BARE_KEY.fullmatch(text) else toml_literal(text)
