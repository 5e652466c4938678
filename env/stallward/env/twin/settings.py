"""The kernel settings of twin nodes, and those that a tuning gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stallward.agent.desired import Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings of one node, each as the kernel has it without a tuning."""

    swappiness: float = 60.0
    """The swappiness of the background groups."""
    protected_swappiness: float = 60.0
    """The swappiness of the protected group, which only cgroup v1 can set by itself."""
    dirty_start: float = 0.10
    """The share of dirty pages in the zone at which writeback starts."""
    dirty_block: float = 0.20
    """The share of dirty pages in the zone at which writers block."""


NODE_SETTINGS: Final = NodeSettings()


def settings_of(tuning: Tuning) -> NodeSettings:
    """Return the settings of a node under ``tuning``, as the levers of a real node would set them.

    Without a value of its own the protected group has the swappiness of all others.
    """
    node = NODE_SETTINGS
    swappiness = node.swappiness if tuning.swappiness is None else float(tuning.swappiness)
    protected = tuning.protected_swappiness
    start, block = tuning.dirty_background_ratio, tuning.dirty_ratio
    return NodeSettings(
        swappiness=swappiness,
        protected_swappiness=swappiness if protected is None else float(protected),
        dirty_start=node.dirty_start if start is None else start / 100.0,
        dirty_block=node.dirty_block if block is None else block / 100.0,
    )
