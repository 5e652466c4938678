"""Conversion of threads, and of what is wanted of them, to the wire and back."""

from __future__ import annotations

from typing import Final

from stallward.actuator.record.flat_wire import FlatWire, Parts
from stallward.agent.threads import ThreadDesire, ThreadRef, ThreadSample
from stallward.proto.v1 import stallward_pb2 as pb

_SAMPLE: Final = FlatWire(ThreadSample, pb.ThreadSample)
_REF: Final = FlatWire(ThreadRef, pb.ThreadRef)
_DESIRE: Final = FlatWire(ThreadDesire, pb.ThreadDesire, skip=("thread",))


def threads_parts(threads: tuple[ThreadSample, ...] | None) -> Parts:
    """Return the fields of a sample's message that hold its threads."""
    return {
        "protected_threads": [_SAMPLE.to_wire(thread) for thread in threads or ()],
        "protected_threads_known": threads is not None,
    }


def threads_from_wire(message: pb.Sample) -> tuple[ThreadSample, ...] | None:
    """Return the threads of a sample's message; ``None`` if they were not read."""
    if not message.protected_threads_known:
        return None
    return tuple(ThreadSample(**_SAMPLE.from_wire(one)) for one in message.protected_threads)


def thread_desires_parts(desires: tuple[ThreadDesire, ...]) -> list[Parts]:
    """Return the messages of what is wanted of threads."""
    return [{**_DESIRE.to_wire(one), "thread": _REF.to_wire(one.thread)} for one in desires]


def thread_desires_from_wire(message: pb.DesiredState) -> tuple[ThreadDesire, ...]:
    """Return what the message of a desired state wants of threads."""
    return tuple(
        ThreadDesire(thread=ThreadRef(**_REF.from_wire(one.thread)), **_DESIRE.from_wire(one))
        for one in message.protected_threads
    )
