"""``stallward bench calls``: whether the loop keeps its period while the service is busy.

A separate process calls the daemon's service many times a second under real pressure, and watches
it, as many clients would. Every tick of the block records how late it began.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import numpy as np
from numpy.typing import NDArray

from stallward.actuator.runtime.addresses import grpc_target
from stallward.actuator.runtime.process_start import safe_imports
from stallward.benchmarks.overhead import WORST_SCENARIO
from stallward.env.recording.recording import load_recording
from stallward.env.scenario.file import load_scenario
from stallward.evaluation.arms import Arm, find_policy_of
from stallward.evaluation.blocks.live import open_session
from stallward.evaluation.blocks.request import RunRequest
from stallward.proto.v1 import stallward_pb2 as pb
from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc
from stallward.training.progress import Report, silent

if TYPE_CHECKING:
    from stallward.actuator.client.daemon_process import Daemon

ON_TIME_MS: Final = 10.0
"""A tick that begins later than this after its due time is late."""
_BURN_IN_S: Final = 4.0
_CONCURRENT_CALLS: Final = 8
_WAIT_S: Final = 10.0
MEANINGS: Final = {
    "calls_per_s": "answered Status calls per second",
    "call_p50_ms": "time of one call, median, measured by the client",
    "call_p99_ms": "the same, 99th percentile",
    "ticks": "ticks of the loop in that time, under pressure",
    "ticks_kept_share": f"share of ticks that began within {ON_TIME_MS:g} ms of their due time",
    "tick_late_worst_ms": "delay of the latest tick",
    "watchers": "clients that watched until the end",
    "watched_share": "share of the ticks meanwhile that they received",
    "watched_uncounted": "ticks that one did not receive and was not told of",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients that keep a service busy."""

    calls_per_s: float = 1000.0
    watchers: int = 0
    seconds: float = 60.0


@dataclass(slots=True)
class Seen:
    """What the clients saw."""

    durations_ms: list[float] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)


@dataclass(slots=True)
class Watched:
    """What one watcher saw."""

    received: int = 0
    skipped: int = 0
    """Ticks that the service said it dropped."""
    first: int = 0
    last: int = 0
    """Numbers of ticks."""

    @property
    def sent(self) -> int:
        """How many ticks there were between the first and the last one."""
        return self.last - self.first + 1 if self.received else 0


