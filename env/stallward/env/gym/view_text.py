"""A node's view as text, for ``render_mode="ansi"``. Pure."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from stallward.agent.desired import MIB
from stallward.env.gym.node_view import GroupView, NodeView

_BAR: Final = 30
"""The length of a bar in characters: the memory of the whole node."""


def text_of(view: NodeView) -> str:
    """The view as lines: latency against the target, then each group's memory and levers.

    In a bar ``#`` is memory, ``+`` is swap, and ``|`` is the limit.
    """
    p95_ms, target_ms = view.latencies[-1].p95_ms, view.scene.target_ms
    state = "no request" if math.isnan(p95_ms) else "met" if p95_ms <= target_ms else "missed"
    lines = [
        f"{view.scene.title} at {view.elapsed_s:.1f} s, tuning {view.profile}",
        f"p95 {number_text(p95_ms)} ms, target {number_text(target_ms)} ms: {state}",
        f"memory {mib_text(view.used_bytes)} of {mib_text(view.zone_bytes)} MiB",
    ]
    width = max(len(group.name) for group in (view.application, *view.slots))
    lines += [_line(group, view.zone_bytes, width) for group in (view.application, *view.slots)]
    return "\n".join(lines)


def _line(group: GroupView, zone_bytes: float, width: int) -> str:
    words = [
        f"{group.name:<{width}} [{_bar(group, zone_bytes)}]",
        f"{mib_text(group.memory_bytes):>5} MiB, swap {mib_text(group.swap_bytes):>5} MiB",
    ]
    if group.limited:
        words.append(f"limit {mib_text(group.limit_bytes)} MiB")
    if group.paused:
        words.append("paused")
    return "  ".join(words)


def _bar(group: GroupView, zone_bytes: float) -> str:
    def cells(value_bytes: float) -> int:
        share = 0.0 if math.isnan(value_bytes) else value_bytes / zone_bytes
        return min(round(_BAR * share), _BAR)

    memory = cells(group.memory_bytes)
    swap = min(cells(group.swap_bytes), _BAR - memory)
    bar = f"{'#' * memory}{'+' * swap}".ljust(_BAR)
    if group.limited:
        at = min(cells(group.limit_bytes), _BAR - 1)
        bar = f"{bar[:at]}|{bar[at + 1 :]}"
    return bar


def mib_text(value_bytes: float) -> str:
    """A size in whole mebibytes, without the unit."""
    return "-" if math.isnan(value_bytes) else f"{value_bytes / MIB:.0f}"


def number_text(value: float, digits: int = 3) -> str:
    """A number with some significant digits and no exponent."""
    if math.isnan(value):
        return "-"
    return np.format_float_positional(value, digits, fractional=False, trim="-")
