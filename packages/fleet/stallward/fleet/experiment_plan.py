"""One experiment on many nodes: what each of them runs, drawn from one seed. Pure.

Each node runs an experiment of its own, so it needs nobody once it has begun. Which treatment a
node compares with the baseline is drawn, and so is the order of the blocks in each of its pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from stallward.actuator.errors import ExperimentError
from stallward.actuator.experiments.plan import Arm, Candidate, ExperimentPlan
from stallward.actuator.experiments.wire import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """An experiment on many nodes.

    Raises:
        ExperimentError: If there is no treatment, two are the same, or nodes would end by
            themselves.
    """

    plan: ExperimentPlan
    """What each node runs, but for its seed and its treatment."""
    treatments: tuple[Candidate, ...]
    """What is compared with the baseline. Every node runs one of them, all about as many nodes."""
    seed: int
    """All draws follow from it."""

    def __post_init__(self) -> None:
        if not self.treatments or len(set(self.treatments)) < len(self.treatments):
            raise ExperimentError(
                "An experiment on many nodes needs treatments that differ from each other.",
                next_step="Name each of them once.",
            )
        if self.plan.stop_when_certain:
            raise ExperimentError(
                "Nodes that end when they are certain cannot be compared with the others.",
                next_step="Look at the report of all nodes, and stop them together.",
            )

    def for_nodes(self, names: Iterable[str]) -> dict[str, ExperimentPlan]:
        """What each node runs.

        The draws come from digests of the seed and the nodes' names, so they are the same on every
        machine, and the order in which the nodes are named does not matter.
        """
        drawn = sorted(names, key=lambda name: _digest(self.seed, "treatment", name))
        return {
            name: replace(
                self.plan,
                treatment=self.treatments[place % len(self.treatments)],
                seed=_digest(self.seed, "node", name),
                fleet_seed=self.seed,
            )
            for place, name in enumerate(drawn)
        }


def _digest(seed: int, what: str, name: str) -> int:
    """A number of 63 bits."""
    data = hashlib.sha256(f"{seed}/{what}/{name}".encode()).digest()
    return int.from_bytes(data[:8]) >> 1


def newest_of(found: Mapping[str, Experiment]) -> tuple[dict[str, Experiment], dict[str, str]]:
    """The experiment on many nodes that began last.

    Args:
        found: The last experiment of each node.

    Returns:
        What each node that takes part runs or ran, and why each other node does not take part.
    """
    shared = [one for one in found.values() if one.plan.fleet_seed is not None]
    if not shared:
        return {}, dict.fromkeys(found, "its experiment is its own")
    seed = max(shared, key=lambda one: one.began_s).plan.fleet_seed
    part = {name: one for name, one in found.items() if one.plan.fleet_seed == seed}
    others = {
        name: "its experiment is its own"
        if one.plan.fleet_seed is None
        else f"its last experiment is that of the seed {one.plan.fleet_seed}"
        for name, one in found.items()
        if name not in part
    }
    return part, others


def differing_policies(part: Mapping[str, Experiment], asked: Mapping[str, ExperimentPlan]) -> str:
    """Why nodes do not compare the same controllers under the same names; empty if they do.

    Args:
        part: What each node runs; its daemon has found the digests.
        asked: What each node was asked to run.
    """
    first: dict[str, tuple[str, str]] = {}
    for name, experiment in part.items():
        for arm in Arm:
            policy = asked[name].candidate(arm).policy
            sha256 = experiment.plan.candidate(arm).sha256
            node, known = first.setdefault(policy, (name, sha256))
            if sha256 != known:
                return f"{policy} is {known[:12]} on {node} and {sha256[:12]} on {name}"
    return ""
