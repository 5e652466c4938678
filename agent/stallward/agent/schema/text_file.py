"""Reads the text files that people and editors write; what is not UTF-8 is named."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.agent.schema.file_kinds import HEAD_BYTES, other_kind

_MAX_BYTES: Final = 256 << 20
"""No text file of stallward's is larger."""


def read_text_file(path: Path) -> str:
    """The text of a file; the byte-order mark that some editors write does not belong to it.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not text in UTF-8. The message says what it is.
    """
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES >> 20} MiB")
    return decode_text(data)


def decode_text(data: bytes) -> str:
    """The text of the bytes of a file.

    Raises:
        ValueError: If they are not text in UTF-8. The message says what they are.
    """
    other = other_kind(data[:HEAD_BYTES])
    if other is not None:
        raise other
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise ValueError(
            f"line {line} holds the byte 0x{byte:02x}, which is not UTF-8; save it as UTF-8"
        ) from error
