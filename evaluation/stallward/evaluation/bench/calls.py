"""``stallward bench calls``: whether the loop keeps its period while the service is busy.

A process of its own asks the daemon's service ``CALLS_PER_S`` times a second under real
pressure; every tick of the block tells how late it came.
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
KEPT_MS: Final = 10.0
_BURN_IN_S: Final = 4.0
_AT_ONCE: Final = 8
_WAIT_S: Final = 10.0
MEANINGS: Final = {
    "calls_per_s": f"answered Status calls per second, of {CALLS_PER_S} asked for",
    "call_p99_ms": "time of one call, 99th percentile, seen by the client",
    "ticks": "ticks of the loop meanwhile, under pressure",
    "ticks_kept_share": f"ticks that came within {KEPT_MS:g} ms of their time",
    "tick_late_worst_ms": "the latest tick",
}


class CallStorm:
    """Calls a daemon's service from a process of its own until the block ends."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: SpawnProcess | None = None
        self._results: Connection | None = None

    def __call__(self, daemon: Daemon) -> None:
        """Start calling."""
        spawn = multiprocessing.get_context("spawn")
        self._results, theirs = spawn.Pipe(duplex=False)
        arguments = (str(daemon.config.service.socket), self._seconds, theirs)
        self._process = spawn.Process(target=_call, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def finish(self) -> list[float]:
        """How long each answered call took, in milliseconds."""
        took_ms: list[float] = []
        if self._results is not None and self._results.poll(_WAIT_S):
            with contextlib.suppress(EOFError):
                took_ms = self._results.recv()
        if self._process is not None:
            self._process.join(_WAIT_S)
            self._process.kill()
        return took_ms


def _call(socket: str, seconds: float, results: Connection) -> None:
    """The calling process: paced, a few calls under way at once."""
    import asyncio  # noqa: PLC0415 - only this process needs it

    results.send(asyncio.run(_storm(socket, seconds)))


async def _storm(socket: str, seconds: float) -> list[float]:
    import asyncio  # noqa: PLC0415

    import grpc  # noqa: PLC0415

    from stallward.proto.v1 import stallward_pb2 as pb  # noqa: PLC0415
    from stallward.proto.v1 import stallward_pb2_grpc as pb_grpc  # noqa: PLC0415

    took_ms: list[float] = []
    start_s = time.monotonic()
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        stub = pb_grpc.ActuatorServiceStub(channel)  # type: ignore[no-untyped-call]

        async def caller(number: int) -> None:
            due_s = start_s + number / CALLS_PER_S
            while (now_s := time.monotonic()) < start_s + seconds:
                if now_s < due_s:
                    await asyncio.sleep(due_s - now_s)
                begun_s = time.monotonic()
                with contextlib.suppress(grpc.RpcError):
                    await stub.Status(pb.StatusRequest(), timeout=5.0)
                    took_ms.append((time.monotonic() - begun_s) * 1e3)
                due_s += _AT_ONCE / CALLS_PER_S

        await asyncio.gather(*(caller(i) for i in range(_AT_ONCE)))
    return took_ms


def bench_calls(*, seconds: float = 60.0, report: Report = silent) -> dict[str, float | None]:
    """Measure; ``None`` for what could not be measured.

    Raises:
        StallwardError: If this machine cannot hold the sandbox.
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
            took_ms = storm.finish()
        recording = load_recording(Path(folder) / "block")
    report("done", 1.0)
    late_ms = recording.tick("timing_late_ms")
    late_ms = late_ms[np.isfinite(late_ms)]
    return {
        "calls_per_s": len(took_ms) / seconds,
        "call_p99_ms": float(np.quantile(took_ms, 0.99)) if took_ms else None,
        "ticks": float(late_ms.size),
        "ticks_kept_share": float(np.mean(late_ms <= KEPT_MS)) if late_ms.size else None,
        "tick_late_worst_ms": float(late_ms.max()) if late_ms.size else None,
    }
