"""The frames file: checksummed records that survive a crash.

Layout, little endian: the magic ``SWTICK01``, then per frame ``u32 length | u32 crc32 |
payload``. A crash can only tear the last frame, and a reader stops there. This module needs the
standard library only, because the recorder process must stay small.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from stallward.actuator.errors import FramesError
from stallward.agent.schema.file_kinds import HEAD_BYTES, other_kind

MAGIC: Final = b"SWTICK01"
FRAMES_NAME: Final = "ticks.frames"
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The longest frame; a length field above it is not the start of a frame. Neither is one of 0: a
power cut may leave zeros, whose checksum would be right."""
_HOW_TO_GIVE: Final = "Give the ticks.frames of a recording directory."
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


def scan(stream: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the payloads of all whole frames of an open file.

    Raises:
        FramesError: If it is not a frames file; the message names ``path``.
    """
    magic = stream.read(len(MAGIC))
    if magic != MAGIC and MAGIC[: len(magic)] != magic:
        other = other_kind(magic + stream.read(HEAD_BYTES - len(magic)))
        raise FramesError(
            f"{path} is not a frames file ({other or f'it starts with {magic!r}'}).",
            next_step=other.next_step if other and other.next_step else _HOW_TO_GIVE,
        )
    while True:
        header = stream.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        length, checksum = _HEADER.unpack(header)
        if not 0 < length <= MAX_FRAME_BYTES:
            return
        payload = stream.read(length)
        if len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield payload


def open_frames(path: Path) -> BinaryIO:
    """Open a frames file to read it.

    Raises:
        FramesError: If it cannot be read.
    """
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
    with open_frames(path) as stream:
        yield from scan(stream, path)


def extent(path: Path) -> FramesExtent:
    """Return how many whole frames a file holds and how much of it is torn.

    Raises:
        FramesError: If the file cannot be read or is not a frames file.
    """
    with open_frames(path) as stream:
        return _extent(stream, path)


def _extent(stream: BinaryIO, path: Path) -> FramesExtent:
    frames, whole = 0, len(MAGIC)
    for payload in scan(stream, path):
        frames += 1
        whole += _HEADER.size + len(payload)
    size = os.fstat(stream.fileno()).st_size
    whole = min(whole, size)
    return FramesExtent(frames=frames, whole_bytes=whole, torn_bytes=size - whole)


class FrameWriter:
    """Appends frames to a file, after it has cut off a torn tail that a crash left.

    Each frame is in the page cache when :meth:`append` returns (one ``write``, without a buffer),
    and on the disk when :meth:`sync` returns.

    Attributes:
        size_bytes: The length of the file.

    Raises:
        FramesError: If the file cannot be written, or is not a frames file of this user's.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, flags, 0o644)
        except OSError as error:
            link = " It is a symbolic link, which is not followed." if path.is_symlink() else ""
            raise FramesError(
                f"{path} cannot be written: {error.strerror}.{link}",
                next_step="Choose a record directory that this user can write.",
            ) from error
        try:
            self._check_own()
            self.size_bytes = self._cut()
        except FramesError:
            os.close(self._fd)
            raise

    def _check_own(self) -> None:
        """Refuse what another user may have put where the file belongs."""
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in {0, os.geteuid()}:
            raise FramesError(
                f"{self._path} is not used: it is no regular file, or belongs to another user "
                f"({status.st_uid}).",
                next_step="Move it away, and let only this user write its directory.",
            )

    def _cut(self) -> int:
        """Cut off a torn tail, and begin an empty file; returns the length."""
        with open(self._fd, "rb", closefd=False) as stream:
            whole = _extent(stream, self._path).whole_bytes
        if whole < len(MAGIC):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, MAGIC, 0)
            whole = len(MAGIC)
        else:
            os.ftruncate(self._fd, whole)
        os.lseek(self._fd, whole, os.SEEK_SET)
        return whole

    def append(self, payload: bytes) -> None:
        """Append one frame.

        Raises:
            FramesError: If the disk is full or failing; the frames before stay whole.
        """
        frame = memoryview(encode_frame(payload))
        self.size_bytes += len(frame)
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
