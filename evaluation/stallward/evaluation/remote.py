"""The arms ``remote`` and ``mpc``: a process that decides from the Watch stream, acts by Apply.

``python -m stallward.evaluation.remote --socket SOCKET --policy FILE`` runs until SIGTERM. It
decides with the policy on the observations the daemon sends, and holds a lease that it renews with
every tick; when it dies, the lease lapses and the node goes back to its default. With ``--twin
FILE`` instead it plans with that twin (``stallward.evaluation.mpc.controller``), in a thread, so
that the lease is renewed meanwhile.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import numpy as np

from stallward.actuator.client import ActuatorClient
from stallward.actuator.runtime.process_start import SINGLE_THREADED_MATHS
from stallward.agent.controller import Controller, NodeContext
from stallward.agent.controllers.onnx import OnnxController
from stallward.evaluation.errors import ComparisonError

LEASE_S: Final = 1.0
HOLDER: Final = "remote"
READY: Final = "ready"
_READY_TIMEOUT_S: Final = 20.0
_LEAST_NICE: Final = 19


class _Stop(BaseException):
    """SIGTERM arrived."""


@contextmanager
def remote_controller(
    socket: Path, file: Path, *, twin: bool = False, slo_ms: float = 100.0
) -> Iterator[int]:
    """Run the remote process for the time of the context; yields its pid.

    Args:
        socket: The daemon's.
        file: A policy, or a fitted twin.
        twin: Whether it is a twin, to plan with.
        slo_ms: The target.

    Raises:
        ComparisonError: If it does not come up, or ended before the context did.
    """
    command = [sys.executable, "-m", "stallward.evaluation.remote"]
    command += [
        "--socket",
        str(socket),
        "--twin" if twin else "--policy",
        str(file),
        "--slo-ms",
        f"{slo_ms!r}",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **SINGLE_THREADED_MATHS},
        start_new_session=True,  # Ctrl-C reaches it through us, in order
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if line.strip() != READY:
                raise ComparisonError(f"The remote controller did not start: {_end(process)}")
            yield process.pid
            if process.poll() is not None:
                raise ComparisonError(f"The remote controller ended early: {_end(process)}")
        finally:
            process.terminate()
            try:
                process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                process.kill()


def _end(process: subprocess.Popen[str]) -> str:
    """The last line a dead or dying process said."""
    process.terminate()
    said = process.stderr.read().strip().splitlines() if process.stderr else []
    return said[-1] if said else f"it said nothing (status {process.wait()})."


def control(client: ActuatorClient, controller: Controller, slo_ms: float) -> None:
    """Decide for every tick the daemon reports, until the stream ends."""
    started = False
    for watched in client.watch():
        record, sample = watched.record, watched.record.sample
        if not started:
            controller.reset(
                NodeContext(
                    zone_limit_bytes=sample.zone.memory_limit_bytes or 0,
                    slot_names=tuple(group.name for group in sample.slots),
                    slo_ms=slo_ms,
                )
            )
        decision = controller.decide(sample, np.asarray(record.observation, dtype=np.float32))
        client.apply(decision.desired, lease_s=LEASE_S, holder=HOLDER)
        if not started:
            sys.stdout.write(f"{READY}\n")
            sys.stdout.flush()
            started = True


def _planning(twin: Path) -> Controller:
    """MPC that plans beside the stream, and leaves the processors to whoever else wants them."""
    from stallward.env.twin.inputs.fitted import load_fitted  # noqa: PLC0415 - not of a policy's process
    from stallward.evaluation.mpc.controller import PlanningController  # noqa: PLC0415

    os.nice(_LEAST_NICE)
    return PlanningController(load_fitted(twin))


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _Stop


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m stallward.evaluation.remote")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--slo-ms", type=float, default=100.0)
    runs = parser.add_mutually_exclusive_group(required=True)
    runs.add_argument("--policy", type=Path)
    runs.add_argument("--twin", type=Path)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    controller = OnnxController(options.policy) if options.policy else _planning(options.twin)
    with ActuatorClient(options.socket) as client:
        try:
            control(client, controller, options.slo_ms)
        except _Stop:
            client.release(holder=HOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
