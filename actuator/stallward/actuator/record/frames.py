"""The frames file: checksummed records that survive a crash.

Layout, little endian: the magic ``SWTICK01``, then per frame ``u32 length | u32 crc32 |
payload``. A crash can only tear the last frame, and a reader stops there. This module needs the
standard library only, because the recorder process must stay small.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from stallward.actuator.errors import FramesError

MAGIC: Final = b"SWTICK01"
FRAMES_NAME: Final = "ticks.frames"
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The longest frame; a length field above it is not the start of a frame."""
_HEADER: Final = struct.Struct("<II")


@dataclass(frozen=True, slots=True, kw_only=True)
class FramesExtent:
    """How much of a frames file is whole."""

    frames: int
    """How many whole frames there are."""
    whole_bytes: int
    """The length up to the end of the last whole frame."""
    torn_bytes: int
    """The length of the torn rest; 0 after an orderly stop."""


def encode_frame(payload: bytes) -> bytes:
    """Return the frame that holds ``payload``."""
    return _HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def _scan(stream: BinaryIO, path: Path) -> Iterator[bytes]:
    magic = stream.read(len(MAGIC))
    if magic != MAGIC and MAGIC[: len(magic)] != magic:
        raise FramesError(
            f"{path} is not a frames file (it starts with {magic!r}).",
            next_step="Give the ticks.frames of a recording directory.",
        )
    while True:
        header = stream.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        length, checksum = _HEADER.unpack(header)
        if length > MAX_FRAME_BYTES:
            return
        payload = stream.read(length)
        if len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield payload


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise FramesError(
            f"{path} cannot be read: {error.strerror}.",
            next_step="Check the path and its permissions.",
        ) from error


def read_frames(path: Path) -> Iterator[bytes]:
    """Yield the payloads of all whole frames, in order; stop cleanly at a torn tail.

    Raises:
        FramesError: If the file cannot be read or is not a frames file.
    """
    with _open(path) as stream:
        yield from _scan(stream, path)


def extent(path: Path) -> FramesExtent:
    """Return how many whole frames a file holds and how much of it is torn.

    Raises:
        FramesError: If the file cannot be read or is not a frames file.
    """
    with _open(path) as stream:
        frames, whole = 0, len(MAGIC)
        for payload in _scan(stream, path):
            frames += 1
            whole += _HEADER.size + len(payload)
        size = stream.seek(0, io.SEEK_END)
    whole = min(whole, size)
    return FramesExtent(frames=frames, whole_bytes=whole, torn_bytes=size - whole)


class FrameWriter:
    """Appends frames to a file, after it has cut off a torn tail that a crash left.

    Each frame is in the page cache when :meth:`append` returns (one ``write``, without a buffer),
    and on the disk when :meth:`sync` returns.

    Raises:
        FramesError: If the file cannot be written or is not a frames file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise FramesError(
                f"{path} cannot be written: {error.strerror}.",
                next_step="Choose a record directory that this user can write.",
            ) from error
        try:
            whole = extent(path).whole_bytes
            if whole < len(MAGIC):
                os.ftruncate(self._fd, 0)
                os.write(self._fd, MAGIC)
            else:
                os.ftruncate(self._fd, whole)
                os.lseek(self._fd, 0, os.SEEK_END)
        except FramesError:
            os.close(self._fd)
            raise

    def append(self, payload: bytes) -> None:
        """Append one frame.

        Raises:
            FramesError: If the disk is full or failing; the frames before stay whole.
        """
        frame = memoryview(encode_frame(payload))
        try:
            while frame:
                frame = frame[os.write(self._fd, frame) :]
        except OSError as error:
            raise FramesError(
                f"{self._path} cannot be extended: {error.strerror}.",
                next_step="Free space on its file system.",
            ) from error

    def sync(self) -> None:
        """Write everything appended so far to the disk."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Sync and close the file."""
        self.sync()
        os.close(self._fd)