class CallStorm:
    """Calls and watches a daemon's service from a separate process until the block ends.

    Args:
        clients: The clients.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._process: SpawnProcess | None = None
        self._results: Connection | None = None

    def __call__(self, daemon: Daemon) -> None:
        """Start calling."""
        spawn = multiprocessing.get_context("spawn")
        self._results, sender = spawn.Pipe(duplex=False)
        arguments = (str(daemon.config.service.socket), self._clients, sender)
        self._process = spawn.Process(target=_call, args=arguments, daemon=True)
        with safe_imports():
            self._process.start()
        sender.close()

    def finish(self) -> Seen:
        """End the process and return what it saw."""
        seen = Seen()
        if self._results is not None and self._results.poll(_WAIT_S):
            with contextlib.suppress(EOFError):
                seen = self._results.recv()
        if self._process is not None:
            self._process.join(_WAIT_S)
            self._process.kill()
        return seen


def _call(socket: str, clients: Clients, results: Connection) -> None:
    """Run in the calling process."""
    results.send(asyncio.run(_storm(socket, clients)))


async def _storm(socket: str, clients: Clients) -> Seen:
    seen = Seen(watched=[Watched() for _ in range(clients.watchers)])
    async with grpc.aio.insecure_channel(grpc_target(Path(socket))) as channel:
        stub = pb_grpc.ActuatorServiceStub(channel)  # type: ignore[no-untyped-call]
        start_s = time.monotonic()
        end_s = start_s + clients.seconds
        callers = _CONCURRENT_CALLS if clients.calls_per_s else 0
        apart_s = callers / clients.calls_per_s if callers else 0.0
        await asyncio.gather(
            *(
                _call_paced(stub, seen, start_s + apart_s * number / callers, apart_s, end_s)
                for number in range(callers)
            ),
            *(_watch(stub, one, clients.seconds) for one in seen.watched),
        )
    return seen


async def _call_paced(stub: Any, seen: Seen, next_s: float, apart_s: float, end_s: float) -> None:
    """Make calls that are due at certain times."""
    while (now_s := time.monotonic()) < end_s:
        if now_s < next_s:
            await asyncio.sleep(next_s - now_s)
        begun_s = time.monotonic()
        with contextlib.suppress(grpc.RpcError):
            await stub.Status(pb.StatusRequest(), timeout=5.0)
            seen.durations_ms.append((time.monotonic() - begun_s) * 1e3)
        next_s += apart_s


async def _watch(stub: Any, watched: Watched, seconds: float) -> None:
    """Receive ticks."""
    with contextlib.suppress(grpc.RpcError):  # the deadline
        async for answer in stub.Watch(pb.WatchRequest(), timeout=seconds):
            watched.last = answer.record.sequence
            watched.first = watched.first if watched.received else watched.last
            watched.received += 1
            watched.skipped = answer.skipped


def bench_calls(
    clients: Clients | None = None, *, report: Report = silent
) -> dict[str, float | None]:
    """Measure calls and ticks; a figure that could not be measured is ``None``.

    Args:
        clients: The clients; a thousand calls a second for a minute by default.
        report: Called with the progress.

    Raises:
        StallwardError: If this machine cannot have the sandbox.
    """
    clients = clients or Clients()
    scenario = load_scenario(WORST_SCENARIO)
    arm = Arm(label="ppo", spec="ppo")
    policy = find_policy_of(arm, "default")
    storm = CallStorm(clients)
    report("preparing programs and data", 0.0)
    with (
        open_session(scenario) as session,
        tempfile.TemporaryDirectory(dir=session.scratch) as folder,
    ):
        report("under pressure and calls", 0.2)
        request = RunRequest(
            condition="together",
            arm=arm,
            policy=policy,
            slo_ms=scenario.protected.slo.latency_ms or 100.0,
            duration_s=clients.seconds,
            burn_in_s=_BURN_IN_S,
            seed=1,
        )
        try:
            session.run(request, Path(folder) / "block", on_daemon=storm)
        finally:
            seen = storm.finish()
        recording = load_recording(Path(folder) / "block")
    report("done", 1.0)
    late_ms = recording.tick("timing_late_ms")
    return figures_of(seen, late_ms[np.isfinite(late_ms)], clients.seconds)


def figures_of(
    seen: Seen, late_ms: NDArray[np.float64], seconds: float
) -> dict[str, float | None]:
    """The figures, by the keys of :data:`MEANINGS`.

    Args:
        seen: What the clients saw.
        late_ms: How late each tick began, ``(ticks,)``.
        seconds: For how long the clients called.
    """
    calls = seen.durations_ms
    sent = sum(one.sent for one in seen.watched)
    received = sum(one.received for one in seen.watched)
    return {
        "calls_per_s": len(calls) / seconds,
        "call_p50_ms": float(np.quantile(calls, 0.5)) if calls else None,
        "call_p99_ms": float(np.quantile(calls, 0.99)) if calls else None,
        "ticks": float(late_ms.size),
        "ticks_kept_share": float(np.mean(late_ms <= ON_TIME_MS)) if late_ms.size else None,
        "tick_late_worst_ms": float(late_ms.max()) if late_ms.size else None,
        "watchers": float(sum(one.received > 0 for one in seen.watched)),
        "watched_share": received / sent if sent else None,
        "watched_uncounted": float(
            sum(one.sent - one.received - one.skipped for one in seen.watched)
        ),
    }
