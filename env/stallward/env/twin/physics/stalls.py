"""Speed of programs, waits at the device, CPU contention, writeback, and stall shares."""

from __future__ import annotations

from stallward.env.twin.physics.pages import clip, total
from stallward.env.twin.simd.elementary import exp
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.values import maximum, minimum, where

MAX_BACKLOG_S = 0.5
"""The longest queue of the device; beyond it, writers are held back."""
MOST_BUSY = 0.97
"""The busy share of the device is capped at this value when waits are computed."""
_MOST_CORES = 8
_MOST_DEMAND = 50.0


@model
def speed(touch_pages_per_s: float, stall_s_per_touch: float, busy_share: float) -> float:
    """Return the share of full speed of a task that waits for each page it touches.

    Args:
        touch_pages_per_s: Pages that the task touches per second at full speed.
        stall_s_per_touch: The mean wait for each of them.
        busy_share: The share of time that the task is busy at full speed. A task that paces itself
            makes up for waits until they fill the rest of the time.
    """
    needed = busy_share + touch_pages_per_s * stall_s_per_touch
    return 1.0 / maximum(needed, 1.0)


@model
def read_latency_s(idle_s: float, backlog_s: float, queue_share: float, noise: float) -> float:
    """Return the time that one read takes with ``backlog_s`` of work queued."""
    return (idle_s + queue_share * backlog_s) * noise


@model
def crowd_wait_s(half_busy_s: float, busy_share: float) -> float:
    """Return how long a read waits for earlier reads of other groups, even without a backlog.

    As at any server with random arrivals (Pollaczek and Khinchine), the wait grows without bound
    as the busy share nears 1.

    Args:
        half_busy_s: The wait at a device that other groups keep busy half the time.
        busy_share: The share of time that other groups keep the device busy.
    """
    busy = clip(busy_share, 0.0, MOST_BUSY)
    return half_busy_s * busy / (1.0 - busy)


@model
def drain(backlog_s: float, work_s: float, elapsed_s: float) -> float:
    """Return the device's queue after ``work_s`` more work and ``elapsed_s`` of time."""
    return clip(backlog_s + work_s - elapsed_s, 0.0, MAX_BACKLOG_S)


@model
def some_full(stalled: Rows, productive: Rows, groups: int) -> tuple[float, float]:
    """Return the stall shares of a parent group, from those of its children.

    Args:
        stalled: The share of time that the task of each child is stalled.
        productive: The share of time that it runs; in the rest it is idle.
        groups: How many children the parent has.

    Returns:
        ``some`` (at least one task is stalled) and ``full`` (at least one is stalled and none
        runs), for tasks that stall independently.
    """
    none_stalled = 1.0 - stalled[0]
    none_runs = 1.0 - productive[0]
    all_idle = clip(1.0 - productive[0] - stalled[0], 0.0, 1.0)
    for g in range(1, groups):
        none_stalled = none_stalled * (1.0 - stalled[g])
        none_runs = none_runs * (1.0 - productive[g])
        all_idle = all_idle * clip(1.0 - productive[g] - stalled[g], 0.0, 1.0)
    some = 1.0 - none_stalled
    return some, clip(none_runs - all_idle, 0.0, some)


@model
def cpu_share(demand_cores: float, own_cores: float, cores: float) -> float:
    """Return the speed of the background beside a protected application with ``own_cores``.

    It is relative to the background alone: 1 if all cores that it demands are free.
    """
    alone = minimum(1.0, cores / maximum(demand_cores, 1e-9))
    left = maximum(cores - own_cores, 0.25 * cores)
    now = minimum(1.0, left / maximum(demand_cores, 1e-9))
    return minimum(now / alone, 1.0)


@model
def cpu_some(demand_cores: float, cores: float) -> float:
    """Return the share of time in which a task waits for a CPU.

    The number of runnable tasks is Poisson distributed: even if cores are free on average, there
    are sometimes more tasks than cores. If the demand exceeds the cores, a task always waits.
    """
    term = exp(-minimum(demand_cores, _MOST_DEMAND))
    fits = term
    for k in range(1, _MOST_CORES + 1):
        term = term * demand_cores / float(k)
        fits = fits + where(float(k) <= cores, term, 0.0)
    return clip(maximum(1.0 - fits, demand_cores - cores), 0.0, 1.0)


@model
def writeback(
    dirty: Rows, capacity: float, background: float, room_pages: float, groups: int
) -> tuple[float, float]:
    """Write dirty pages back.

    Args:
        dirty: Dirty pages of each group; reduced by the pages written.
        capacity: Dirty pages at which writers block.
        background: Dirty pages above which writeback runs.
        room_pages: Pages that the device can write in this step.
        groups: How many groups the nodes have.

    Returns:
        Pages written, and the share of full speed that writers have.
    """
    before = total(dirty, groups)
    due = clip(before - background, 0.0, room_pages)
    share = minimum(1.0, due / maximum(before, 1.0))
    for g in range(groups):
        dirty[g] = dirty[g] - dirty[g] * share
    free_run = 0.5 * (background + capacity)
    open_share = clip((capacity - before) / maximum(capacity - free_run, 1.0), 0.05, 1.0)
    return before * share, open_share
