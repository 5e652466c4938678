"""A trace as CSV: each tick in one write, so that a trace that is killed keeps what was read."""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

from stallward.agent.printable import printable
from stallward.lens.errors import LensError
from stallward.lens.trace.columns import Value
from stallward.lens.trace.tick import Layout, Tick


def rows_of(path: Path) -> Path:
    """The CSV file to which the rows of a trace go until it is made a Parquet file."""
    return path.with_name(f"{path.name}.csv")


class CsvSink:
    """Writes a trace to a file or to stdout.

    Args:
        fd: Descriptor of the file; closed with this.
        name: What the file is called in errors.
        layout: Which columns are written.
        unread: Is called when nobody reads the pipe any more, as after ``head``.
        made: The file, if this made it; without a tick it is removed again.
    """

    def __init__(
        self,
        fd: int,
        name: str,
        layout: Layout,
        unread: Callable[[], None] | None = None,
        *,
        made: Path | None = None,
    ) -> None:
        self._unread = unread
        self._made = made
        self._fd = fd
        self._name = name
        self._layout = layout
        self._begun = False

    @classmethod
    def create(cls, path: Path, layout: Layout) -> CsvSink:
        """Make a file, or write it again: what it holds goes when the first tick comes.

        Raises:
            LensError: If it cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd, made = _open(path)
        except OSError as error:
            raise LensError(
                f"{path} cannot be written: {error.strerror}.", next_step="Give another --out."
            ) from error
        return cls(fd, str(path), layout, made=path if made else None)

    def take(self, tick: Tick) -> None:
        """Write the rows of a tick.

        Raises:
            LensError: If they cannot be written; what was written before is kept.
        """
        header: list[list[Value]] = [] if self._begun else [list(self._layout.names)]
        if not self._begun and stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.ftruncate(self._fd, 0)  # not before: what is refused must not cost an older trace
        self._write(header + list(self._layout.lines(tick)))
        self._begun = True

    def _write(self, lines: list[list[Value]]) -> None:
        text = io.StringIO()
        # A process's name is whatever it calls itself; on stdout it would reach a terminal.
        shown = ([printable(v) if isinstance(v, str) else v for v in line] for line in lines)
        csv.writer(text, lineterminator="\n").writerows(shown)
        data = text.getvalue().encode()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            if isinstance(error, BrokenPipeError) and self._unread is not None:
                self._unread()
                return
            raise LensError(
                f"{self._name} cannot be written on: {error.strerror}.",
                next_step="What was written before is kept.",
            ) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
        if self._made is not None and not self._begun:
            self._made.unlink(missing_ok=True)


def _open(path: Path) -> tuple[int, bool]:
    """Open a file to write at its end; returns the descriptor, and whether it was made."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644), True
    except FileExistsError:
        return os.open(path, flags | os.O_CREAT, 0o644), False
