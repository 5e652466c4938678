"""A process that holds many simulated nodes: for each the whole service, and a loop on a twin."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np

from stallward.actuator.ipc.options import ServiceOptions
from stallward.actuator.service.server import serve
from stallward.benchmarks.fleet.twin_loop import TwinLoop
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.env.twin.node import TwinNode
from stallward.models.registry import find_twin

_SILENCE_S: Final = 10.0
SOCKET_NAME: Final = "s"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesRequest:
    """The nodes of one process."""

    folder: Path
    """Holds a folder for each node."""
    names: tuple[str, ...]
    twin: str
    first_seed: int
    period_s: float
    """The time between two ticks of a node."""
    first_metrics_port: int = 0
    """Metrics of the nodes are served from this port of 127.0.0.1 on; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesResult:
    """What became of the nodes of one process."""

    sent: dict[str, int]
    """How many ticks each loop sent to its service."""
    late_ms: tuple[float, ...]
    """How late each tick began."""
    cpu_s: float
    rss_mib: float


def run_nodes(request: NodesRequest, control: Connection) -> None:
    """Run in a process of its own: serve until something has come from ``control`` twice.

    It sends ``True`` once all nodes tick. After the first message no node ticks any more, and it
    sends a :class:`NodesResult`.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # each service would say what it does
    asyncio.run(_serve_all(request, control))


async def _serve_all(request: NodesRequest, control: Connection) -> None:
    twin = load_fitted(find_twin(request.twin))
    life, end = os.pipe()
    loops, tasks = {}, []
    for number, name in enumerate(request.names):
        loops[name], options = _node(request, name, twin, request.first_seed + number, life)
        tasks.append(asyncio.create_task(serve(options)))
    ticks = _Ticks(request.period_s)
    ticking = [
        asyncio.create_task(ticks.run(loop, place / len(loops)))
        for place, loop in enumerate(loops.values())
    ]
    control.send(True)
    await asyncio.to_thread(control.recv)
    ticks.stopping.set()
    await asyncio.gather(*ticking)
    control.send(
        NodesResult(
            sent={name: loop.sent for name, loop in loops.items()},
            late_ms=tuple(ticks.late_ms),
            cpu_s=time.process_time(),
            rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
        )
    )
    await asyncio.to_thread(control.recv)  # what is on its way is still watched
    os.close(end)
    await asyncio.gather(*tasks)


def _node(
    request: NodesRequest, name: str, twin: FittedTwin, seed: int, life: int
) -> tuple[TwinLoop, ServiceOptions]:
    """Make a loop, and the options of its service."""
    folder, port = request.folder / name, request.first_metrics_port
    folder.mkdir()
    store = folder / "policies"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    draw = twin.draws[int(twin.choose(np.random.default_rng(seed), 1)[0])]
    loop = TwinLoop(TwinNode(twin.scenario, draw, seed=seed), ours, store)
    asyncio.get_running_loop().add_reader(ours.fileno(), loop.answer)
    return loop, ServiceOptions(
        socket=folder / SOCKET_NAME,
        command_fd=theirs.detach(),
        life_fd=os.dup(life),
        silence_s=_SILENCE_S,
        slo_ms=twin.scenario.slo_ms,
        slots=tuple(slot.name for slot in twin.scenario.slots),
        policy_store=store,
        experiments=folder / "experiments",
        metrics=f"127.0.0.1:{port + request.names.index(name)}" if port else "",
    )


class _Ticks:
    """The ticks of all nodes of this process, which take half of its time at most.

    A node's loop has a machine of its own, and its service answers whatever the loop does. Here
    they share a thread: where there are too many nodes for it, they tick later, and still answer.

    Args:
        period_s: The time between two ticks of a node, if there are not too many.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._turn = asyncio.Lock()
        self.stopping = asyncio.Event()
        self.late_ms: list[float] = []
        """How late each tick began."""

    async def run(self, loop: TwinLoop, phase: float) -> None:
        """Tick until it is stopped; ``phase`` spreads the nodes over a period."""
        due_s = time.monotonic() + phase * self._period_s
        while not self.stopping.is_set():
            await asyncio.sleep(max(due_s - time.monotonic(), 0.0))
            async with self._turn:
                if self.stopping.is_set():
                    return
                begin_s = time.monotonic()
                self.late_ms.append((begin_s - due_s) * 1e3)
                loop.tick()
                end_s = time.monotonic()
                await asyncio.sleep(end_s - begin_s)
            due_s = max(due_s + self._period_s, end_s)
