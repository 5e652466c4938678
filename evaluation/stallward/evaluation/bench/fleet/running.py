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
from stallward.evaluation.bench.fleet.nodes_process import (
    SOCKET_NAME,
    NodesRequest,
    NodesResult,
    run_nodes,
)
from stallward.evaluation.errors import BenchError

_PROCESSES: Final = 2
_START_S: Final = 120.0
_END_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNodes:
    """Nodes that run."""

    sockets: dict[str, Path]
    """Name of a node -> the socket of its service."""
    controls: tuple[Connection, ...]

    def stop_ticking(self) -> list[NodesResult]:
        """Let no node tick any more; their services go on."""
        for control in self.controls:
            control.send(None)
        return [control.recv() for control in self.controls]


@contextlib.contextmanager
def running_nodes(count: int, *, twin: str, seed: int, period_s: float) -> Iterator[RunningNodes]:
    """Run simulated nodes until the block ends, which must have stopped their ticks.

    Args:
        count: How many nodes.
        twin: The fitted twin of which each node is a draw.
        seed: Seeds the twins.
        period_s: The time between two ticks of a node.

    Raises:
        BenchError: If they do not start.
    """
    spawn = multiprocessing.get_context("spawn")
    names = [f"node-{k:04d}" for k in range(count)]
    with tempfile.TemporaryDirectory(prefix="fleet") as folder, contextlib.ExitStack() as stack:
        controls = []
        for number in range(_PROCESSES):
            ours, theirs = spawn.Pipe()
            request = NodesRequest(
                folder=Path(folder),
                names=tuple(names[number::_PROCESSES]),
                twin=twin,
                first_seed=(_PROCESSES * seed + number) * count,
                period_s=period_s,
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
        yield RunningNodes(sockets=sockets, controls=tuple(controls))
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
