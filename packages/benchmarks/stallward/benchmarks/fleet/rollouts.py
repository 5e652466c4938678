"""``stallward bench rollout``: a policy in waves to a thousand simulated nodes, by one client.

Every node is the whole service with the engine, the guard and the commands of a real loop on a
twin of its own, as in ``stallward bench fleet``. Two rollouts follow each other. The first is of a
policy that holds nothing back, under which the target is missed; the second is of the shipped
policy, which is sent to every node. After each, all nodes are asked what decides on them, and that
is compared with what the rollout's file says.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from stallward.actuator.client import DaemonStatus
from stallward.actuator.policies.named_controller import PREFIX, digest_of
from stallward.benchmarks.fleet.running import running_nodes
from stallward.fleet import Fleet
from stallward.fleet.rollout.node_calls import PushedPolicy, runs
from stallward.fleet.rollout.plan import (
    RolloutPlan,
    WaveRules,
    drawn_order,
    parse_waves,
)
from stallward.fleet.rollout.progress import NodeState, Progress
from stallward.fleet.rollout.rollout import Rollout, digest
from stallward.models.registry import find_policy
from stallward.training.progress import Report, silent

BAD: Final = "none"
"""The controller of the first rollout."""
_MARGIN: Final = 0.10
"""The good policy may keep the target at so much less of the looks. The shipped one lends memory,
and right after a switch it does so by a few points; the bad one does so by most of them."""
_ROUNDS: Final = 5
"""How often all nodes are asked."""
_AGAIN_S: Final = 5.0
"""How long after those that did not answer are asked again: their loops may be busy as long."""
_PERIODS: Final = 4
_LEAST_COUNT_S: Final = 2.0

MEANINGS: Final = {
    "nodes": "simulated nodes, each with a service and a twin of its own",
    "start_s": "seconds until all of them served",
    "period_s": "seconds between two ticks of a node, counted before the rollouts",
    "bad_switched": "nodes that had the bad policy when it was stopped",
    "bad_waves": "waves that had begun by then",
    "bad_s": "seconds until all nodes were back, of which the fleet was watched before",
    "bad_back": "nodes that were put back, and on which what decided before decides",
    "bad_uncounted": "nodes on which something else decides than the file says",
    "bad_unsure": "nodes that did not answer in the end: the file says that they may run it",
    "good_active": "nodes on which the good policy decides at the end",
    "good_s": "seconds that its rollout took",
    "good_switch_s": "seconds of that in which nodes were switched",
    "good_uncounted": "nodes on which something else decides than the file says",
    "good_unsure": "nodes that did not answer in the end: the file says that they may run it",
    "look_s": "seconds to look once at all nodes, median",
    "file_mib": "size of the file of the good policy's rollout",
    "client_cores": "processor time of the client per second of the two rollouts",
    "client_rss_mib": "memory of the client at most",
    "late_p99_ms": "how late the nodes' ticks began, 99th percentile",
    "nodes_cores": "processor time of the nodes' processes per second",
    "node_rss_mib": "memory of those processes per node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """What is simulated."""

    nodes: int = 1000
    waves: str = "1,5%,25%,100%"
    period_s: float = 2.5
    """The time between two ticks of a node, if the machine is not too small for that."""
    watch_ticks: int = 40
    """For how many ticks each wave is watched."""
    twin: str = "detector-anon"
    """The fitted twin of which each node is a draw."""
    seed: int = 1

    def rules(self, period_s: float) -> WaveRules:
        """How a wave is watched if a node ticks every ``period_s``: every tick is looked at."""
        return WaveRules(watch_s=self.watch_ticks * period_s, look_s=period_s, margin=_MARGIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """What became of one rollout."""

    progress: Progress
    uncounted: int
    length_s: float
    switch_s: float
    file_bytes: int


def bench_rollout(settings: RolloutSettings, report: Report = silent) -> dict[str, float | None]:
    """Run the nodes and the client, and return the figures, by the keys of :data:`MEANINGS`.

    Raises:
        BenchError: If the nodes do not start.
        RolloutError: If the waves do not fit the nodes.
    """
    report("starting nodes", 0.0)
    begin_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="rollout") as folder,
        running_nodes(
            settings.nodes, twin=settings.twin, seed=settings.seed, period_s=settings.period_s
        ) as nodes,
        Fleet(nodes.sockets) as fleet,
    ):
        start_s = time.monotonic() - begin_s
        period_s = _counted_period_s(fleet, settings.period_s)
        order = drawn_order(fleet.clients, settings.seed)
        waves, rules = parse_waves(settings.waves, len(order)), settings.rules(period_s)
        begin_cpu_s, began_s = time.process_time(), time.monotonic()
        report("a bad policy", 0.1)
        bad_plan = RolloutPlan(
            policy=f"{PREFIX}{BAD}",
            name="",
            sha256=digest_of(BAD),
            nodes=order,
            waves=waves,
            rules=rules,
        )
        bad = _roll_out(fleet, bad_plan, None, Path(folder) / "bad.jsonl")
        report("a good policy", 0.4)
        content = Path(find_policy("default")).read_bytes()
        sha256 = digest(content)
        good_plan = replace(bad_plan, policy=sha256, name="default", sha256=sha256)
        pushed = PushedPolicy(content=content, name="default")
        good = _roll_out(fleet, good_plan, pushed, Path(folder) / "good.jsonl")
        client_cores = (time.process_time() - begin_cpu_s) / (time.monotonic() - began_s)
        report("looking", 0.9)
        looks_s = [_look_s(fleet) for _ in range(_ROUNDS)]
        results = nodes.stop_ticking()
    late_ms = [ms for one in results for ms in one.late_ms]
    figures = {
        "nodes": float(settings.nodes),
        "start_s": start_s,
        "period_s": period_s,
        "bad_switched": float(len(bad.progress.found)),
        "bad_waves": float(bad.progress.wave + 1),
        "bad_s": bad.length_s,
        "bad_back": float(bad.progress.counts[NodeState.BACK]),
        "bad_uncounted": float(bad.uncounted),
        "bad_unsure": float(bad.progress.counts[NodeState.UNSURE]),
        "good_active": float(good.progress.counts[NodeState.ACTIVE]),
        "good_s": good.length_s,
        "good_switch_s": good.switch_s,
        "good_uncounted": float(good.uncounted),
        "good_unsure": float(good.progress.counts[NodeState.UNSURE]),
        "look_s": statistics.median(looks_s),
        "file_mib": good.file_bytes / 2**20,
        "client_cores": client_cores,
        "client_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
        "late_p99_ms": float(np.quantile(late_ms, 0.99)),
        "nodes_cores": sum(one.cpu_s for one in results) / (time.monotonic() - begin_s),
        "node_rss_mib": sum(one.rss_mib for one in results) / settings.nodes,
    }
    return {key: figures[key] for key in MEANINGS}


def _counted_period_s(fleet: Fleet, wanted_s: float) -> float:
    """The time between two ticks of a node, by how many there are; at least ``wanted_s``."""

    def ticks() -> dict[str, int]:
        given = fleet.ask(lambda _name, client: client.status()).given
        return {
            name: status.last_tick.sequence
            for name, status in given.items()
            if status.last_tick is not None
        }

    time.sleep(wanted_s)  # so that each has ticked
    begin_s, before = time.monotonic(), ticks()
    time.sleep(max(_PERIODS * wanted_s, _LEAST_COUNT_S))
    length_s, after = time.monotonic() - begin_s, ticks()
    counts = [after[name] - before[name] for name in after.keys() & before.keys()]
    return max(length_s * len(counts) / max(sum(counts), 1), wanted_s)


def _roll_out(fleet: Fleet, plan: RolloutPlan, pushed: PushedPolicy | None, path: Path) -> _Ran:
    """Roll one policy out, and ask all nodes afterwards what decides on them."""
    begin_s, told = time.monotonic(), [(0.0, "")]

    def tell(text: str) -> None:
        told.append((time.monotonic(), text))

    with Rollout(path, plan) as rollout:
        rollout.run(fleet, pushed, tell)
    end_s = time.monotonic()
    switch_s = sum(
        next(at for at, _ in [*told[number + 1 :], (end_s, "")]) - begun
        for number, (begun, text) in enumerate(told)
        if ": switching" in text
    )
    return _Ran(
        progress=rollout.progress,
        uncounted=_uncounted(fleet, rollout.progress),
        length_s=end_s - begin_s,
        switch_s=switch_s,
        file_bytes=path.stat().st_size,
    )


def _uncounted(fleet: Fleet, progress: Progress) -> int:
    """How many nodes say that something else decides than the rollout's file says.

    On a machine that is too small for its nodes some do not answer in time, and are asked again.
    Those that never answer count as well. Of nodes that the file is unsure about, either is right.
    """
    given: dict[str, DaemonStatus] = {}
    for tries_left in reversed(range(_ROUNDS)):
        left = [name for name in fleet.clients if name not in given]
        given |= fleet.ask(lambda _name, client: client.status(), left).given
        if len(given) == len(fleet.clients) or not tries_left:
            break
        time.sleep(_AGAIN_S)
    wrong = len(fleet.clients) - len(given)
    for name, status in given.items():
        state, active = progress.states[name], runs(status, progress.plan.sha256)
        wrong += state is not NodeState.UNSURE and active is not (state is NodeState.ACTIVE)
    return wrong


def _look_s(fleet: Fleet) -> float:
    begin_s = time.monotonic()
    fleet.ask(lambda _name, client: client.status())
    return time.monotonic() - begin_s
