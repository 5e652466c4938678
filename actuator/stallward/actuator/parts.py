"""The parts of the loop that only some configurations ask for: where each is, and its loader.

The loop runs as root, so it imports what its configuration asks for and nothing else. A part is
loaded when what it belongs to is made, which is at the start of the loop. So one that is missing or
broken is reported there, and no tick imports anything. Only the files of policies are loaded later:
when a client asks for one, on the thread that loads it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from stallward.agent.by_name import load_named


class Part(Enum):
    """A part: its module, and the name of what it offers there."""

    POLICY_FILE = "stallward.actuator.loop.policy_file:load_file"
    """Where a client asks for a policy."""
    SENTENCES = "stallward.actuator.record.reasons_text:reason_notes"
    """Where somebody reads the reasons of a record as sentences, which the loop never does."""
    SERIES = "stallward.actuator.latency.prometheus.selector:parse_selector"
    """Where latencies come from series of a Prometheus endpoint: which series are meant."""
    ANY_SERIES = "stallward.actuator.latency.prometheus.selector:parse_any_selector"
    """Where finished work comes from such series: which series are meant."""
    LATENCY_LINES = "stallward.actuator.latency.line_source:open_lines"
    """Where the latencies come from the lines of a file."""
    LATENCY_CHANNEL = "stallward.actuator.latency.channel_source:open_channel"
    """Where another process of the daemon gathers the latencies."""
    WORK = "stallward.actuator.work.channel:WorkChannel"
    """Where another process of the daemon reads how much work a slot has done."""
    PAGE_CACHE = "stallward.actuator.sensors.page_cache.readings:PageCacheSignal"
    """Where page-cache lookups are counted by eBPF."""
    APPLICATIONS_READER = "stallward.actuator.sensors.applications_reader:ApplicationsReader"
    """Where several applications are protected: reads their counters as one."""
    OOM_WAIT = "stallward.actuator.levers.cgroup.oom_wait:OomAlarms"
    """Where memory limits are those of cgroup v1: tells who waits for memory at one."""
    TREES = "stallward.actuator.kernel.process_trees:Forest"
    """Where a target is a process tree: finds its processes."""
    TREE_LEVERS = "stallward.actuator.levers.tree_slot:TreeSlot"
    """Where a slot is a process tree: its levers."""
    TREE_READER = "stallward.actuator.sensors.tree_reader:TreeReader"
    """Where a target is a process tree: reads its counters."""
    KUBELET_GROUP = "stallward.actuator.targets.kubelet_groups:check_slot_group"
    """Where a group may be one of the kubelet's: whether it can be a slot."""
    LABEL_SELECTOR = "stallward.actuator.targets.selection:parse_selector"
    """Where a target is a pod: which pods are meant."""
    POD_GROUPING = "stallward.actuator.targets.selection:parse_group_by"
    """Where a slot is of pods: which of them share it."""
    PODS = "stallward.actuator.node.pod_places:PodPlaces"
    """Where a target is a pod: gives each pod a place, with its levers."""
    PODS_READER = "stallward.actuator.sensors.pods_reader:PodsReader"
    """Where pods share a slot: reads their counters as one."""


def load_part(part: Part) -> Any:
    """Import a part, and return what it offers."""
    return load_named(part.value)
