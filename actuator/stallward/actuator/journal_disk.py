"""The journal on disk: what a crash of everything leaves to be undone at the next start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from stallward.actuator.errors import JournalError
from stallward.actuator.journal_entries import (
    JournalEntry,
    Operation,
    SwapFile,
    from_fields,
    seal,
    to_line,
    unseal,
)
from stallward.actuator.kernelfile import read_text
from stallward.actuator.paths import Paths


class Journal:
    """Entries on disk, appended and synced before the change that they undo.

    A file from an earlier boot holds nothing of this kernel any more: only swap files survive
    a power cut, so only they are loaded from it.

    Args:
        path: The file; it is made with its folder when the first entry comes.
        paths: The kernel's files (for the boot's id).
    """

    def __init__(self, path: Path, paths: Paths) -> None:
        self.path = path
        self.damaged = 0
        """Lines that :meth:`load` could not use (a torn last line counts)."""
        self._paths = paths
        self._boot = read_text(paths.proc / "sys" / "kernel" / "random" / "boot_id") or ""
        self._fd = -1

    def append(self, entries: Iterable[JournalEntry], operation: Operation = "hold") -> None:
        """Write entries; when they are held, wait until that is on disk.

        Raises:
            JournalError: If that is not possible.
        """
        lines = [to_line(entry, operation) for entry in entries]
        try:
            if self._fd < 0:
                lines.insert(0, self._open())
            data = "".join(f"{line}\n" for line in lines if line).encode()
            while data:
                data = data[os.write(self._fd, data) :]
            if operation == "hold":  # a release that is lost costs undoing something twice
                os.fsync(self._fd)
        except OSError as error:
            raise JournalError(
                f"Cannot write the journal {self.path} ({error.strerror}).",
                next_step="Give a path on a disk with free space that you may write to.",
            ) from error

    def _open(self) -> str:
        """Open for appending; returns the header line if the file is new."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")  # ends the torn line of a crash
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            os.fsync(folder)
        os.close(folder)
        # Each start names its boot: entries after it belong to that boot.
        return seal({"boot": self._boot})

    def load(self) -> tuple[JournalEntry, ...]:
        """Everything held and not released, in order; empty if there is no file.

        Raises:
            JournalError: If the file cannot be read.
        """
        try:
            text = self.path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise JournalError(f"Cannot read {self.path} ({error.strerror}).") from error
        held: list[JournalEntry] = []
        self.damaged = 0
        this_boot = True
        for line in text.splitlines():
            try:
                fields = unseal(line)
                if set(fields) == {"boot"}:
                    this_boot = fields["boot"] == self._boot
                    continue
                operation, entry = from_fields(fields)
            except JournalError:
                self.damaged += 1
                continue
            if operation == "release":
                with contextlib.suppress(ValueError):
                    held.remove(entry)
            elif this_boot or isinstance(entry, SwapFile):
                held.append(entry)
        return tuple(held)

    def replace(self, entries: Iterable[JournalEntry]) -> None:
        """Hold ``entries`` and nothing else, in a file written anew.

        Raises:
            JournalError: If it cannot be written; then the old file stays.
        """
        entries = tuple(entries)
        if not entries:
            self.clear()
            return
        self.close()
        fresh = Journal(self.path.with_name(f"{self.path.name}.new"), self._paths)
        fresh.clear()
        fresh.append(entries)
        fresh.close()
        try:
            fresh.path.replace(self.path)
        except OSError as error:
            raise JournalError(f"Cannot replace {self.path} ({error.strerror}).") from error

    def empty(self) -> None:
        """Forget everything but keep the file, whose lock somebody relies on.

        Raises:
            JournalError: If it cannot be written.
        """
        self.close()
        try:
            os.truncate(self.path, 0)
        except OSError as error:
            raise JournalError(f"Cannot empty {self.path} ({error.strerror}).") from error

    def clear(self) -> None:
        """Forget everything: the file is removed.

        Raises:
            JournalError: If it cannot be removed.
        """
        self.close()
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise JournalError(f"Cannot remove {self.path} ({error.strerror}).") from error

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
