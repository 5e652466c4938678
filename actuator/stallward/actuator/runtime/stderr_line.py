"""Writes a line to standard error without ever failing or waiting."""

from __future__ import annotations

import contextlib
import os
import select

from stallward.agent.printable import printable


def say(text: str, name: str = "guardian") -> None:
    """Write one line to standard error; nothing in the text begins another one.

    If the reader has stopped, the line is lost: a restore must not wait for it.
    """
    line = f"stallward {name}: {printable(text)}\n".encode()
    poller = select.poll()
    poller.register(2, select.POLLOUT)  # a pipe is ready when it has room for a page
    if poller.poll(0):
        with contextlib.suppress(OSError):
            os.write(2, line[: select.PIPE_BUF])
