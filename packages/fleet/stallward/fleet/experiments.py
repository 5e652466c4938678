"""Starting, following and stopping one experiment on many nodes.

The nodes keep and run their experiments by themselves, so nothing is lost if this client ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stallward.actuator.client.client import ActuatorClient
from stallward.actuator.errors import RequestError
from stallward.actuator.experiments.plan import ExperimentPlan
from stallward.actuator.experiments.state import Progress
from stallward.actuator.experiments.wire import Experiment
from stallward.agent.errors import StallwardError
from stallward.fleet.connections import Answers, Fleet
from stallward.fleet.errors import FleetError
from stallward.fleet.experiment_plan import FleetPlan, differing_policies

_NAMED: Final = 10
"""At most so many nodes are named in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What came of starting an experiment on many nodes."""

    experiments: dict[str, Experiment]
    """What each node runs."""
    refused: dict[str, StallwardError]
    """Why other nodes run nothing; empty unless that was allowed."""
    left: dict[str, StallwardError]
    """Which of those may run it all the same, and why they could not be stopped."""


def start(fleet: Fleet, wanted: FleetPlan, *, partly: bool = False) -> Started:
    """Start an experiment on all nodes, or on none.

    All nodes are asked first whether they can. If one cannot start all the same, those that did
    are stopped again, and what was in force on them before is put back.

    Args:
        fleet: The nodes.
        wanted: The experiment.
        partly: Whether to go on with the nodes that can, if there is one.

    Raises:
        FleetError: If nodes refuse; the message names them. None runs the experiment then, but for
            those that it says could not be stopped again.
    """
    plans = wanted.for_nodes(fleet.clients)
    refused = fleet.ask(_check).failed
    if refused and not (partly and len(refused) < len(plans)):
        raise _refusal(refused, len(plans))
    able = [name for name in fleet.clients if name not in refused]
    try:
        begun = fleet.ask(lambda name, client: _begin(client, plans[name]), able)
        unlike = differing_policies(begun.given, plans)
        if unlike:
            raise FleetError(
                f"Nodes have different policies under one name: {unlike}.",
                next_step="Push the same file to all of them.",
            )
        if begun.failed and not (partly and begun.given):
            raise _refusal(begun.failed, len(plans))
    except BaseException as error:  # also Ctrl-C: none may be left with half an experiment
        left = _roll_back(fleet, able, wanted.seed)
        if left:
            raise _left_running(left) from error
        raise
    # A node that refused may run it all the same, if only its answer was lost.
    left = _roll_back(fleet, begun.failed, wanted.seed)
    return Started(experiments=begun.given, refused=refused | begun.failed, left=left)


def _check(_name: str, client: ActuatorClient) -> None:
    """Ask a node whether it could start an experiment now.

    Raises:
        DaemonError: If it could not.
    """
    last = client.experiments.get()
    if last is not None and last.progress is Progress.RUNNING:
        raise RequestError("An experiment runs already.")


def _begin(client: ActuatorClient, plan: ExperimentPlan) -> Experiment:
    """Start a node's part.

    Raises:
        DaemonError: If it cannot be started.
        PolicyError: If there is no such policy.
    """
    begun = client.experiments.start(plan)
    if begun.plan.fleet_seed != plan.fleet_seed:
        client.experiments.stop()
        raise RequestError(
            "Its daemon does not know experiments on many nodes.",
            next_step="Install the version of this client there.",
        )
    return begun


def _roll_back(fleet: Fleet, names: Iterable[str], seed: int) -> dict[str, StallwardError]:
    """Stop the experiment of a seed; returns where it may still run, and why."""
    return fleet.ask(lambda _name, client: _stop_part(client, seed), names).failed


def _stop_part(client: ActuatorClient, seed: int | None = None) -> Experiment | None:
    """Stop a node's part of an experiment on many nodes, if it runs one.

    Args:
        client: The connection to the node.
        seed: The seed of the experiment; ``None`` for any.
    """
    last = client.experiments.get()
    if last is None or last.progress is not Progress.RUNNING or last.plan.fleet_seed is None:
        return None
    if seed is not None and last.plan.fleet_seed != seed:
        return None
    return client.experiments.stop()


def gather(fleet: Fleet) -> Answers[Experiment | None]:
    """The experiment of each node that runs, or else its last one; ``None`` if it had none."""
    return fleet.ask(lambda _name, client: client.experiments.get())


def stop(fleet: Fleet) -> Answers[Experiment | None]:
    """Stop the experiment on all nodes that run a part of one.

    Returns:
        What each node ran, ``None`` where it ran no part of one; and which nodes may still run
        theirs.
    """
    return fleet.ask(lambda _name, client: _stop_part(client))


def named(reasons: Mapping[str, StallwardError]) -> str:
    """The reasons of nodes as one text; at most some of them are named."""
    texts = [f"{name}: {error.cause}" for name, error in list(reasons.items())[:_NAMED]]
    more = len(reasons) - len(texts)
    return " ".join([*texts, f"({more} more.)"] if more else texts)


def _refusal(refused: Mapping[str, StallwardError], nodes: int) -> FleetError:
    return FleetError(
        f"{len(refused)} of {nodes} nodes cannot start it, so none runs it. {named(refused)}",
        next_step="Give --partly to go on with the others.",
    )


def _left_running(left: Mapping[str, StallwardError]) -> FleetError:
    return FleetError(
        f"It was not started on all nodes, and may still run on {len(left)} that could not be "
        f"stopped again. {named(left)}",
        next_step="Stop it when they answer: stallward ab stop --nodes FILE.",
    )
