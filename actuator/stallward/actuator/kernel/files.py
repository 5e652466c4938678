"""Reading and writing files of the kernel.

Absence is a value: a file that is not there, whose group is gone or whose feature is off reads
as ``None``. Everything else that goes wrong is a :class:`KernelFileError` with the path in it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.refusals import next_step

ABSENT: Final = frozenset(
    {errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ESRCH, errno.EOPNOTSUPP}
)
"""Errors that mean "not there" (ENODEV: the group was removed; EOPNOTSUPP: see :data:`OFF`)."""
OFF: Final = errno.EOPNOTSUPP
"""The error of a file that is there and whose feature is switched off, such as PSI, or that does
not work in this kind of group, such as ``cgroup.procs`` of a threaded one."""

_CHUNK_BYTES: Final = 65536
_PIECE_BYTES: Final = 16384
"""Bytes of the first read of an open file; no file that is read every tick is longer."""
_WHOLE_BYTES: Final = 2048
"""A read that returns fewer bytes has reached the end: the kernel returns whole records and adds
the next one until a page is full."""


def failure(path: Path | str, error: OSError, verb: str) -> KernelFileError:
    """Return the error that says that ``verb`` (e.g. ``read``) failed for a file, and why."""
    number = error.errno or 0
    cause = f"cannot {verb} ({os.strerror(number)})"
    return KernelFileError(path, cause, next_step=next_step(number, path), number=number)


def _drain(fd: int) -> bytes:
    """Read the whole file from its start; seq files longer than a page come in pieces."""
    return _rest(fd, os.pread(fd, _CHUNK_BYTES, 0))


def _rest(fd: int, data: bytes) -> bytes:
    """Read the rest of a file whose first piece is ``data``; returns all of it."""
    got = len(data)
    while got >= _WHOLE_BYTES:  # one more read of each of forty files costs a tenth of a tick
        more = os.pread(fd, _CHUNK_BYTES, len(data))
        data += more
        got = len(more)
    return data


def read_bytes(path: Path | str) -> bytes | None:
    """Return the content of ``path``, or ``None`` if it is absent.

    Raises:
        KernelFileError: If the file is there but cannot be read.
    """
    return _read(path, _drain)


def read_start(path: Path | str, size: int) -> bytes | None:
    """Return at most the first ``size`` bytes of ``path``, or ``None`` if it is absent.

    Raises:
        KernelFileError: If the file is there but cannot be read.
    """
    return _read(path, lambda fd: os.pread(fd, size, 0))


def _read(path: Path | str, read: Callable[[int], bytes]) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise failure(path, error, "read") from error
    try:
        return read(fd)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise failure(path, error, "read") from error
    finally:
        os.close(fd)


def reading_error(path: Path | str) -> int:
    """Open and read ``path``; return the errno of what fails, 0 if nothing does.

    That a file exists does not say that its feature works.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.read(fd, 1)
        finally:
            os.close(fd)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def why_unreadable(path: Path) -> str:
    """Say why a file cannot be read, in a few words with its path; empty if it can."""
    number = reading_error(path)
    if number == 0:
        return ""
    if number == OFF:
        return f"{path} is there, and switched off in this kernel"
    return f"no {path}" if number in ABSENT else f"{path}: {os.strerror(number)}"


def read_text(path: Path) -> str | None:
    """The content of ``path`` without surrounding white space, or ``None`` if it is absent."""
    data = read_bytes(path)
    return None if data is None else data.decode("utf-8", "replace").strip()


def open_to_write(path: Path, value: str) -> int:
    """Open a file that must exist already, to write ``value``; return the descriptor.

    Raises:
        KernelFileError: With the errno in ``number``, also if the file is absent.
    """
    try:
        return os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except OSError as error:
        raise failure(path, error, f"open for writing {value!r}") from error


def write_text(path: Path, value: str) -> None:
    """Write ``value`` to a file that must exist already, in one write.

    Raises:
        KernelFileError: With the errno in ``number``, also if the file is absent.
    """
    fd = open_to_write(path, value)
    try:
        os.write(fd, value.encode())
    except OSError as error:
        raise failure(path, error, f"write {value!r}") from error
    finally:
        os.close(fd)


def overwritten(fd: int, value: str) -> bool:
    """Write ``value``, in one write, to a file that is open; return whether that worked."""
    with contextlib.suppress(OSError):  # it matters to files of a disk only
        os.ftruncate(fd, 0)
    try:
        os.pwrite(fd, value.encode(), 0)
    except OSError:
        return False
    return True


class FileWriter:
    """One kernel file that can be kept open, so that a write to it needs no new descriptor.

    Args:
        path: The file, which must exist already when it is written.
    """

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def open(self) -> None:
        """Open the file again, for the writes until :meth:`close`.

        Raises:
            KernelFileError: With the errno in ``number``, also if the file is absent.
        """
        self.close()
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise failure(self.path, error, "open for writing") from error

    def write(self, value: str) -> None:
        """Write ``value`` in one write; by the path if the file is not open or that fails.

        Raises:
            KernelFileError: With the errno in ``number``, also if the file is absent.
        """
        if self._fd < 0 or not overwritten(self._fd, value):
            write_text(self.path, value)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OpenFile:
    """One kernel file kept open for the hot path.

    The file is opened on first use, and again after it vanished, so that a group that was removed
    and made anew is read.

    Args:
        path: The file.
        error: The error class raised for anything but absence.
        one_piece: The kernel hands out the whole file in one read, however long it is (as it
            does for a file that is a single record: memory.stat, meminfo). Then no second read
            looks for its end, which would make the kernel write all of it again.
    """

    __slots__ = ("_error", "_fd", "_one_piece", "path")

    def __init__(
        self,
        path: Path,
        error: type[KernelFileError] = KernelFileError,
        *,
        one_piece: bool = False,
    ) -> None:
        self.path = path
        self._error = error
        self._one_piece = one_piece
        self._fd = -1

    def read(self) -> bytes | None:
        """The present content, or ``None`` if the file is absent now.

        Raises:
            KernelFileError: (or the class given) if it is there but cannot be read.
        """
        try:  # no check first: this is the shortest path when all is well
            data = os.pread(self._fd, _PIECE_BYTES, 0)
            if len(data) < _WHOLE_BYTES or (self._one_piece and len(data) < _PIECE_BYTES):
                return data
            return _rest(self._fd, data)
        except OSError:
            return self._read_anew()

    def _read_anew(self) -> bytes | None:
        """Open the file (again) and read it; raises what is wrong with a file that was open."""
        reopened = False
        while True:
            try:
                if self._fd < 0:
                    reopened = True
                    self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                return _drain(self._fd)
            except OSError as error:
                self.close()
                if error.errno not in ABSENT:
                    raise self._error(
                        self.path,
                        f"cannot read ({os.strerror(error.errno or 0)})",
                        next_step=next_step(error.errno or 0, self.path),
                        number=error.errno or 0,
                    ) from error
                if reopened:
                    return None

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
