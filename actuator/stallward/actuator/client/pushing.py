"""Sending a policy to a daemon part by part, and going on where an upload broke off."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Final

import grpc

from stallward.actuator.client.status import StoredPolicyInfo, stored_from_wire
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc

_OFFSET_TIMEOUT_S: Final = 5.0
_PUSH_TIMEOUT_S: Final = 600.0
_CHUNK_BYTES: Final = 256 << 10
_TRIES: Final = 5
_PAUSE_S: Final = 0.3
_STILL_SENDING: Final = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ABORTED)


def push_policy(stub: pb_grpc.ActuatorServiceStub, content: bytes, name: str) -> StoredPolicyInfo:
    """Send a policy, from the part on that the daemon lacks.

    Raises:
        grpc.RpcError: If the daemon refuses it or cannot be reached.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    for tries_left in reversed(range(_TRIES)):
        asked = pb.PushOffsetRequest(sha256=sha256)
        start = stub.PushOffset(asked, timeout=_OFFSET_TIMEOUT_S).received_bytes
        try:
            answer = stub.PushPolicy(_parts(content, start, sha256, name), timeout=_PUSH_TIMEOUT_S)
            break
        except grpc.RpcError as error:
            # The rest of an upload that broke off may still be on its way.
            late = isinstance(error, grpc.Call) and error.code() in _STILL_SENDING
            if not (late and tries_left):
                raise
            time.sleep(_PAUSE_S)
    return stored_from_wire(answer.policy)


def _parts(content: bytes, start: int, sha256: str, name: str) -> Iterator[pb.PushPolicyRequest]:
    """Yield the parts of a policy from ``start`` on; at least one, which names it."""
    first = content[start : start + _CHUNK_BYTES]
    yield pb.PushPolicyRequest(sha256=sha256, name=name, offset=start, chunk=first)
    for offset in range(start + len(first), len(content), _CHUNK_BYTES):
        chunk = content[offset : offset + _CHUNK_BYTES]
        yield pb.PushPolicyRequest(offset=offset, chunk=chunk)
