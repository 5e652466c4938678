"""The command in a terminal of the kernel's, with keys that are typed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from child_path import python_path
from top_ticks import write_recording

WAIT_S = 60.0
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>]|P.*?\x1b\\)"
)


class Terminal:
    """Runs a command on a terminal of 120 columns."""

    def __init__(self, *argv: str) -> None:
        self._end, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color", "PYTHONPATH": python_path()}
        code = f"from stallward.evaluation.cli import main; raise SystemExit(main({list(argv)!r}))"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.output = ""

    def type(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def shows(self, text: str) -> None:
        """Wait until a text is drawn that was not when this was called last."""
        deadline_s = time.monotonic() + WAIT_S
        drawn = ""
        while text not in _SEQUENCE.sub("", drawn):
            ready, _, _ = select.select([self._end], [], [], deadline_s - time.monotonic())
            assert ready, _SEQUENCE.sub("", drawn)
            drawn += os.read(self._end, 1 << 16).decode("utf-8", "replace")
        self.output += drawn

    def ends(self) -> int:
        """Read to the end; returns the exit status."""
        try:
            while data := os.read(self._end, 1 << 16):
                self.output += data.decode("utf-8", "replace")
        except OSError:  # nobody has the other end any more
            pass
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        os.close(self._end)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    write_recording(tmp_path, seconds=300)
    made = Terminal("top", "--replay", str(tmp_path), "--at", "200", "--target-ms", "450")
    yield made
    made.close()


@pytest.mark.slow
def test_typed_keys_lead_through_a_recording(terminal: Terminal) -> None:
    terminal.shows("p95 400 ms of at most 450 ms")
    assert "Not live, but a recording" in _SEQUENCE.sub("", terminal.output)
    terminal.type("\x1b[D\x1b[D")
    terminal.shows(", 2 s before the newest tick")
    terminal.type("[")
    terminal.shows(", 32 s before the newest tick")
    terminal.type("0")
    terminal.shows("p95 4")
    terminal.type("]]")
    terminal.shows("hog limit 100 MiB")
    terminal.type("q")
    assert terminal.ends() == 0
    assert terminal.output.rfind("\x1b[?1049l") > terminal.output.rfind("\x1b[?1049h")
