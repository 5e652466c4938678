"""A record of bounded size: when its frames file is full, it is set aside as a numbered segment.

``ticks.frames`` is the file that is being written, ``ticks.frames.000001`` the first that was set
aside. When all of them would become larger than the bound, the oldest is removed: what happened
last is what is looked for. One file is at most ``SEGMENT_BYTES`` long, so that no start reads more
than that to find the end of the last whole frame. This module needs the standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from stallward.actuator.errors import FramesError
from stallward.actuator.record.frames import (
    FrameWriter,
    encode_frame,
    open_frames,
    read_frames,
    scan,
)

SEGMENT_BYTES: Final = 64 << 20
_LEAST_SEGMENTS: Final = 4
"""A small bound is divided into so many files, so that most of it is kept at any time."""


def segments(path: Path) -> tuple[Path, ...]:
    """The files that were set aside from the frames file ``path``, oldest first."""
    name = re.compile(re.escape(path.name) + r"\.[0-9]{6,}")
    try:
        beside = [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name)]
    except OSError:
        return ()
    return tuple(sorted(beside, key=_number))


def read_segments(path: Path) -> Iterator[bytes]:
    """Yield the payloads of all whole frames of a record, its segments first.

    Args:
        path: The frames file; it may be in use.

    Raises:
        FramesError: If a file cannot be read or is not a frames file.
    """
    with open_frames(path) as current:
        for segment in segments(path):
            try:
                if not _is(segment, current):  # else it was set aside just now
                    yield from read_frames(segment)
            except FramesError:
                if segment.exists():  # else it was removed before its turn, as the oldest
                    raise
        yield from scan(current, path)


def _is(path: Path, stream: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    except OSError:
        return False


class SegmentWriter:
    """Appends frames to a record of bounded size.

    Args:
        path: The frames file.
        max_bytes: The most bytes that its segments and the file itself have together.

    Raises:
        FramesError: If a file cannot be written, or is not a frames file of this user's.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._segment_bytes = min(SEGMENT_BYTES, max_bytes // _LEAST_SEGMENTS)
        if _size(path) > self._segment_bytes:
            self._set_aside()
        self._remove_oldest()
        self._writer = FrameWriter(path)

    def append(self, payload: bytes) -> None:
        """Append one frame.

        Raises:
            FramesError: If the disk is full or failing; the frames before stay whole.
        """
        if self._writer.size_bytes + len(encode_frame(b"")) + len(payload) > self._segment_bytes:
            self._writer.close()
            self._set_aside()
            self._remove_oldest()
            self._writer = FrameWriter(self._path)
        self._writer.append(payload)

    def sync(self) -> None:
        """Write everything appended so far to the disk."""
        self._writer.sync()

    def close(self) -> None:
        """Sync and close the file."""
        self._writer.close()

    def _set_aside(self) -> None:
        last = segments(self._path)[-1:]
        number = 1 + (_number(last[0]) if last else 0)
        try:
            self._path.rename(self._path.with_name(f"{self._path.name}.{number:06d}"))
        except OSError as error:
            raise FramesError(
                f"{self._path} is full and cannot be renamed: {error.strerror}.",
                next_step="Choose a record directory that this user can write.",
            ) from error

    def _remove_oldest(self) -> None:
        """Remove segments until a whole further one fits."""
        kept = list(segments(self._path))
        left_bytes = sum(map(_size, kept))
        while kept and left_bytes + self._segment_bytes > self._max_bytes:
            oldest = kept.pop(0)
            left_bytes -= _size(oldest)
            try:
                oldest.unlink(missing_ok=True)
            except OSError as error:
                raise FramesError(
                    f"{oldest}, the oldest of a full record, cannot be removed: {error.strerror}."
                ) from error


def _number(segment: Path) -> int:
    return int(segment.name.rpartition(".")[2])


def _size(path: Path) -> int:
    """The size of a file itself, not of what it may point to; 0 if there is none."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0
