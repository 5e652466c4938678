"""Whether the kubelet would evict background pods before the daemon holds them back.

The kubelet evicts when the machine's available memory falls below a threshold
(``memory.available``), and when that of all pods together does (``allocatableMemory.available``,
with the same threshold): first pods that use more than they request, of these those of the lowest
priority, of these those that exceed it most. Neither a pause nor a limit asks it. So what the
daemon keeps free must be more than the threshold.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.doctor.finding import Finding, finding
from stallward.actuator.doctor.kubelet_settings import (
    AVAILABLE,
    KubeletSettings,
    read_kubelet,
    threshold_bytes,
)
from stallward.actuator.errors import ActuatorError, KubeletConfigError
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kubernetes.groups import ROOTS, Driver, KubeletGroup, Level, parse_group
from stallward.actuator.sensors.files.meminfo import MeminfoParser
from stallward.agent.controllers.partition import PartitionThresholds
from stallward.agent.desired import MIB

_ROOM: Final = 1.25
"""How much more than the threshold should be kept: it is looked at every ten seconds only."""


def try_kubelet(
    config: DaemonConfig, environment: Mapping[str, str] = os.environ
) -> list[Finding]:
    """Compare the kubelet's thresholds with what the daemon keeps free.

    Where pods are followed, a kubelet whose thresholds are not known is a finding, too.

    Args:
        config: The configuration.
        environment: Where the node's name and the cluster's server are looked up.
    """
    paths, hierarchy = config.node.paths, detect(config.node.paths)
    asked = config.kubernetes if config.follows_pods else None
    try:
        settings = read_kubelet(paths, asked, environment)
        if settings is None:
            return []
        meminfo = paths.proc / "meminfo"
        total_bytes = MeminfoParser()(meminfo.read_bytes(), meminfo).total_bytes or 0
        zone_bytes = _limit_bytes(hierarchy, config.node.zone) or total_bytes
        return [
            *_evictions(config, settings, hierarchy, total_bytes, zone_bytes),
            *_memory_qos(settings),
        ]
    except KubeletConfigError as error:
        return [
            Finding(
                area="configuration",
                name="kubelet",
                state="degraded",
                why=f"{error.cause}, so it is not known when it evicts",
                next_step=error.next_step,
            )
        ]
    except (ActuatorError, OSError):
        return []  # the machine's memory cannot be read, as other findings say


def _evictions(
    config: DaemonConfig,
    settings: KubeletSettings,
    hierarchy: Hierarchy,
    total_bytes: int,
    zone_bytes: int,
) -> Iterator[Finding]:
    hard_bytes = threshold_bytes(settings.hard, total_bytes)
    soft_bytes = threshold_bytes(settings.soft, total_bytes)
    threshold = max(hard_bytes, soft_bytes)
    name, key, text = "eviction", "evictionHard", settings.hard
    if soft_bytes > hard_bytes:
        key, text = "evictionSoft", settings.soft
    if not threshold:
        yield finding("node", name, "", "", works="the kubelet evicts nobody for memory")
        return
    rule = f"{key} {AVAILABLE}<{text}"
    kept_bytes = max(
        int(PartitionThresholds().margin_share * zone_bytes), config.node.keep_available_bytes
    )
    least = -(-int(_ROOM * threshold) // MIB) * MIB
    fault = ""
    if kept_bytes <= threshold:
        fault = (
            f"the kubelet evicts pods when {_mib(threshold)} are available ({rule} in "
            f"{settings.source}), and partition keeps {_mib(kept_bytes)} of the zone free: a "
            "background pod may be evicted before it is held back"
        )
    yield finding(
        "node",
        name,
        fault,
        f"Set node.keep_available_bytes to {least} or more, or lower the threshold.",
        works=f"below {_mib(threshold)} ({rule}); partition keeps {_mib(kept_bytes)}",
    )
    pods = _all_pods(hierarchy)
    zone = parse_group(config.node.zone)
    if pods is None or (zone is not None and zone.level is Level.ALL) or not hard_bytes:
        return
    group, limit_bytes = pods
    if total_bytes - limit_bytes + hard_bytes > kept_bytes and limit_bytes < zone_bytes:
        yield Finding(
            area="node",
            name="eviction of pods together",
            state="degraded",
            why=f"all pods may hold {_mib(limit_bytes)} ({group}), and the kubelet evicts when "
            f"they leave {_mib(hard_bytes)} of that; the zone {config.node.zone} has "
            f"{_mib(zone_bytes)}, so partition may see no lack before",
            next_step=f'Set node.zone = "{group}" if the application is a pod, too, or '
            f"node.keep_available_bytes to {total_bytes - limit_bytes + least} or more.",
        )


def _memory_qos(settings: KubeletSettings) -> Iterator[Finding]:
    if settings.memory_qos:
        yield Finding(
            area="node",
            name="MemoryQoS",
            state="degraded",
            why="the kubelet sets memory.min of pods and memory.high of containers (featureGates "
            "MemoryQoS): what a background pod requests cannot be reclaimed, and it may wait at "
            "limits that are not the daemon's",
            next_step="Let background pods request little memory, or turn MemoryQoS off.",
        )


def _all_pods(hierarchy: Hierarchy) -> tuple[str, int] | None:
    """The group of all pods and its limit; ``None`` where it has none."""
    for root in ROOTS:
        for driver in Driver:
            name = KubeletGroup(level=Level.ALL, driver=driver, parent=root).name
            limit_bytes = _limit_bytes(hierarchy, name)
            if limit_bytes is not None:
                return name, limit_bytes
    return None


def _limit_bytes(hierarchy: Hierarchy, group: str) -> int | None:
    """The limit of a group; ``None`` if there is none."""
    root = hierarchy.memory_root
    if root is None or not group.strip("/"):
        return None
    for file in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = (root / group.strip("/") / file).read_text().strip()
        except OSError:
            continue
        if text.isascii() and text.isdigit() and int(text) < 1 << 62:
            return int(text)
    return None


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB"
