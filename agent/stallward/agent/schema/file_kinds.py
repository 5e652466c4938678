"""What a file is that was taken for another one, told by its first bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

HEAD_BYTES: Final = 512
"""How many bytes of a file are looked at."""
_STARTS: Final = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "Run `git lfs pull`."),
    (b"version https://hawser", "a Git LFS pointer, not the file itself", "Run `git lfs pull`."),
    (b"/annex/objects/", "a git-annex pointer, not the file itself", "Run `git annex get`."),
    (b"\xff\xfe\0\0", "UTF-32 text", "Save it as UTF-8."),
    (b"\0\0\xfe\xff", "UTF-32 text", "Save it as UTF-8."),
    (b"\xff\xfe", "UTF-16 text", "Save it as UTF-8."),
    (b"\xfe\xff", "UTF-16 text", "Save it as UTF-8."),
    (b"PK\x03\x04", "a ZIP archive, which is how PyTorch and stable-baselines3 save models", ""),
    (b"\x1f\x8b", "compressed by gzip", "Unpack it with `zcat` or `gunzip`."),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "Unpack it with `unzstd`."),
    (b"BZh", "compressed by bzip2", "Unpack it with `bunzip2`."),
    (b"\xfd7zXZ\0", "compressed by xz", "Unpack it with `unxz`."),
)
_HTML: Final = (b"<!doctype html", b"<html")
_PICKLE_PROTOCOLS: Final = range(2, 6)


class OtherKindError(ValueError):
    """Raised when a file is of another kind than its reader takes.

    Args:
        what: What it is, e.g. "a Git LFS pointer, not the file itself".
        next_step: What the user can do; empty if only the reader knows.
    """

    def __init__(self, what: str, next_step: str) -> None:
        super().__init__(f"it is {what}")
        self.what = what
        self.next_step = next_step


def other_kind(head: bytes) -> OtherKindError | None:
    """The error that names the kind of a file which no reader of stallward's takes.

    Args:
        head: The first ``HEAD_BYTES`` of the file, or all of it if it is shorter.

    Returns:
        ``None`` if its kind cannot be told.
    """
    for start, what, next_step in _STARTS:
        if head.startswith(start):
            return OtherKindError(what, next_step)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_HTML):
        what = "an HTML page, perhaps of a login or an error"
        return OtherKindError(what, "Download the file itself.")
    if len(head) > 1 and head[0] == 0x80 and head[1] in _PICKLE_PROTOCOLS:
        return OtherKindError("a Python pickle", "")
    return OtherKindError("UTF-16 text", "Save it as UTF-8.") if _is_utf16(head) else None


def other_kind_of(path: Path) -> OtherKindError | None:
    """Like :func:`other_kind`, of a file; ``None`` also if it cannot be read."""
    try:
        with path.open("rb") as file:
            return other_kind(file.read(HEAD_BYTES))
    except OSError:
        return None


def next_step_of(error: Exception, otherwise: str) -> str:
    """The next step for a file that could not be read: its kind knows better than its reader."""
    return getattr(error, "next_step", "") or otherwise


def _is_utf16(head: bytes) -> bool:
    """Whether this is UTF-16 text without a mark: ASCII characters with a zero beside each."""
    first, second = head[0:4:2], head[1:4:2]
    low, high = (first, second) if second == b"\0\0" else (second, first)
    return high == b"\0\0" and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in low)
