"""What a page is that has no metrics: what a login, a proxy or a wrong address answers."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

_HEAD_BYTES: Final = 2048
_SEARCHED_BYTES: Final = 64 << 10
"""How far down the first metric may stand."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x9c", b"\x78\x01", b"\x78\xda")
"""How gzip, zstd and deflate begin."""
_PROTOBUF: Final = re.compile(
    rb"[\x80-\xff]{0,4}[\x00-\x7f]\x0a[\x01-\x7f][a-zA-Z_:].*\x12", re.DOTALL
)
"""The length of a message, and its first field: the name of a metric."""
_SAMPLE: Final = re.compile(
    rb"^[ \t]*(?:[a-zA-Z_:][\w:]*(?:\{.*\})?|\{.*\})[ \t]+[-+]?[0-9.NI{]", re.MULTILINE
)


class PageKind(Enum):
    """What a page is instead of an exposition."""

    EMPTY = "an empty page"
    COMPRESSED = "compressed data"
    HTML = "an HTML page"
    JSON = "JSON"
    PROTOBUF = "protobuf"
    UTF16 = "UTF-16 text"
    BINARY = "binary data"
    TEXT = "text without a single metric"


_HEADS: Final = (
    (PageKind.EMPTY, re.compile(rb"\s*\Z")),
    (PageKind.COMPRESSED, re.compile(b"|".join(map(re.escape, _COMPRESSED)))),
    (PageKind.UTF16, re.compile(rb"\xff\xfe|\xfe\xff|\x00[^\x00]|[^\x00]\x00[^\x00]\x00")),
    (PageKind.PROTOBUF, _PROTOBUF),
    (PageKind.BINARY, re.compile(rb".*?[\x00-\x08\x0e-\x1f]", re.DOTALL)),
    (PageKind.HTML, re.compile(rb"\s*<")),
    (PageKind.JSON, re.compile(rb'\s*(?:\[|\{\s*(?:\}|"[^"]*"\s*:))')),
)


def kind_of(body: bytes) -> PageKind | None:
    """Return what a page is; ``None`` if it is an exposition."""
    head = body[:_HEAD_BYTES].removeprefix(_BYTE_ORDER_MARK)
    for kind, pattern in _HEADS:
        if pattern.match(head):
            return kind
    return None if _SAMPLE.search(body, 0, _SEARCHED_BYTES) else PageKind.TEXT
