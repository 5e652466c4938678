"""Finds the targets that the configuration names: groups, or process trees."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import ProtectedConfig, SlotConfig
from stallward.actuator.errors import NodeError
from stallward.actuator.kernel.cgroups import MOST_SEARCHED, Cgroup, Hierarchy, why_no_processes
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.refusals import Place, unwritable
from stallward.actuator.kernel.target import AnyTarget, is_unbound, unbound
from stallward.actuator.levers.base.lever import ExemptProcesses, daemon_pids
from stallward.actuator.parts import Part, load_part
from stallward.agent.group_names import short_names

if TYPE_CHECKING:
    from stallward.actuator.kernel.process_trees import Forest, ProcessTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets that the sensors read and the levers act on."""

    hierarchy: Hierarchy
    zone: Cgroup
    applications: tuple[AnyTarget, ...]
    """The protected applications."""
    slots: tuple[AnyTarget, ...]
    forest: Forest | None
    """Refreshes the process trees among the targets; ``None`` where there are none."""


def find_targets(config: DaemonConfig, daemon_start_s: float | None = None) -> Targets:
    """Find the targets that ``config`` names on this node.

    Args:
        config: The configuration.
        daemon_start_s: When the daemon was started (CLOCK_MONOTONIC); now by default.

    Raises:
        NodeError: If a group is missing, threaded or cannot be used, or a slot holds the daemon
            itself.
    """
    hierarchy = detect(config.node.paths)
    _check_groups_usable(config, hierarchy)
    _refuse_threaded(config, hierarchy)
    zone = hierarchy.group(config.node.zone)
    forest = _forest(config, hierarchy, daemon_start_s)
    named = [(one.group, one.name) for one in config.applications]
    named += [(slot.group, slot.name) for slot in config.background]
    trees = (None,) * len(named) if forest is None else forest.trees
    found = tuple(
        _target(hierarchy, tree, group, name)
        for tree, (group, name) in zip(trees, named, strict=True)
    )
    short = _short_names((zone, *found))
    zone = replace(zone, short_name=short[zone.name])
    found = tuple(
        replace(one, short_name=short[one.name])
        if isinstance(one, Cgroup) and one.name in short
        else one
        for one in found
    )
    count = len(config.applications)
    applications, slots = found[:count], found[count:]
    for group in (zone, *found):
        if isinstance(group, Cgroup) and not is_unbound(group) and not _exists(group):
            raise NodeError(
                f"There is no group {group.name or '/'!r} in {hierarchy.why}",
                next_step="Make it first, or correct the configuration.",
            )
    for group in found:
        if isinstance(group, Cgroup):
            _check_writable(group)
    for slot in slots:
        _refuse_own_slot(slot)
    if forest is not None and forest.refused:
        raise NodeError(
            f"The configuration names a process tree of which {forest.refused[0]}.",
            next_step="Start the daemon outside every background tree, e.g. as a service.",
        )
    return Targets(
        hierarchy=hierarchy, zone=zone, applications=applications, slots=slots, forest=forest
    )


def _target(
    hierarchy: Hierarchy, tree: ProcessTree | None, group: str | None, name: str
) -> AnyTarget:
    """The target of one table; a pod is not there until it is known to be."""
    if tree is not None:
        return tree
    return hierarchy.group(group) if group is not None else unbound(hierarchy, name)


def _short_names(targets: Sequence[AnyTarget]) -> dict[str, str]:
    """What each target is called by that is there: no two of them by the same."""
    there = [one.name for one in targets if not is_unbound(one)]
    return dict(zip(there, short_names(there), strict=True))


def _exists(group: Cgroup) -> bool:
    # Without cgroups the zone is the whole machine, which has no directory.
    return group.exists() or (group.is_root and group.hierarchy.kind == "none")


def _named_groups(config: DaemonConfig) -> list[tuple[str, str]]:
    """Return the keys of the configuration that name groups, each with its group."""
    keys: list[tuple[str, str | None]] = []
    for place, one in config.named_applications:
        keys.append((f"{place}.group", one.group))
        keys += [(f"{place}.groups[{i}]", name) for i, name in enumerate(one.groups)]
    keys += [(f"background[{i}].group", slot.group) for i, slot in enumerate(config.background)]
    named = [(key, name) for key, name in keys if name is not None]
    return [*named, ("node.zone", config.node.zone)] if config.node.zone.strip("/") else named


def _check_groups_usable(config: DaemonConfig, hierarchy: Hierarchy) -> None:
    named = _named_groups(config)
    if hierarchy.kind == "none" and config.follows_pods:
        raise NodeError(
            f"The configuration names pods, but {hierarchy.why}",
            next_step="Use nodes with cgroup v2.",
        )
    if hierarchy.kind == "none" and named:
        key, name = named[0]
        raise NodeError(
            f"config.{key} names the group {name!r}, but {hierarchy.why}",
            next_step="Name processes instead of groups, e.g. "
            'processes = { pidfile = "/run/NAME.pid" }, and let the zone be "/".',
        )


def _check_writable(group: Cgroup) -> None:
    """Refuse a group whose settings cannot be changed; others of the node may be read-only.

    Raises:
        NodeError: If it is such a group; the message names its folder.
    """
    for folder in group.dirs:
        why, step = unwritable(folder, place=Place.CGROUP) if folder.exists() else ("", "")
        if why:
            raise NodeError(
                f"The group {group.name or '/'!r} cannot be used: {why}.",
                next_step=f"{step} Or name processes instead of groups. Under systemd, make the "
                "unit again if the zone has changed (stallward unit).",
            )


def _refuse_threaded(config: DaemonConfig, hierarchy: Hierarchy) -> None:
    for key, name in _named_groups(config):
        cause, next_step = why_no_processes(hierarchy.group(name), hierarchy.unified_root)
        if cause:
            raise NodeError(f"config.{key}: {cause}", next_step=next_step)


def _forest(
    config: DaemonConfig, hierarchy: Hierarchy, daemon_start_s: float | None
) -> Forest | None:
    targets: list[ProtectedConfig | SlotConfig] = [*config.applications, *config.background]
    wanted = [target.processes for target in targets]
    if not any(wanted):
        return None
    listed = config.exempt_pids | daemon_pids()
    groups = tuple(hierarchy.group(name) for name in config.protected_groups)

    def exempt() -> frozenset[int]:
        return listed.union(*(group.pids(recursive=True, most=MOST_SEARCHED) for group in groups))

    forest: Forest = load_part(Part.TREES)(
        config.node.proc,
        wanted,
        [target.name for target in targets],
        applications=len(config.applications),
        exempt=exempt,
        before_ticks=_ticks(daemon_start_s),
    )
    return forest


def _ticks(monotonic_s: float | None) -> int | None:
    """Convert a CLOCK_MONOTONIC time to clock ticks since boot, as in processes' start times."""
    if monotonic_s is None:
        return None
    ago_s = time.monotonic() - monotonic_s
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ago_s
    return int(since_boot_s * os.sysconf("SC_CLK_TCK")) + 1


def _refuse_own_slot(slot: AnyTarget) -> None:
    """Refuse a slot that holds this daemon or pid 1.

    Raises:
        NodeError: If it does; the message names the process.
    """
    pid = ExemptProcesses().within(slot)
    if pid is not None:
        raise NodeError(
            f"The background group {slot.name!r} holds process {pid}: "
            "the daemon would pause or starve itself, or pid 1.",
            next_step="Start the daemon outside every background group, e.g. as a service.",
        )
