"""Reading the tick records that a daemon wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError

from stallward.actuator.errors import FramesError
from stallward.actuator.record.frames import FRAMES_NAME
from stallward.actuator.record.segments import read_segments
from stallward.actuator.record.tick_record import TickRecord
from stallward.actuator.record.wire import TICK_RECORD
from stallward.agent.errors import UsageError
from stallward.proto.v1 import stallward_pb2 as pb


def frames_file(source: Path) -> Path:
    """The frames file of a record.

    Args:
        source: The daemon's ``record.dir``, or the frames file in it.

    Raises:
        UsageError: If there is none.
    """
    file = source / FRAMES_NAME if source.is_dir() else source
    if not file.is_file():
        raise UsageError(
            f"There is no {file}.",
            next_step="Give the directory that [record] of the daemon's configuration names.",
        )
    return file


def read_ticks(file: Path) -> Iterator[pb.TickRecord]:
    """Yield the tick records of a frames file, after those of the segments set aside from it.

    An incomplete record that a crash left is the last of its file.

    Raises:
        FramesError: If the file cannot be read or holds other frames.
    """
    for payload in read_segments(file):
        try:
            yield pb.TickRecord.FromString(payload)
        except DecodeError as error:
            raise FramesError(
                f"{file} holds a frame that is no tick record.",
                next_step="It was written by another version; read it with that one.",
            ) from error


def read_records(source: Path) -> Iterator[TickRecord]:
    """Yield the records that a daemon left, oldest first.

    Args:
        source: The daemon's ``record.dir``, or the frames file in it.

    Raises:
        UsageError: If there are none.
        FramesError: If a file cannot be read.
    """
    return map(TICK_RECORD.from_wire, read_ticks(frames_file(source)))
