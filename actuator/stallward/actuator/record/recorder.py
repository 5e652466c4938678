"""The recorder process: writes tick records to disk so that the loop never has to.

``python -m stallward.actuator.record.recorder --fd FD --path FILE`` reads one record per message
from a SOCK_SEQPACKET socket, appends each to the frames file at once and syncs once a second. It
ends when the other side is closed, after everything queued is on disk. Standard library only.
"""

from __future__ import annotations

import argparse
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import FramesError
from stallward.actuator.record.frames import MAX_FRAME_BYTES, FrameWriter

SYNC_PERIOD_S: Final = 1.0
_MESSAGE_BYTES: Final = min(MAX_FRAME_BYTES, 1 << 20)


def record(source: socket.socket, writer: FrameWriter) -> int:
    """Write everything that arrives until the other side closes; returns the frame count."""
    frames, unsynced, synced_s = 0, False, time.monotonic()
    while True:
        if not select.select([source], [], [], SYNC_PERIOD_S)[0]:
            payload = None
        else:
            payload = source.recv(_MESSAGE_BYTES)
            if not payload:
                return frames
            writer.append(payload)
            frames, unsynced = frames + 1, True
        if unsynced and time.monotonic() - synced_s >= SYNC_PERIOD_S:
            writer.sync()
            unsynced, synced_s = False, time.monotonic()


def main(arguments: list[str] | None = None) -> int:
    """The recorder process; returns its exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the loop's side does
    parser = argparse.ArgumentParser(
        prog="stallward.actuator.record.recorder", description=__doc__
    )
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--path", type=Path, required=True)
    options = parser.parse_args(arguments)
    source = socket.socket(fileno=options.fd)
    try:
        writer = FrameWriter(options.path)
        try:
            record(source, writer)
        finally:
            writer.close()
    except (FramesError, OSError) as error:
        sys.stderr.write(f"stallward recorder: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
