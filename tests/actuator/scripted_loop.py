"""``python -m scripted_loop OPTIONS``: stands in for the loop and runs a test's ``loop.py``.

The script has what the real loop has of its guardian: the socket, the shared memory and what
earlier loops left. If it ends without an exit status of its own, the loop goes on for ever.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

from stallward.actuator.config.load import parse_config
from stallward.actuator.ipc.channels import BEAT, GuardianLink
from stallward.actuator.ipc.options import LoopOptions
from stallward.actuator.ipc.shared_memory import PauseMemory, SharedMemory
from stallward.actuator.journal.entries import FileValue
from stallward.actuator.runtime.process_start import run_process


class ScriptedLoop:
    """The loop that a script uses under the name ``loop``."""

    def __init__(self, options: LoopOptions) -> None:
        text = os.pread(options.config_fd, os.fstat(options.config_fd).st_size, 0)
        config = parse_config(text.decode())
        self.folder = config.journal.path.parent
        self.number = options.restarts
        """The number of loops that ran before it."""
        self.left = options.inherited
        self.connection = socket.socket(fileno=options.guardian_fd)
        self.link = GuardianLink(self.connection, timeout_s=30.0)
        self.pauses = PauseMemory(SharedMemory(self.left.memory_fd).pauses(), 1)

    def note(self, text: object) -> None:
        """Write a note, which the test reads."""
        with (self.folder / "notes").open("a") as notes:
            notes.write(f"{text}\n")

    def change(self, knob: Path, old: str, new: str) -> None:
        """Change a setting as levers do: its original is in the journal first."""
        self.link.hold_all([FileValue(knob, old)])
        knob.write_text(new)

    def pause(self) -> None:
        """Report that the only slot is paused from now on."""
        self.pauses.keep(time.monotonic(), [0])

    def thaw(self) -> None:
        """Report that the slot is not paused any more."""
        self.pauses.keep_only(())

    def beat(self) -> None:
        """Give a sign of life, without waiting for the answer."""
        self.connection.send(BEAT)

    def wait_for(self, name: str) -> None:
        """Wait until the test has made a file."""
        while not (self.folder / name).exists():
            time.sleep(0.01)

    def die(self) -> None:
        """Die as if killed by ``kill -9``."""
        os.kill(os.getpid(), signal.SIGKILL)


def main(options: LoopOptions) -> int:
    loop = ScriptedLoop(options)
    loop.note(f"loop {loop.number}")
    script = (loop.folder / "loop.py").read_text()
    exec(script, {"loop": loop, "sys": sys, "time": time, "os": os})
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(run_process("loop", LoopOptions, main))
