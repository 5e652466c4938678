"""Progress, the device and stall time."""

from __future__ import annotations

from stallward.env.twin.physics.pages import clip, total
from stallward.env.twin.simd.elementary import exp
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.values import maximum, minimum, where

MAX_BACKLOG_S = 0.5
"""The longest queue a device keeps: beyond it, writers are held back."""
MOST_BUSY = 0.97
"""The most that a device is busy as far as those are concerned who wait for it."""
_MOST_CORES = 8
_MOST_DEMAND = 50.0


@model
def speed(touch_pages_per_s: float, stall_s_per_touch: float, busy_share: float) -> float:
    """Share of full speed of a task that waits ``stall_s_per_touch`` for each page it touches.

    A task that needs only ``busy_share`` of the time at full speed (it paces itself) makes up
    for waits until they fill the rest.
    """
    needed = busy_share + touch_pages_per_s * stall_s_per_touch
    return 1.0 / maximum(needed, 1.0)


@model
def read_latency_s(idle_s: float, backlog_s: float, queue_share: float, noise: float) -> float:
    """Time one read takes with ``backlog_s`` of work queued."""
    return (idle_s + queue_share * backlog_s) * noise


@model
def crowd_wait_s(half_busy_s: float, busy_share: float) -> float:
    """Time a read waits for those of others that came before, where nothing has piled up yet.

    As at a server with random arrivals (Pollaczek and Khinchine), it grows without bound as the
    device gets busy all the time.

    Args:
        half_busy_s: The wait at a device that others keep busy half the time.
        busy_share: Share of the time they keep it busy.
    """
    busy = clip(busy_share, 0.0, MOST_BUSY)
    return half_busy_s * busy / (1.0 - busy)


@model
def drain(backlog_s: float, work_s: float, elapsed_s: float) -> float:
    """The device's queue after ``work_s`` more work and ``elapsed_s`` of time."""
    return clip(backlog_s + work_s - elapsed_s, 0.0, MAX_BACKLOG_S)


@model
def some_full(stalled: Rows, productive: Rows, groups: int) -> tuple[float, float]:
    """Stall shares of a parent group from those of its children.

    Args:
        stalled: Share of time each child's task is stalled.
        productive: Share of time it runs; the rest it is idle.
        groups: Children there are.

    Returns:
        ``some`` (at least one stalled) and ``full`` (somebody is stalled and nobody runs), for
        tasks that stall independently.
    """
    nobody_stalled = 1.0 - stalled[0]
    nobody_runs = 1.0 - productive[0]
    all_idle = clip(1.0 - productive[0] - stalled[0], 0.0, 1.0)
    for g in range(1, groups):
        nobody_stalled = nobody_stalled * (1.0 - stalled[g])
        nobody_runs = nobody_runs * (1.0 - productive[g])
        all_idle = all_idle * clip(1.0 - productive[g] - stalled[g], 0.0, 1.0)
    some = 1.0 - nobody_stalled
    return some, clip(nobody_runs - all_idle, 0.0, some)


@model
def cpu_share(demand_cores: float, own_cores: float, cores: float) -> float:
    """Speed of the background when the protected application also uses ``own_cores``.

    Relative to having the node to itself: 1 when every core asked for is there.
    """
    alone = minimum(1.0, cores / maximum(demand_cores, 1e-9))
    left = maximum(cores - own_cores, 0.25 * cores)
    now = minimum(1.0, left / maximum(demand_cores, 1e-9))
    return minimum(now / alone, 1.0)


@model
def cpu_some(demand_cores: float, cores: float) -> float:
    """Share of the time in which somebody waits for a processor.

    Many tasks that run now and then are runnable together now and then (Poisson), however much
    is free on average; where more is asked for than there is, somebody waits all the time.
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
        dirty: Dirty pages of each group; lessened by what is written.
        capacity: Dirty pages at which writers block.
        background: Dirty pages above which writeback runs.
        room_pages: What the device can write in this step.
        groups: Groups there are.

    Returns:
        Pages written, and the writers' share of full speed.
    """
    before = total(dirty, groups)
    due = clip(before - background, 0.0, room_pages)
    share = minimum(1.0, due / maximum(before, 1.0))
    for g in range(groups):
        dirty[g] = dirty[g] - dirty[g] * share
    free_run = 0.5 * (background + capacity)
    open_share = clip((capacity - before) / maximum(capacity - free_run, 1.0), 0.05, 1.0)
    return before * share, open_share
