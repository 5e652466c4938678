"""Who calls: a client of the local socket, or one with a certificate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import grpc

LOCAL: Final = "local"
REMOTE: Final = "remote"
_COMMON_NAME: Final = "x509_common_name"
_OTHER_NAMES: Final = "x509_subject_alternative_name"

Context = grpc.aio.ServicerContext[Any, Any]


def names_of(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """The names in a client's certificate, by the context of its connection."""
    return frozenset(
        name.decode("utf-8", "replace")
        for key in (_COMMON_NAME, _OTHER_NAMES)
        for name in auth_context.get(key, ())
    )


def door_of(context: Context) -> str:
    """The door by which a client came in."""
    # gRPC fills this in for every connection: here `insecure`, for a Unix socket.
    is_tls = b"ssl" in context.auth_context().get("transport_security_type", ())
    return REMOTE if is_tls else LOCAL


def holder_of(context: Context, word: str) -> str:
    """The name under which a client holds a lease.

    That of its certificate, and its own word after it: a word alone is anybody's, and would let
    one operator release what another one holds. A client of the local socket is root, or was let
    in by root, and has its word.

    Args:
        context: The call.
        word: What the client calls itself.
    """
    if door_of(context) == LOCAL or not word:  # who has no word is refused
        return word
    auth = context.auth_context()
    common = [name.decode("utf-8", "replace") for name in auth.get(_COMMON_NAME, ())]
    name = next(iter(common or sorted(names_of(auth))), "a certificate without a name")
    return f"{name}/{word}"
