"""The journal on disk, from which the next start undoes changes after a crash of all processes.

An entry is in the file before the change that it undoes. For a setting of the kernel it is enough
that the kernel has taken the write: the file outlives every process, and the setting is lost with
the kernel. Only entries of things that survive a power cut (a swap file, a folder) are synced
first, so a disk that takes seconds to sync delays nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from stallward.actuator.errors import JournalError
from stallward.actuator.journal.entries import (
    JournalEntry,
    Operation,
    OwnedFolder,
    SwapFile,
    from_fields,
    seal,
    to_line,
    unseal,
)
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.paths import Paths
from stallward.agent.believed_file import check_believed
from stallward.agent.errors import UnbelievedFileError

LASTING: Final = (SwapFile, OwnedFolder)
"""Entries of things that survive a power cut; all others are settings of the running kernel."""
_SPARE_LINES: Final = 400
"""How many more lines than held entries the file may have before it is written anew."""


class Journal:
    """Entries on disk. A file that does not match them is written again before the next entry.

    Args:
        path: The file; it is made with its folder when the first entry comes.
        paths: The kernel's files (for the boot's id).
        claimed: Whether a lock on the file itself marks it as in use. Then it is never replaced
            by another file, and it is an error if it was removed.
    """

    def __init__(self, path: Path, paths: Paths, *, claimed: bool = False) -> None:
        self.path = path
        self.torn = 0
        """Lines that a crash cut short, so that their entries were never confirmed."""
        self.unreadable: tuple[str, ...] = ()
        """Complete lines that :meth:`load` could not use: damaged, or of another version."""
        self._claimed = claimed
        self._boot = read_text(paths.proc / "sys" / "kernel" / "random" / "boot_id") or ""
        self._fd = -1
        self._held: dict[JournalEntry, None] = {}
        self._lines = 0
        self._stale = False
        """Whether the file does not match the held entries."""

    def append(self, entries: Iterable[JournalEntry], operation: Operation = "hold") -> None:
        """Write that entries are held, or are released.

        Raises:
            JournalError: If they cannot be written; then entries to hold are not held.
        """
        entries = tuple(entries)
        try:
            if self._fd < 0:
                self._open()
            held = self._held | dict.fromkeys(entries)
            if operation == "release":
                held = {entry: None for entry in self._held if entry not in set(entries)}
                self._held = held  # if the file keeps an entry too long, it is undone twice
            much = self._lines + len(entries) > len(held) + _SPARE_LINES
            if self._stale or self._taken_away() or (much and not self._claimed):
                self._write_anew(held)
            else:
                self._write([to_line(entry, operation) for entry in entries])
                if operation == "hold":
                    self._sync(entries)
            self._held = held
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> JournalError:
        return JournalError(
            f"Cannot write the journal {self.path} ({error.strerror}).",
            next_step="Give a path on a disk with free space that you may write to.",
        )

    def _taken_away(self) -> bool:
        """Whether another file, or none, is at the path now."""
        try:
            there = self.path.stat(follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            taken = True
        else:
            taken = not os.path.samestat(there, os.fstat(self._fd))
        if taken and self._claimed:
            raise OSError(errno.ENOENT, "it was taken away")
        return taken

    def _open(self) -> None:
        """Open the file for appending; entries that it has stay held."""
        if self._stale and not self._claimed:
            return  # the file is written anew
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        if not self._claimed:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags |= os.O_CREAT
        self._fd = os.open(self.path, flags, 0o600)
        try:
            if self._stale:
                os.ftruncate(self._fd, 0)
                self._stale = False
            size = os.fstat(self._fd).st_size
            if not size and self._held:  # it was removed while it was closed
                self._stale = True
            elif size:
                self._held = dict.fromkeys(self.load())
                if os.pread(self._fd, 1, size - 1) != b"\n":
                    os.write(self._fd, b"\n")  # ends the torn line of a crash
            # Each start names its boot: entries after it belong to that boot.
            self._write([seal({"boot": self._boot})])
        except (OSError, JournalError):
            self.close()
            raise

    def _sync(self, entries: Iterable[JournalEntry]) -> None:
        """Sync the file if any of ``entries`` must be undone after a power cut."""
        if not any(isinstance(entry, LASTING) for entry in entries):
            return
        os.fsync(self._fd)
        with contextlib.suppress(OSError):
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
            with contextlib.suppress(OSError):
                os.fsync(folder)
            os.close(folder)

    def _write(self, lines: list[str]) -> None:
        """Append whole lines or nothing: half a line would spoil the next one as well."""
        data = "".join(f"{line}\n" for line in lines).encode()
        size = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            try:
                os.ftruncate(self._fd, size)
            except OSError:
                self.close()  # opening it again ends the torn line
            raise
        self._lines += len(lines)

    def _write_anew(self, held: Iterable[JournalEntry]) -> None:
        """Replace the file by one with only the entries ``held``."""
        entries = tuple(held)
        path, fresh = self.path, self.path.with_name(f"{self.path.name}.new")
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        old, self._fd = self._fd, os.open(fresh, flags, 0o600)
        try:
            self._write([seal({"boot": self._boot}), *(to_line(entry) for entry in entries)])
            fresh.replace(path)
            self._sync(entries)
        except OSError:
            self.close()
            self._fd = old
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
        if old >= 0:
            os.close(old)
        self._lines, self._stale = len(entries) + 1, False

    def load(self) -> tuple[JournalEntry, ...]:
        """Read the entries that are held and not released, in order; none if there is no file.

        Raises:
            JournalError: If the file cannot be read, or other users may have written it.
        """
        held: dict[JournalEntry, None] = {}
        unreadable = []
        self.torn = 0
        this_boot = True
        for line in self._read().splitlines():
            try:
                fields = unseal(line)
                if set(fields) == {"boot"}:
                    this_boot = fields["boot"] == self._boot
                    continue
                operation, entry = from_fields(fields)
            except JournalError:
                if line.endswith("}"):
                    unreadable.append(line)
                else:
                    self.torn += bool(line)
                continue
            if operation == "release":
                held.pop(entry, None)
            elif this_boot or isinstance(entry, LASTING):
                held.setdefault(entry)
        self.unreadable = tuple(unreadable)
        return tuple(held)

    def _read(self) -> str:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(self.path, flags)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise JournalError(f"Cannot read {self.path} ({error.strerror}).") from error
        try:
            self._check_trusted(os.fstat(fd))
            with open(fd, encoding="utf-8", errors="replace", newline="\n", closefd=False) as file:
                return file.read()
        except OSError as error:
            raise JournalError(f"Cannot read {self.path} ({error.strerror}).") from error
        finally:
            os.close(fd)

    def _check_trusted(self, status: os.stat_result) -> None:
        """Refuse a file that other users can write: it decides what is written to the kernel."""
        if not stat.S_ISREG(status.st_mode):
            raise JournalError(f"Cannot read {self.path} (it is not a regular file).")
        try:
            check_believed(self.path, status)
        except UnbelievedFileError as error:
            step = "Look at what it holds; then remove it, or chown it and chmod 600."
            raise JournalError(error.cause, next_step=step) from error

    def set_aside(self) -> Path | None:
        """Keep the unreadable lines in a file beside this one; returns its path if it was made."""
        path = self.path.with_name(f"{self.path.name}.unreadable")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(path, flags, 0o600)
            try:
                os.write(fd, "".join(f"{line}\n" for line in self.unreadable).encode())
            finally:
                os.close(fd)
        except OSError:
            return None
        return path

    def replace(self, entries: Iterable[JournalEntry]) -> None:
        """Hold ``entries`` and nothing else.

        Raises:
            JournalError: If the file cannot be written; it is written before the next entry.
        """
        entries = tuple(entries)
        if not entries:
            self.clear()
            return
        self._held, self._stale = dict.fromkeys(entries), True
        try:
            self._write_anew(entries)
        except OSError as error:
            raise self._failure(error) from error

    def empty(self) -> None:
        """Forget all entries but keep the file, since its lock may be relied on.

        Raises:
            JournalError: If the file cannot be written; it is written before the next entry.
        """
        self._forget(lambda: os.truncate(self.path, 0))

    def clear(self) -> None:
        """Forget all entries and remove the file.

        Raises:
            JournalError: If it cannot be removed; it is written again before the next entry.
        """
        self._forget(self.path.unlink)

    def _forget(self, action: Callable[[], object]) -> None:
        self.close()
        self._held, self._stale = {}, True
        try:
            action()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise JournalError(f"Cannot empty {self.path} ({error.strerror}).") from error
        self._stale = False

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._lines = -1, 0
