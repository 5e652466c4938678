"""Starts the processes of the simulated nodes, and always stops them again."""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from stallward.actuator.runtime.process_start import safe_imports
from stallward.benchmarks.errors import BenchError
from stallward.benchmarks.fleet.nodes_process import (
    SOCKET_NAME,
    NodesRequest,
    NodesResult,
    run_nodes,
)

_PROCESSES: Final = 2
_START_S: Final = 120.0
_END_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNodes:
    """Nodes that run."""

    sockets: dict[str, Path]
    """Name of a node -> the socket of its service."""
    metrics: tuple[str, ...]
    """The addresses of the metrics, if they are served."""
    controls: tuple[Connection, ...]

    def stop_ticking(self) -> list[NodesResult]:
        """Let no node tick any more; their services still run."""
        for control in self.controls:
            control.send(None)
        return [control.recv() for control in self.controls]


@contextlib.contextmanager
def running_nodes(
    count: int, *, twin: str, seed: int, period_s: float, first_metrics_port: int = 0
) -> Iterator[RunningNodes]:
    """Run simulated nodes until the block ends, which must have stopped their ticks.

    Args:
        count: How many nodes.
        twin: The fitted twin of which each node is a draw.
        seed: Seeds the twins.
        period_s: The time between two ticks of a node.
        first_metrics_port: Metrics are served from this port of 127.0.0.1 on; 0 for none.

    Raises:
        BenchError: If they do not start.
    """
    spawn = multiprocessing.get_context("spawn")
    names = [f"node-{k:04d}" for k in range(count)]
    parts = [tuple(names[number::_PROCESSES]) for number in range(_PROCESSES)]
    ports = [
        first_metrics_port and first_metrics_port + sum(map(len, parts[:number]))
        for number in range(_PROCESSES)
    ]
    with tempfile.TemporaryDirectory(prefix="fleet") as folder, contextlib.ExitStack() as stack:
        controls = []
        for number in range(_PROCESSES):
            ours, theirs = spawn.Pipe()
            request = NodesRequest(
                folder=Path(folder),
                names=parts[number],
                twin=twin,
                first_seed=(_PROCESSES * seed + number) * count,
                period_s=period_s,
                first_metrics_port=ports[number],
            )
            process = spawn.Process(target=run_nodes, args=(request, theirs), daemon=True)
            with safe_imports():
                process.start()
            theirs.close()
            stack.callback(process.kill)
            stack.callback(process.join, _END_S)
            stack.callback(ours.close)  # first: it ends a process that waits for more
            controls.append(ours)
        for control in controls:
            _wait_for(control)
        sockets = {name: Path(folder) / name / SOCKET_NAME for name in names}
        metrics = range(first_metrics_port, first_metrics_port + count)
        yield RunningNodes(
            sockets=sockets,
            metrics=tuple(f"127.0.0.1:{port}" for port in metrics if first_metrics_port),
            controls=tuple(controls),
        )
        for control in controls:
            control.send(None)


def _wait_for(control: Connection) -> None:
    """Wait until the nodes of a process tick.

    Raises:
        BenchError: If they do not.
    """
    try:
        if control.poll(_START_S):
            control.recv()
            return
    except EOFError:  # the process has ended
        pass
    raise BenchError(
        f"The nodes did not start within {_START_S:g} s.", next_step="Ask for fewer with --nodes."
    )
