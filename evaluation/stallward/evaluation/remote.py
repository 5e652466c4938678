"""The arms ``remote`` and ``mpc``: a process that reads the Watch stream and acts by Apply.

``python -P -m stallward.evaluation.remote --socket SOCKET --policy FILE`` runs until SIGTERM. It
decides with the policy on the observations that the daemon sends, and holds a lease that it renews
every tick. If it dies, the lease expires and the daemon's own controller decides again. With
``--twin FILE`` instead of ``--policy`` it plans with that twin
(the controller ``mpc``, of the package ``research``). It plans in a thread, so that the lease is renewed
meanwhile.
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
from stallward.actuator.runtime.process_start import SINGLE_THREADED_MATHS, interpreter
from stallward.agent.controller import Controller, NodeContext
from stallward.agent.controllers.onnx import OnnxController
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.evaluation.errors import ComparisonError
from stallward.evaluation.planner import find_planner

LEASE_S: Final = 1.0
HOLDER: Final = "remote"
READY: Final = "ready"
_READY_TIMEOUT_S: Final = 20.0
_LOWEST_PRIORITY: Final = 19
"""The niceness of the process while it plans."""


class _Stop(BaseException):
    """Raised on SIGTERM."""


@contextmanager
def remote_controller(
    socket: Path, file: Path, *, twin: bool = False, slo_ms: float = 100.0
) -> Iterator[int]:
    """Run the remote process for the time of the context, and yield its pid.

    Args:
        socket: The daemon's socket.
        file: A policy, or a fitted twin.
        twin: Whether the file is a fitted twin to plan with.
        slo_ms: The target.

    Raises:
        ComparisonError: If the process does not start, or ends before the context.
    """
    command = [*interpreter(), "-m", "stallward.evaluation.remote"]
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
        start_new_session=True,  # so that Ctrl-C does not reach it before this process
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if line.strip() != READY:
                raise ComparisonError(
                    f"The remote controller did not start: {_last_words(process)}"
                )
            yield process.pid
            if process.poll() is not None:
                raise ComparisonError(f"The remote controller ended early: {_last_words(process)}")
        finally:
            process.terminate()
            try:
                process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                process.kill()


def _last_words(process: subprocess.Popen[str]) -> str:
    """Terminate the process, and return the last line that it wrote to stderr."""
    process.terminate()
    lines = process.stderr.read().strip().splitlines() if process.stderr else []
    return lines[-1] if lines else f"it said nothing (status {process.wait()})."


def control(client: ActuatorClient, controller: Controller, slo_ms: float) -> None:
    """Decide for every tick that the daemon reports, until the stream ends."""
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


def _planning_controller(twin: Path) -> Controller:
    """Make the MPC that plans in a thread, and give this process the lowest CPU priority."""
    os.nice(_LOWEST_PRIORITY)
    return find_planner("mpc").beside(load_fitted(twin))


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _Stop


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m stallward.evaluation.remote")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--slo-ms", type=float, default=100.0)
    files = parser.add_mutually_exclusive_group(required=True)
    files.add_argument("--policy", type=Path)
    files.add_argument("--twin", type=Path)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    controller = (
        OnnxController(options.policy) if options.policy else _planning_controller(options.twin)
    )
    with ActuatorClient(options.socket) as client:
        try:
            control(client, controller, options.slo_ms)
        except _Stop:
            client.release(holder=HOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
