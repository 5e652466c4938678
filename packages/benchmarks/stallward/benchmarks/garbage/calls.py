"""Calls and connections that no client of ours would make."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc

from stallward.agent.desired import MIB
from stallward.proto.v1 import stallward_pb2 as pb

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["ActuatorService"]
_TIMEOUT_S: Final = 2.0
_OVERSIZE_BYTES: Final = 5 << 20

Send = Callable[[random.Random], Awaitable[str]]
"""Makes one call; returns the name of the status, or what happened."""


class Garbage:
    """Makes calls of all kinds at one socket.

    Args:
        path: The service's socket.
        channel: A channel to it.
    """

    def __init__(self, path: Path, channel: grpc.aio.Channel) -> None:
        self._path = str(path)
        self._channel = channel
        self._samples = _samples()

    def choose(self, rng: random.Random) -> Send:
        """One kind of call, the cheap ones more often."""
        kinds = (self._random_bytes, self._wrong_bytes, self._unknown, self._stream, self._watch)
        rare = (self._oversize, self._no_grpc, self._slow)
        return rng.choices((*kinds, *rare), weights=(30, 40, 10, 10, 6, 0.02, 3, 1))[0]

    async def _unary(self, name: str, content: bytes) -> str:
        call: Any = self._channel.unary_unary(f"/{_SERVICE.full_name}/{name}")
        try:
            await call(content, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return "OK"

    async def _random_bytes(self, rng: random.Random) -> str:
        return await self._unary(_name(rng), rng.randbytes(rng.randrange(200)))

    async def _wrong_bytes(self, rng: random.Random) -> str:
        name, content = rng.choice(self._samples)
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 5)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        return await self._unary(name, bytes(damaged[: rng.randrange(len(damaged) + 1)]))

    async def _unknown(self, rng: random.Random) -> str:
        return await self._unary(f"No{rng.randrange(10**6)}", b"")

    async def _oversize(self, rng: random.Random) -> str:
        return await self._unary(_name(rng), bytes(_OVERSIZE_BYTES))

    async def _stream(self, rng: random.Random) -> str:
        """A stream of garbage that breaks off in the middle."""
        kind: Any = self._channel.stream_unary(f"/{_SERVICE.full_name}/{rng.choice(_STREAMS)}")
        call = kind(timeout=_TIMEOUT_S)
        try:
            for _ in range(rng.randrange(4)):
                await call.write(rng.randbytes(rng.randrange(100)))
            if rng.random() < 0.5:
                call.cancel()
            else:
                await call.done_writing()
            await call
        except asyncio.CancelledError:
            return "CANCELLED"
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            return error.code().name if isinstance(error, grpc.aio.AioRpcError) else "BROKEN"
        return "OK"

    async def _watch(self, rng: random.Random) -> str:
        """A watcher that goes away without a word."""
        kind: Any = self._channel.unary_stream(f"/{_SERVICE.full_name}/Watch")
        request = pb.WatchRequest(every=rng.randrange(5))
        call = kind(request.SerializeToString(), timeout=_TIMEOUT_S)
        await asyncio.sleep(0.01 * rng.random())
        call.cancel()
        return "CANCELLED"

    async def _no_grpc(self, rng: random.Random) -> str:
        """A connection that speaks something else, or half of HTTP/2."""
        start = rng.choice((b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as raw:
            raw.setblocking(False)
            with contextlib.suppress(OSError):
                raw.connect(self._path)
                raw.send(start + rng.randbytes(rng.randrange(300)))
                if rng.random() < 0.5:
                    raw.shutdown(socket.SHUT_WR)
                    await asyncio.sleep(0.002)
        return "NO_GRPC"

    async def _slow(self, rng: random.Random) -> str:
        """A connection that sends nothing for a while, and goes."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as raw:
            raw.setblocking(False)
            with contextlib.suppress(OSError):
                raw.connect(self._path)
                await asyncio.sleep(0.2 * rng.random())
        return "NO_GRPC"


_STREAMS: Final = tuple(m.name for m in _SERVICE.methods if m.client_streaming)
_UNARY: Final = tuple(
    m.name for m in _SERVICE.methods if not m.client_streaming and not m.server_streaming
)


def _name(rng: random.Random) -> str:
    return rng.choice(_UNARY)


def _samples() -> tuple[tuple[str, bytes], ...]:
    """Valid messages to damage. What they would do if they stay valid is harmless and short."""
    state = pb.DesiredState(slots=[pb.SlotDesire(limit_bytes=200 * MIB, cpu_weight=50)])
    messages: tuple[tuple[str, Any], ...] = (
        ("Apply", pb.ApplyRequest(desired=state, lease_s=0.1, holder="garbage")),
        ("Release", pb.ReleaseRequest(holder="garbage")),
        ("Load", pb.LoadRequest(path="no-such-policy")),
        ("SetMode", pb.SetModeRequest(mode=pb.MODE_SHADOW)),
        ("PushOffset", pb.PushOffsetRequest(sha256="0" * 64)),
        ("Status", pb.StatusRequest()),
        ("StartExperiment", pb.StartExperimentRequest(plan=pb.ExperimentPlan(pairs=2))),
    )
    return tuple((name, message.SerializeToString()) for name, message in messages)
