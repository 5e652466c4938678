"""``stallward bench calls``: whether the loop keeps its period while the service is busy.

A separate process calls the daemon's service ``CALLS_PER_S`` times a second under real pressure.
Every tick of the block records how late it began.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from stallward.actuator.runtime.addresses import grpc_target
from stallward.actuator.runtime.process_start import safe_imports
from stallward.env.recording.recording import load_recording
from stallward.env.scenario.file import load_scenario
from stallward.evaluation.arms import Arm, find_policy_of
from stallward.evaluation.bench.overhead import WORST_SCENARIO
from stallward.evaluation.blocks.live import open_session
from stallward.evaluation.blocks.request import RunRequest
from stallward.training.progress import Report, silent

if TYPE_CHECKING:
    from stallward.actuator.client.daemon_process import Daemon

CALLS_PER_S: Final = 1000
ON_TIME_MS: Final = 10.0
"""A tick that begins later than this after its due time is late."""
_BURN_IN_S: Final = 4.0
_CONCURRENT_CALLS: Final = 8
_WAIT_S: Final = 10.0
MEANINGS: Final = {
    "calls_per_s": f"answered Status calls per second, of {CALLS_PER_S} asked for",
    "call_p99_ms": "time of one call, 99th percentile, measured by the client",
    "ticks": "ticks of the loop in that time, under pressure",
    "ticks_kept_share": f"share of ticks that began within {ON_TIME_MS:g} ms of their due time",
    "tick_late_worst_ms": "delay of the latest tick",
}


class CallStorm:
    """Calls a daemon's service from a separate process until the block ends."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: SpawnProcess | None = None
        self._results: Connection | None = None

    def __call__(self, daemon: Daemon) -> None:
        """Start calling."""
        spawn = multiprocessing.get_context("spawn")
        self._results, sender = spawn.Pipe(duplex=False)
        arguments = (str(daemon.config.service.socket), self._seconds, sender)
        self._process = spawn.Process(target=_call, args=arguments, daemon=True)
        with safe_imports():
            self._process.start()
        sender.close()

    def finish(self) -> list[float]:
        """End the process and return the duration of each answered call, in milliseconds."""
        durations_ms: list[float] = []
        if self._results is not None and self._results.poll(_WAIT_S):
            with contextlib.suppress(EOFError):
                durations_ms = self._results.recv()
        if self._process is not None:
            self._process.join(_WAIT_S)
            self._process.kill()
        return durations_ms


def _call(socket: str, seconds: float, results: Connection) -> None:
    """Run in the calling process: paced calls, a few of them concurrent."""
    import asyncio  # noqa: PLC0415 - only this process needs it

    results.send(asyncio.run(_storm(socket, seconds)))


async def _storm(socket: str, seconds: float) -> list[float]:
    import asyncio  # noqa: PLC0415

    import grpc  # noqa: PLC0415

    from stallward.proto.v1 import stallward_pb2 as pb  # noqa: PLC0415
    from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc  # noqa: PLC0415

    durations_ms: list[float] = []
    start_s = time.monotonic()
    async with grpc.aio.insecure_channel(grpc_target(Path(socket))) as channel:
        stub = pb_grpc.ActuatorServiceStub(channel)  # type: ignore[no-untyped-call]

        async def caller(number: int) -> None:
            next_s = start_s + number / CALLS_PER_S
            while (now_s := time.monotonic()) < start_s + seconds:
                if now_s < next_s:
                    await asyncio.sleep(next_s - now_s)
                begun_s = time.monotonic()
                with contextlib.suppress(grpc.RpcError):
                    await stub.Status(pb.StatusRequest(), timeout=5.0)
                    durations_ms.append((time.monotonic() - begun_s) * 1e3)
                next_s += _CONCURRENT_CALLS / CALLS_PER_S

        await asyncio.gather(*(caller(i) for i in range(_CONCURRENT_CALLS)))
    return durations_ms


def bench_calls(*, seconds: float = 60.0, report: Report = silent) -> dict[str, float | None]:
    """Measure calls and ticks; a figure that could not be measured is ``None``.

    Raises:
        StallwardError: If this machine cannot have the sandbox.
    """
    scenario = load_scenario(WORST_SCENARIO)
    arm = Arm(label="ppo", spec="ppo")
    policy = find_policy_of(arm, "default")
    storm = CallStorm(seconds)
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
            duration_s=seconds,
            burn_in_s=_BURN_IN_S,
            seed=1,
        )
        try:
            session.run(request, Path(folder) / "block", on_daemon=storm)
        finally:
            durations_ms = storm.finish()
        recording = load_recording(Path(folder) / "block")
    report("done", 1.0)
    late_ms = recording.tick("timing_late_ms")
    late_ms = late_ms[np.isfinite(late_ms)]
    return {
        "calls_per_s": len(durations_ms) / seconds,
        "call_p99_ms": float(np.quantile(durations_ms, 0.99)) if durations_ms else None,
        "ticks": float(late_ms.size),
        "ticks_kept_share": float(np.mean(late_ms <= ON_TIME_MS)) if late_ms.size else None,
        "tick_late_worst_ms": float(late_ms.max()) if late_ms.size else None,
    }
