"""``stallward bench garbage``: whether the service survives what no client of ours would send.

Calls with random bytes, with valid messages of which some bytes are wrong, with unknown names, of
too many bytes, streams that break off, and connections that speak no gRPC at all. A daemon of our
own in a sandbox takes them while its loop ticks.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc
import psutil

from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ExperimentsConfig,
    JournalConfig,
    NodeConfig,
    PolicyConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.latency.config import GrpcLatency
from stallward.actuator.runtime.addresses import grpc_target
from stallward.agent.desired import MIB
from stallward.agent.errors import StallwardError
from stallward.env.sandbox.data_cache import default_cache_dir
from stallward.env.sandbox.sandbox import Sandbox, open_sandbox
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.training.progress import Report, silent

MEANINGS: Final = {
    "calls": "calls and connections that were made",
    "calls_per_s": "the same per second",
    "refused_share": "share of the answered calls that were refused, as garbage should be",
    "unanswered_share": "share of the calls that no answer came to in time",
    "service_died_share": "share of the looks at the service that found another process",
    "loop_deaths": "how often the loop died",
    "service_rss_mib": "memory of the service after a tenth of the calls",
    "service_growth_mib": "growth of it until the end",
    "loop_growth_mib": "growth of the loop meanwhile",
    "late_tick_share": "share of the ticks meanwhile that began more than 10 ms late",
}
_CONCURRENT: Final = 16
_LOOK_EVERY: Final = 100
_NO_ANSWERS: Final = ("CANCELLED", "BROKEN", "NO_GRPC")
"""What a call of this program ended with that the service did not answer."""
_LATE_MS: Final = 10.0
_REPORT_S: Final = 2.0
_ZONE_BYTES: Final = 256 * MIB
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
        """A stream of garbage that ends in the middle of a message."""
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


async def _storm(path: Path, calls: int, seed: int, at: Callable[[int], None]) -> Counter[str]:
    """Make the calls, a few of them at once.

    Args:
        path: The service's socket.
        calls: How many.
        seed: Seeds everything random.
        at: Called with the number of calls so far, now and then.
    """
    answers: Counter[str] = Counter()
    left = iter(range(calls))
    async with grpc.aio.insecure_channel(grpc_target(path)) as channel:
        garbage = Garbage(path, channel)

        async def caller(number: int) -> None:
            rng = random.Random(f"{seed}/{number}")  # noqa: S311 - nothing secret
            for done in left:
                answers[await garbage.choose(rng)(rng)] += 1
                if done % _LOOK_EVERY == 0:
                    at(done)

        await asyncio.gather(*(caller(number) for number in range(_CONCURRENT)))
    return answers


def _config(sandbox: Sandbox) -> DaemonConfig:
    """A daemon with everything that a client can ask for."""
    folder = sandbox.folder
    return DaemonConfig(
        node=NodeConfig.at(sandbox.paths, zone=sandbox.zone.name),
        protected=ProtectedConfig(group=sandbox.protected.name),
        background=tuple(
            SlotConfig(name=f"slot{index}", group=group.name)
            for index, group in enumerate(sandbox.slots)
        ),
        service=ServiceConfig(socket=folder / "garbage.sock"),
        journal=JournalConfig(path=folder / "garbage.journal"),
        latency=GrpcLatency(),
        policy=PolicyConfig(store=folder / "policies"),
        experiments=ExperimentsConfig(dir=folder / "experiments"),
    )


def _rss_mib(pid: int | None) -> float:
    return 0.0 if pid is None else float(psutil.Process(pid).memory_info().rss) / MIB


class _Watched:
    """What is seen of a daemon while garbage is sent to it.

    Args:
        daemon: The daemon.
        calls: How many calls are made in all.
    """

    def __init__(self, daemon: Daemon, calls: int) -> None:
        self._daemon = daemon
        self._calls = calls
        self._last = daemon.pids
        self.looks = self.other = 0
        self.early_mib: tuple[float, float] | None = None
        self.late: list[bool] = []

    def look(self, done: int) -> None:
        """Look at the processes."""
        now = self._daemon.pids
        self.looks += 1
        self.other += now.service != self._last.service
        self._last = now
        if self.early_mib is None and done >= self._calls // 10:
            self.early_mib = self.memory_mib()

    def memory_mib(self) -> tuple[float, float]:
        """The memory of the service and of the loop."""
        return _rss_mib(self._daemon.pids.service), _rss_mib(self._daemon.pids.loop)

    def watch(self) -> None:
        """Note how late ticks begin, until the daemon's service ends the stream."""
        with contextlib.suppress(StallwardError), self._daemon.client() as client:
            for watched in client.watch():
                self.late.append(watched.record.timings.late_ms > _LATE_MS)


def bench_garbage(
    *, calls: int, seed: int = 1, report: Report = silent
) -> dict[str, float | None]:
    """Send garbage to a daemon and return the figures, by the keys of :data:`MEANINGS`.

    Raises:
        StallwardError: If this machine cannot have the sandbox, or the daemon does not answer
            afterwards.
    """
    with (
        open_sandbox(
            slots=2, limit_bytes=_ZONE_BYTES, swap_bytes=0, cache_dir=default_cache_dir()
        ) as sandbox,
        Daemon(_config(sandbox), owned=sandbox.folder) as daemon,
    ):
        seen = _Watched(daemon, calls)
        threading.Thread(target=seen.watch, daemon=True).start()
        told_s = 0.0

        def at(done: int) -> None:
            nonlocal told_s
            seen.look(done)
            if time.monotonic() - told_s > _REPORT_S:
                told_s = time.monotonic()
                report(f"{done} of {calls} calls", done / calls)

        begin_s = time.monotonic()
        answers = asyncio.run(_storm(daemon.config.service.socket, calls, seed, at))
        took_s = time.monotonic() - begin_s
        with daemon.client() as client:
            status = client.wait_ready()
        end_mib = seen.memory_mib()
        seen.look(calls)
    made = sum(answers.values())
    silent_calls = answers["UNAVAILABLE"] + answers["DEADLINE_EXCEEDED"]
    left = made - silent_calls - sum(answers[name] for name in _NO_ANSWERS)
    same = seen.early_mib is not None and not seen.other and not status.loop_restarts
    early_mib = seen.early_mib if same else None
    return {
        "calls": float(made),
        "calls_per_s": made / took_s,
        "refused_share": 1.0 - answers["OK"] / max(left, 1),
        "unanswered_share": silent_calls / made,
        "service_died_share": seen.other / seen.looks,
        "loop_deaths": float(status.loop_restarts),
        "service_rss_mib": end_mib[0] if early_mib is None else early_mib[0],
        "service_growth_mib": None if early_mib is None else end_mib[0] - early_mib[0],
        "loop_growth_mib": None if early_mib is None else end_mib[1] - early_mib[1],
        "late_tick_share": sum(seen.late) / len(seen.late) if seen.late else None,
    }
