"""What /proc/PID/smaps says of each mapping. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError

RSS: Final = b"Rss"
SWAP: Final = b"Swap"
REFERENCED: Final = b"Referenced"
_KIB: Final = 1024
_LINES: Final = {
    key: re.compile(rb"^(?:([0-9a-f]{1,16})-[0-9a-f]{1,16} |%b: *(.*)$)" % key, re.MULTILINE)
    for key in (RSS, SWAP, REFERENCED)
}
_SIZE: Final = re.compile(rb"(\d{1,15}) kB")


def parse_smaps(content: bytes, key: bytes, path: Path | str) -> Mapping[int, int]:
    """The bytes of each mapping under a key, by the mapping's first address.

    Args:
        content: The file.
        key: ``RSS``, ``SWAP`` or ``REFERENCED``.
        path: The file's path, for errors.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    if content and not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    found: dict[int, int] = {}
    start = -1
    for match in _LINES[key].finditer(content):
        if match[1] is not None:
            start = int(match[1], 16)
            continue
        size = _SIZE.fullmatch(match[2])
        if start < 0 or size is None:
            raise SensorError(path, f"not a size in kB: {match[0][:60]!r}")
        found[start] = int(size[1]) * _KIB
    return found
