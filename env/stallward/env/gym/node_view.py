"""The view of a node: what ``render`` shows of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.agent.desired import PROFILES
from stallward.agent.observation.raw import NODE, SLOT, RawFrame

SHOWN_S: Final = 30.0
"""The time over which latencies are shown."""
_STALE_S: Final = 2.0
"""Without an answered request for this long, there is no latency to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The facts of a node that stay the same during an episode."""

    title: str
    """The name of the scenario or recording."""
    target_ms: float
    """The target of the application's latency."""
    slot_names: tuple[str, ...]
    """The names of the background groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPoint:
    """The latency at one step."""

    time_s: float
    p95_ms: float
    """The 95th percentile of the last second; NaN if nothing was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One group of processes; numbers are NaN where they are unknown."""

    name: str
    memory_bytes: float
    swap_bytes: float
    limit_bytes: float = math.nan
    """The limit of its memory; NaN without one."""
    paused: bool = False

    @property
    def limited(self) -> bool:
        """Whether its memory is limited."""
        return math.isfinite(self.limit_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node at one step."""

    scene: Scene
    elapsed_s: float
    """The time since the beginning of the episode."""
    latencies: tuple[LatencyPoint, ...]
    """The latencies of the last :data:`SHOWN_S`; the last one is that of this step."""
    zone_bytes: float
    """The memory that all groups share."""
    used_bytes: float
    """The part of it that is used."""
    profile: str
    """The tuning profile."""
    application: GroupView
    slots: tuple[GroupView, ...]
    """The background groups that exist."""


def latency_of(frame: RawFrame) -> LatencyPoint:
    """The latency that a node reports."""
    stale = not frame.node[NODE["latency_age_s"]] <= _STALE_S  # NaN is stale
    return LatencyPoint(
        time_s=frame.node[NODE["time_s"]],
        p95_ms=math.nan if stale else frame.node[NODE["latency_p95_ms"]],
    )


def view_of(
    frame: RawFrame, scene: Scene, *, began_s: float, latencies: Sequence[LatencyPoint]
) -> NodeView:
    """The view of a node.

    Args:
        frame: The node's frame.
        scene: The facts that stay the same.
        began_s: The time of the first frame of the episode.
        latencies: The latencies up to that of this frame.
    """
    node = frame.node
    time_s = node[NODE["time_s"]]
    return NodeView(
        scene=scene,
        elapsed_s=time_s - began_s,
        latencies=tuple(point for point in latencies if point.time_s >= time_s - SHOWN_S),
        zone_bytes=node[NODE["zone_limit_bytes"]],
        used_bytes=node[NODE["zone_usage_bytes"]],
        profile=PROFILES[int(node[NODE["profile_index"]])].name,
        application=GroupView(
            name="application",
            memory_bytes=node[NODE["protected_usage_bytes"]],
            swap_bytes=node[NODE["protected_swap_bytes"]],
        ),
        slots=tuple(
            GroupView(
                name=name,
                memory_bytes=row[SLOT["usage_bytes"]],
                swap_bytes=row[SLOT["swap_bytes"]],
                limit_bytes=row[SLOT["limit_bytes"]],
                paused=row[SLOT["paused"]] > 0.0,
            )
            for name, row in zip(scene.slot_names, frame.slots, strict=False)
            if row[SLOT["present"]] > 0.0
        ),
    )
