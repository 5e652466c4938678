"""The recorder process: writes tick records to disk so that the loop never has to.

The guardian starts it as ``python -m stallward.actuator.record.recorder OPTIONS``. It reads one
record per message from a SOCK_SEQPACKET socket, appends each to the frames file at once and syncs
once a second. It ends when the other end is closed and every record in the queue is on disk. It
needs the standard library only.
"""

from __future__ import annotations

import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import FramesError
from stallward.actuator.record.frames import MAX_FRAME_BYTES
from stallward.actuator.record.segments import SegmentWriter
from stallward.actuator.runtime.process_start import run_process
from stallward.actuator.runtime.stderr_line import say

SYNC_PERIOD_S: Final = 1.0
_MESSAGE_BYTES: Final = min(MAX_FRAME_BYTES, 1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderOptions:
    """The options of the recorder process."""

    fd: int
    """The socket from which it reads records."""
    path: Path
    """The frames file."""
    max_bytes: int
    """The most bytes of the frames file and its segments."""


def record(source: socket.socket, writer: SegmentWriter) -> int:
    """Write everything that arrives until the other end is closed; return the number of frames."""
    frames, unsynced, synced_s = 0, False, time.monotonic()
    while True:
        if select.select([source], [], [], SYNC_PERIOD_S)[0]:
            payload = source.recv(_MESSAGE_BYTES)
            if not payload:
                return frames
            writer.append(payload)
            frames, unsynced = frames + 1, True
        if unsynced and time.monotonic() - synced_s >= SYNC_PERIOD_S:
            writer.sync()
            unsynced, synced_s = False, time.monotonic()


def main(options: RecorderOptions) -> int:
    """Run the recorder process; return its exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the loop closes its end
    source = socket.socket(fileno=options.fd)
    try:
        writer = SegmentWriter(options.path, options.max_bytes)
        try:
            record(source, writer)
        finally:
            writer.close()
    except (FramesError, OSError) as error:
        say(f"{error}", "recorder")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(run_process("recorder", RecorderOptions, main))
