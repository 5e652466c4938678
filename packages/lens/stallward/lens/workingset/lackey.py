"""Reading Valgrind Lackey's text as chunks of references.

Lackey (``valgrind --tool=lackey --trace-mem=yes``) writes a line for each reference::

    I  0401ab70,3
     S 1fff000758,8

Valgrind's own lines (``==1234== ...``) come before, after and between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.schema.file_kinds import HEAD_BYTES, other_kind
from stallward.lens.errors import TraceError
from stallward.lens.workingset.lackey_kernel import (
    DIGITS,
    MORE,
    SHORTEST_LINE_BYTES,
    parse_references,
)

CHUNK_BYTES: Final = 256 * 1024
"""How much text is read at once; what is made of it stays in the second-level cache."""
_LONGEST_LINE_BYTES: Final = 4096
_SHOWN_BYTES: Final = 60
_VALGRIND_LINE: Final = re.compile(rb"(==|--|\*\*)(\d+)\1")

ReadInto = Callable[[memoryview], int]
"""Fills a buffer with the next bytes and returns how many; 0 at the end. As ``readinto`` of a
file does."""


@dataclass(frozen=True, slots=True)
class References:
    """Some references, in the order in which they were made."""

    addresses: NDArray[np.int64]
    """The first byte of each; addresses from 2^63 on are negative."""
    sizes: NDArray[np.int32]
    """Bytes."""
    classes: NDArray[np.uint8]
    """Indices of ``CLASS_NAMES``."""


class LackeyReader:
    """Reads references from Lackey's text.

    Attributes:
        lines: How many lines have been read.
        pid: The process that was traced, if Valgrind's own lines say it.
    """

    def __init__(self, read_into: ReadInto, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._read_into = read_into
        self._chunk_bytes = chunk_bytes
        self._text = bytearray(chunk_bytes + _LONGEST_LINE_BYTES)
        most = len(self._text) // SHORTEST_LINE_BYTES + 1
        self._addresses = np.empty(most, dtype=np.int64)
        self._sizes = np.empty(most, dtype=np.int32)
        self._classes = np.empty(most, dtype=np.uint8)
        self.lines = 0
        self.pid: int | None = None
        self._open = False
        """Whether references came after the last line of Valgrind's own."""

    def __iter__(self) -> Iterator[References]:
        """Yield the references chunk by chunk.

        The arrays of a chunk are overwritten by the next one.

        Raises:
            TraceError: If the text is truncated, is none of Lackey's, or is of several processes.
                What comes before has been yielded then.
        """
        view = memoryview(self._text)
        text = np.frombuffer(self._text, dtype=np.uint8)
        end = 0
        while got := self._read_into(view[end : end + self._chunk_bytes]):
            if not end and not self.lines:
                self._check_kind(bytes(self._text[: min(got, HEAD_BYTES)]))
            end += got
            begin = 0
            while True:
                begin, count, why = parse_references(
                    text, begin, end, DIGITS, self._addresses, self._sizes, self._classes
                )
                if count:
                    self.lines += count
                    self._open = True
                    yield References(
                        self._addresses[:count], self._sizes[:count], self._classes[:count]
                    )
                if why == MORE:
                    break
                line_end = self._text.find(b"\n", begin, end)
                if line_end < 0:
                    if end - begin >= _LONGEST_LINE_BYTES:
                        self._refuse(bytes(self._text[begin:end]))
                    break
                self._valgrind_line(bytes(self._text[begin:line_end]))
                begin = line_end + 1
            rest = end - begin
            self._text[:rest] = self._text[begin:end]
            end = rest
        self._close(bytes(self._text[:end]))

    def _check_kind(self, head: bytes) -> None:
        """Refuse a file of another kind by its first bytes."""
        other = other_kind(head)
        if other is not None:
            raise TraceError(
                f"The trace is {other.what}.",
                next_step=other.next_step or "Give the text that Valgrind wrote.",
            )

    def _valgrind_line(self, line: bytes) -> None:
        """Take a line that is not a reference."""
        found = _VALGRIND_LINE.match(line)
        if found is None:
            self._refuse(line)
            return
        self.lines += 1
        self._open = False
        pid = int(found[2])
        if self.pid is not None and pid != self.pid:
            raise TraceError(
                f"Line {self.lines} is of process {pid}, but the trace is of process {self.pid}.",
                next_step="Trace one process: leave out --trace-children and add "
                "--child-silent-after-fork=yes, or give each process a file of its own "
                "(--log-file=trace.%p).",
            )
        self.pid = pid

    def _close(self, rest: bytes) -> None:
        """Look at what is left when the input has ended."""
        if rest:
            raise TraceError(
                f"The trace ends within line {self.lines + 1} ({_shown(rest)}).",
                next_step="It was cut short; record it again, or take the part that was read.",
            )
        if self._open and self.pid is not None:
            raise TraceError(
                f"The trace ends after line {self.lines} without Valgrind's closing lines.",
                next_step="It was cut short; record it again, or take the part that was read.",
            )

    def _refuse(self, line: bytes) -> None:
        raise TraceError(
            f"Line {self.lines + 1} is neither a reference nor a line of Valgrind "
            f"({_shown(line)}).",
            next_step="Read the output of `valgrind --tool=lackey --trace-mem=yes`, written where "
            "the program itself writes nothing (--log-file).",
        )


def _shown(line: bytes) -> str:
    """A line as it is shown in a message."""
    return ascii(line[:_SHOWN_BYTES].decode("utf-8", "replace"))
