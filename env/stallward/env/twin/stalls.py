"""Progress, the device and stall time. Pure functions of arrays with nodes last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MAX_BACKLOG_S = 0.5
"""The longest queue a device keeps: beyond it, writers are held back."""


def speed(touch_pages_per_s: Array, stall_s_per_touch: Array, busy_share: Array) -> Array:
    """Share of full speed of a task that waits ``stall_s_per_touch`` for each page it touches.

    A task that needs only ``busy_share`` of the time at full speed (it paces itself) makes up
    for waits until they fill the rest.
    """
    needed = busy_share + touch_pages_per_s * stall_s_per_touch
    return np.asarray(1.0 / np.maximum(needed, 1.0))


def read_latency_s(idle_s: Array, backlog_s: Array, queue_share: Array, noise: Array) -> Array:
    """Time one read takes with ``backlog_s`` of work queued."""
    return np.asarray((idle_s + queue_share * backlog_s) * noise)


def drain(backlog_s: Array, work_s: Array, elapsed_s: float) -> Array:
    """The device's queue after ``work_s`` more work and ``elapsed_s`` of time."""
    return np.clip(backlog_s + work_s - elapsed_s, 0.0, MAX_BACKLOG_S)


def some_full(stalled: Array, productive: Array) -> tuple[Array, Array]:
    """Stall shares of a parent group from those of its children.

    Args:
        stalled: Share of time each child's task is stalled, ``(G, B)``.
        productive: Share of time it runs, same shape; the rest it is idle.

    Returns:
        ``some`` (at least one stalled) and ``full`` (somebody is stalled and nobody runs),
        each ``(B,)``, for tasks that stall independently.
    """
    some = 1.0 - np.prod(1.0 - stalled, axis=0)
    nobody_runs = np.prod(1.0 - productive, axis=0)
    all_idle = np.prod(np.clip(1.0 - productive - stalled, 0.0, 1.0), axis=0)
    full = np.clip(nobody_runs - all_idle, 0.0, some)
    return some, full


def cpu_share(demand_cores: Array, own_cores: Array, cores: Array) -> Array:
    """Speed of the background when the protected application also uses ``own_cores``.

    Relative to having the node to itself: 1 when every core asked for is there.
    """
    alone = np.minimum(1.0, cores / np.maximum(demand_cores, 1e-9))
    left = np.maximum(cores - own_cores, 0.25 * cores)
    now = np.minimum(1.0, left / np.maximum(demand_cores, 1e-9))
    return np.asarray(np.minimum(now / alone, 1.0))


def writeback(
    dirty: Array, capacity: Array, background: Array, room_pages: Array
) -> tuple[Array, Array]:
    """Pages written back in a step, and how far writers may go on.

    Args:
        dirty: Dirty pages of each group, ``(G, B)``.
        capacity: Dirty pages at which writers block, ``(B,)``.
        background: Dirty pages above which writeback runs, ``(B,)``.
        room_pages: What the device can write in this step, ``(B,)``.

    Returns:
        Pages written, ``(G, B)``, and the writers' share of full speed, ``(B,)``.
    """
    total = dirty.sum(axis=0)
    due = np.clip(total - background, 0.0, room_pages)
    written = dirty * np.minimum(1.0, due / np.maximum(total, 1.0))
    free_run = 0.5 * (background + capacity)
    open_share = np.clip((capacity - total) / np.maximum(capacity - free_run, 1.0), 0.05, 1.0)
    return written, np.asarray(open_share)
