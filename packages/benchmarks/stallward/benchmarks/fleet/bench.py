"""``stallward bench fleet``: whether one client holds hundreds of nodes, and counts what it loses.

Every simulated node is the whole service, at a Unix socket of its own, with the engine, the guard
and the commands of a real loop on a twin of its own. They share a few processes. One client
watches them all, starts an experiment on them, asks each for its status meanwhile, and gathers the
blocks. At the end it takes nothing for a while, so that ticks must be lost, and every tick of
every node has to be accounted for.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import numpy as np

from stallward.actuator.experiments.block_tally import Loss
from stallward.actuator.experiments.plan import MIN_BLOCK_S, Candidate, ExperimentPlan
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import Experiment
from stallward.agent.errors import StallwardError
from stallward.benchmarks.errors import BenchError
from stallward.benchmarks.fleet.nodes_process import NodesResult
from stallward.benchmarks.fleet.running import RunningNodes, running_nodes
from stallward.benchmarks.fleet.twin_loop import TICK_S
from stallward.fleet import Fleet, FleetWatch, TickCount, experiments
from stallward.fleet.experiment_plan import FleetPlan
from stallward.fleet.experiments import named
from stallward.training.progress import Report, silent

TREATMENT: Final = "controller:pi"
_WAITING_PER_NODE: Final = 5
_WAIT_S: Final = 60.0
_LOOK_S: Final = 0.5
_CALLS_PER_S: Final = 50.0
_BURN_IN_S: Final = 2.0
_SPARE_TICKS: Final = 4
"""How many ticks more than planned a block may take: the arms have to change places."""

MEANINGS: Final = {
    "nodes": "simulated nodes, each with a service and a twin of its own",
    "start_s": "seconds to start the experiment on all of them",
    "ticks_sent": "ticks that the nodes sent while they were watched",
    "ticks_received": "ticks that the client received",
    "ticks_lost": "ticks that it was told are lost, because it took nothing for a while",
    "ticks_uncounted": "ticks that it neither received nor was told of",
    "calm_lost": "ticks lost before that, while it took what came",
    "ticks_per_s": "ticks received per second before that",
    "late_p99_ms": "how late the nodes' ticks began, 99th percentile",
    "calls": "Status calls meanwhile that were answered, one node after the other",
    "call_p50_ms": "time of one call, median",
    "call_p99_ms": "time of one call, 99th percentile",
    "blocks_kept": "blocks of the experiment that count, of all nodes",
    "blocks_lost": "blocks that were lost",
    "nodes_complete": "nodes that ran all their pairs",
    "client_cores": "processor time of the client per second",
    "nodes_cores": "the same of the processes of the nodes, from their start on",
    "node_rss_mib": "memory of those processes per node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """What is simulated."""

    nodes: int = 200
    pairs: int = 1
    """How many pairs of blocks each node runs."""
    period_s: float = TICK_S
    """The time between two ticks of a node."""
    paused_ticks: int = 200
    """How many ticks of each node pass while the client takes none, so that what the daemons hold
    for it overflows."""
    twin: str = "detector-anon"
    """The fitted twin of which each node is a draw."""
    seed: int = 1

    @property
    def plan(self) -> FleetPlan:
        """The experiment; what is drawn for it is drawn each time."""
        plan = ExperimentPlan(
            baseline=Candidate(),
            treatment=Candidate(policy=TREATMENT),
            pairs=self.pairs,
            block_s=MIN_BLOCK_S,
            burn_in_s=_BURN_IN_S,
            seed=secrets.randbits(63),
        )
        return FleetPlan(plan=plan, treatments=(plan.treatment,), seed=plan.seed)

    @property
    def experiment_s(self) -> float:
        """How long the experiment takes."""
        ticks = (MIN_BLOCK_S + _BURN_IN_S) / TICK_S + _SPARE_TICKS
        return 2.0 * self.pairs * ticks * self.period_s


class _Taker(threading.Thread):
    """Takes the ticks of a watch, unless it is paused.

    Args:
        watch: The watch.
    """

    def __init__(self, watch: FleetWatch) -> None:
        super().__init__(daemon=True)
        self._watch = watch
        self.going, self.ending = threading.Event(), threading.Event()
        self.going.set()

    def run(self) -> None:
        """Take ticks until the end."""
        while not self.ending.is_set():
            self.going.wait()
            self._watch.next(0.1)


class _Caller(threading.Thread):
    """Asks one node after the other for its status, at a steady pace.

    Args:
        fleet: The nodes.
    """

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(daemon=True)
        self._clients = list(fleet.clients.values())
        self.ending = threading.Event()
        self.durations_ms: list[float] = []

    def run(self) -> None:
        """Call until the end."""
        due_s = time.monotonic()
        for client in cycle(self._clients):
            if self.ending.wait(max(due_s - time.monotonic(), 0.0)):
                return
            begin_s = time.monotonic()
            with contextlib.suppress(StallwardError):  # a busy node may not answer in time
                client.status()
                self.durations_ms.append((time.monotonic() - begin_s) * 1e3)
            due_s += 1.0 / _CALLS_PER_S


def bench_fleet(settings: FleetSettings, report: Report = silent) -> dict[str, float | None]:
    """Run the nodes and the client, and return the figures, by the keys of :data:`MEANINGS`.

    Raises:
        BenchError: If the nodes do not start, or are not all watched in time.
        FleetError: If the experiment cannot be started.
    """
    report("starting nodes", 0.0)
    begin_s = time.monotonic()
    with (
        running_nodes(
            settings.nodes, twin=settings.twin, seed=settings.seed, period_s=settings.period_s
        ) as nodes,
        Fleet(nodes.sockets) as fleet,
        FleetWatch(fleet, waiting=_WAITING_PER_NODE * settings.nodes) as watch,
    ):
        taker = _Taker(watch)
        taker.start()
        counts = watch.counts
        if not _waited(lambda: all(one.received for one in counts.values())):
            raise BenchError(
                f"Not all nodes were watched within {_WAIT_S:g} s.",
                next_step="Ask for fewer with --nodes.",
            )
        figures = _calm(fleet, counts, settings, report)
        results = _paused(nodes, fleet, taker, counts, settings, report)
    lost = sum(one.lost for one in counts.values())
    sent = sum(n - counts[name].first for one in results for name, n in one.sent.items())
    late_ms = [ms for one in results for ms in one.late_ms]
    figures |= {
        "ticks_sent": float(sent),
        "ticks_received": float(_received(counts)),
        "ticks_lost": float(lost),
        "ticks_uncounted": float(sent - _received(counts) - lost),
        "late_p99_ms": float(np.quantile(late_ms, 0.99)),
        "nodes_cores": sum(one.cpu_s for one in results) / (time.monotonic() - begin_s),
        "node_rss_mib": sum(one.rss_mib for one in results) / settings.nodes,
    }
    return {key: figures[key] for key in MEANINGS}


def _calm(
    fleet: Fleet, counts: Mapping[str, TickCount], settings: FleetSettings, report: Report
) -> dict[str, float | None]:
    """Run the experiment while everything that comes is taken."""
    begin_s, begin_cpu_s, before = time.monotonic(), time.process_time(), _received(counts)
    experiments.start(fleet, settings.plan)
    start_s = time.monotonic() - begin_s
    caller = _Caller(fleet)
    caller.start()
    _pause(settings.experiment_s, report)
    seen: list[Experiment] = []

    def ended() -> bool:
        seen[:] = [one for one in experiments.gather(fleet).given.values() if one is not None]
        return all(one.progress is not Progress.RUNNING for one in seen)

    _waited(ended)
    caller.ending.set()
    caller.join()
    calm_s, times_ms = time.monotonic() - begin_s, caller.durations_ms
    figures: dict[str, float | None] = {
        "nodes": float(settings.nodes),
        "start_s": start_s,
        "calm_lost": float(sum(one.lost for one in counts.values())),
        "ticks_per_s": (_received(counts) - before) / calm_s,
        "client_cores": (time.process_time() - begin_cpu_s) / calm_s,
        "calls": float(len(times_ms)),
        "call_p50_ms": float(np.quantile(times_ms, 0.5)) if times_ms else None,
        "call_p99_ms": float(np.quantile(times_ms, 0.99)) if times_ms else None,
    }
    return figures | _blocks(seen)


def _blocks(seen: Sequence[Experiment]) -> dict[str, float | None]:
    blocks = [block for one in seen for block in one.blocks]
    kept = sum(block.loss is Loss.NONE for block in blocks)
    return {
        "blocks_kept": float(kept),
        "blocks_lost": float(len(blocks) - kept),
        "nodes_complete": float(sum(one.progress is Progress.COMPLETE for one in seen)),
    }


def _paused(
    nodes: RunningNodes,
    fleet: Fleet,
    taker: _Taker,
    counts: Mapping[str, TickCount],
    settings: FleetSettings,
    report: Report,
) -> list[NodesResult]:
    """Take nothing for a while, and then all that is left."""
    taker.going.clear()
    begin = _fewest_ticks(fleet)
    while (passed := _fewest_ticks(fleet) - begin) < settings.paused_ticks:
        report("taking nothing", 0.5 + 0.4 * passed / settings.paused_ticks)
        time.sleep(_LOOK_S)
    taker.going.set()
    results = nodes.stop_ticking()
    sent = {name: number for one in results for name, number in one.sent.items()}
    # What has not come by then is what is not counted.
    _waited(lambda: all(counts[name].last == number - 1 for name, number in sent.items()))
    taker.ending.set()
    taker.join()
    return results


def _fewest_ticks(fleet: Fleet) -> int:
    """How many ticks the slowest node has made.

    Raises:
        BenchError: If a node does not answer.
    """
    answers = fleet.ask(lambda _name, client: client.status().ticks)
    if answers.failed:
        raise BenchError(f"Nodes do not answer any more. {named(answers.failed)}")
    return min(answers.given.values())


def _received(counts: Mapping[str, TickCount]) -> int:
    return sum(one.received for one in counts.values())


def _pause(length_s: float, report: Report) -> None:
    """Let the experiment run."""
    end_s = time.monotonic() + length_s
    while (left_s := end_s - time.monotonic()) > 0.0:
        report("watching", 0.1 + 0.4 * (1.0 - left_s / length_s))
        time.sleep(min(left_s, _LOOK_S))


def _waited(done: Callable[[], bool]) -> bool:
    """Wait until something is so; returns whether it became so in time."""
    end_s = time.monotonic() + _WAIT_S
    while not done():
        if time.monotonic() > end_s:
            return False
        time.sleep(_LOOK_S)
    return True
