"""A look at the pods that a configuration names: who has which place, and what is in the way."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.doctor.finding import Finding, PodsFound, finding
from stallward.actuator.errors import ActuatorError, NodeError
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.targets.config import PodConfig, keys_of
from stallward.actuator.targets.messages import MOST_ODD
from stallward.kubernetes.assign import Assignment, Placed, assign
from stallward.kubernetes.errors import PodsError
from stallward.kubernetes.identity import believed
from stallward.kubernetes.kubelet_findings import try_kubelet
from stallward.kubernetes.probes import ANSWER_S
from stallward.kubernetes.store import PodSource, PodStore
from stallward.kubernetes.watcher import PodFinder, make_source


def examine(config: DaemonConfig) -> PodsFound:
    """Look at the pods that a configuration names, and at what the kubelet is told."""
    found = try_pods(config)
    return replace(found, findings=(*found.findings, *try_kubelet(config)))


def try_pods(config: DaemonConfig, environment: Mapping[str, str] = os.environ) -> PodsFound:
    """Look the pods up once, as the daemon does all the time.

    Args:
        config: The configuration.
        environment: Where the node's name and the cluster's server are looked up.
    """
    if not config.follows_pods:
        return PodsFound()
    try:
        source = make_source(config.kubernetes, environment)
        assignment, left_out = _look(config, source)
    except (NodeError, PodsError) as error:
        fault = Finding(
            area="configuration",
            name="pods",
            state="missing",
            why=error.cause,
            next_step=error.next_step,
        )
        return PodsFound(findings=(fault,), obstacle=str(error))
    background = [placed for place in assignment.slots for placed in place]
    findings = (
        *_known(source, left_out),
        *_places(config, assignment),
        *_crowd(assignment),
        *_pauses(assignment, config),
        *_swap(background, detect(config.node.paths)),
    )
    addresses = tuple("" if one is None else one.pod.address for one in assignment.protected)
    return PodsFound(findings=findings, protected_addresses=addresses)


def _look(config: DaemonConfig, source: PodSource) -> tuple[Assignment, tuple[str, ...]]:
    """Look the pods up and give them their places; also return why others are left out.

    Raises:
        PodsError: If they cannot be looked up.
    """
    slots = [slot.pod for slot in config.background]
    store = PodStore(keys_of((*config.protected_pods, *slots)))
    source.look(store)
    finder = PodFinder(detect(config.node.paths), config.kubernetes.cgroup_parent, os.getpid())
    pods, left_out = believed(store.read().pods)
    return assign(pods, finder.group_of, config.protected_pods, slots, Assignment()), left_out


def _known(source: PodSource, left_out: tuple[str, ...]) -> Iterator[Finding]:
    """Where pods are looked up, and which are left out."""
    yield Finding(area="configuration", name="source of pods", state="works", why=source.name)
    if left_out:
        more = "; ..." if len(left_out) > MOST_ODD else ""
        yield Finding(
            area="configuration",
            name="pods left out",
            state="degraded",
            why=f"{len(left_out)}: {'; '.join(left_out[:MOST_ODD])}{more}",
            next_step="Look at these pods and who made them. They are neither protected nor held "
            "back.",
        )


def _places(config: DaemonConfig, assignment: Assignment) -> Iterator[Finding]:
    """Which pod has which place."""
    places = (() if one is None else (one,) for one in assignment.protected)
    named: list[tuple[str, PodConfig | None, tuple[Placed, ...]]] = [
        (one.name, one.pod, place) for one, place in zip(config.applications, places, strict=True)
    ]
    applications = {one.name for one in config.applications}
    slots = zip(config.background, assignment.slots, strict=True)
    named += [(slot.name, slot.pod, place) for slot, place in slots]
    for name, wanted, place in named:
        if wanted is None:
            continue
        works = "; ".join(f"{placed.pod}, {placed.group}" for placed in place) or "no pod now"
        fault = f"no pod with {wanted} runs here now, so nothing is held back"
        yield finding(
            "configuration",
            f"pod of {name}",
            fault if not place and name in applications else "",
            "Mark one, or correct its pod under [protected].",
            works=works,
        )


def _crowd(assignment: Assignment) -> Iterator[Finding]:
    """Pods that match and have no place."""
    if assignment.surplus:
        yield Finding(
            area="configuration",
            name="slots",
            state="degraded",
            why=f"{assignment.surplus} more pods match a slot than there is room for",
            next_step="Write a larger pod.slots, or let pods share slots (pod.group_by). The "
            "others are left alone.",
        )
    if assignment.beside:
        yield Finding(
            area="configuration",
            name="protected",
            state="degraded",
            why=f"{assignment.beside} more pods match it; the stalls of one of them count",
            next_step="Spread the replicas over nodes, or select one.",
        )


def _pauses(assignment: Assignment, config: DaemonConfig) -> Iterator[Finding]:
    """Slots whose pods cannot be paused as configured without a restart by the kubelet."""
    most_s = config.guard.max_pause_s
    shortest_s = config.control.tick_period_s + config.guard.late_allowance_s
    bounds_s = [min(slot.max_pause_s or most_s, most_s) for slot in config.background]
    places = zip(assignment.slots, bounds_s, strict=True)
    for placed, max_pause_s in [(one, bound_s) for place, bound_s in places for one in place]:
        budget = placed.pod.pause
        if budget is None or budget.longest_s >= max_pause_s:
            continue
        if budget.longest_s < shortest_s:
            why = f"it is never paused, only limited: a pause of {shortest_s:g} s could have "
            why += "the kubelet restart it"
            step = "Raise timeoutSeconds, periodSeconds or failureThreshold of its livenessProbe. "
            step += "If it has a startupProbe, it is paused once that has succeeded."
        else:
            why = f"its probes and its grace period allow pauses of {budget.longest_s:g} s, at "
            why += f"most {budget.share:.0%} of the time: the kubelet could restart it after "
            why += f"longer ones, or kill it in one (max_pause_s is {max_pause_s:g} s)"
            least_s = math.ceil(max_pause_s + ANSWER_S)
            grace_s = math.ceil(2.0 * max_pause_s)
            step = f"Let timeoutSeconds of its livenessProbe be {least_s}, and its "
            step += f"terminationGracePeriodSeconds {grace_s}, to allow more."
        yield Finding(
            area="safety",
            name=f"pause of {placed.pod}",
            state="degraded",
            why=why,
            next_step=step,
        )


def _swap(background: Iterable[Placed], hierarchy: Hierarchy) -> Iterator[Finding]:
    """Pods of slots that may not use swap, as is the kubelet's default (v2 only)."""
    root = hierarchy.memory_root
    if hierarchy.kind != "v2" or root is None:
        return
    for placed in background:
        if _has_no_swap(root / placed.group):
            yield Finding(
                area="lever",
                name=f"limit of {placed.pod}",
                state="degraded",
                why="its containers may not swap (memory.swap.max is 0): a limit takes file pages "
                "only",
                next_step="Let the kubelet use swap (LimitedSwap), or count on pauses.",
            )


def _has_no_swap(folder: Path) -> bool:
    try:
        folders = [folder, *(path for path in folder.iterdir() if path.is_dir())]
        return any(read_text(path / "memory.swap.max") == "0" for path in folders)
    except (OSError, ActuatorError):
        return False
