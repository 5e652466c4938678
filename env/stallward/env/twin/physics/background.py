"""The background programs in the twin: their touches, their streams and their progress."""

from __future__ import annotations

import math
from typing import Final

from stallward.agent.desired import NORMAL_CPU_WEIGHT, SLOTS
from stallward.env.twin.physics import pages, stalls
from stallward.env.twin.physics.application import SubstepValues, warmed
from stallward.env.twin.physics.pages import ANON, COLD, FILE, POOLS, clip
from stallward.env.twin.physics.state import Node, Parameters, PerSlot
from stallward.env.twin.simd.elementary import log, power
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Layout, Rows
from stallward.env.twin.simd.records import from_row, local_reader
from stallward.env.twin.simd.values import anywhere, maximum, minimum, where

_NORMAL_WEIGHT: Final = float(NORMAL_CPU_WEIGHT)
_LOG_NORMAL_WEIGHT: Final = math.log(_NORMAL_WEIGHT)
_ALLOCATING: Final = 0.5
"""The share of its touches that a growing program spends on new pages."""


@model
def slots_in_use(node: Node) -> int:
    """Return how many slots are in use on any of the nodes; later ones need no computation."""
    count = SLOTS
    while count > 0 and not anywhere(node.has_group[count - 1] > 0.0):
        count -= 1
    return count


@model
def demand_cores(node: Node, slots: int) -> float:
    """Return the cores that the programs demand, with those that the kernel needs for them."""
    cores = 0.0
    for i in range(slots):
        cores = cores + (node.slot_cores[i] * node.progress[i] + node.kernel_cores[i])
    return cores


@model
def felt_cores(node: Node, parameters: Parameters, slots: int) -> float:
    """Return the cores for which the application has to wait, with regard to CPU weights.

    A program with a small weight gives way sooner to one that wakes up.
    """
    cores = 0.0
    for i in range(slots):
        used = node.slot_cores[i] * node.progress[i] + node.kernel_cores[i]
        lightness = clip(log(_NORMAL_WEIGHT / node.cpu_weight[i]) / _LOG_NORMAL_WEIGHT, 0.0, 1.0)
        cores = cores + used * power(parameters.cpu_light_share, lightness)
    return cores


@model
def apply_levers(node: Node, parameters: Parameters, step_s: float, slots: int) -> None:
    """Let the settings of the levers take effect after their delays."""
    for i in range(slots):
        run = 1.0 - node.want_paused[i]
        changed_s = where(run == node.unpaused[i], 0.0, node.pause_change_s[i] + step_s)
        held = changed_s >= parameters.pause_delay_s
        node.pause_change_s[i] = changed_s
        node.unpaused[i] = where(held, run, node.unpaused[i])
        limit = node.want_limit_pages[i]
        changed_s = where(limit == node.limit_pages[i], 0.0, node.limit_change_s[i] + step_s)
        held = changed_s >= parameters.limit_delay_s
        node.limit_change_s[i] = changed_s
        node.limit_pages[i] = where(held, limit, node.limit_pages[i])


class ProgramWork:
    """The work of the programs in a sub-step, if they get all pages that they demand."""

    run: PerSlot
    """The share of full speed."""
    stalled: PerSlot
    """The share of time spent waiting for pages."""
    anon_stalled: PerSlot
    """The part of that share for anonymous pages."""
    making_room: PerSlot
    """The part of that share in which reclaim makes room for the pages of a stream."""
    fresh: PerSlot
    """Newly allocated anonymous pages."""
    fresh_file: PerSlot
    """File pages read for the first time."""
    anon_faults: PerSlot
    """Anonymous pages faulted in."""
    file_faults: PerSlot
    """File pages faulted in."""
    read: PerSlot
    """Pages that the device reads for these faults, with those around each file page."""
    burst: PerSlot
    """Pages that it reads for a burst at full speed."""


program_work: Final = local_reader(ProgramWork, Layout(ProgramWork))


@model
def shortage(node: Node, slot: int) -> float:
    """Return how tight memory is under a slot's own limit, in [0, 1] (``pages.tightness``).

    For a slot without a limit, the memory of the zone counts as its limit.
    """
    limit = minimum(node.limit_pages[slot], node.zone_pages)
    return pages.tightness(limit - held_pages(node, slot), limit)


@model
def held_pages(node: Node, slot: int) -> float:
    """Return the pages that a slot has in memory."""
    return pages.total(from_row(node.resident, (1 + slot) * POOLS), POOLS)


@model
def clean_page_shortage(node: Node, slots: int) -> float:
    """Return how much groups at their limits lack clean pages that reclaim can take, in [0, 1].

    If reclaim in a group finds only dirty pages, it wakes the flusher as reclaim in the zone does,
    even if the node has few of them (``shrink_inactive_list`` in the kernel's ``mm/vmscan.c``).
    """
    largest = 0.0
    for i in range(slots):
        first = (1 + i) * POOLS
        files = node.resident[first + FILE] + node.resident[first + COLD]
        dirty = node.dirty[1 + i] / maximum(files, 1.0)
        held = held_pages(node, i)
        asks = maximum(node.on[i] * node.unpaused[i], where(held > node.limit_pages[i], 1.0, 0.0))
        largest = maximum(largest, asks * dirty * shortage(node, i))
    return minimum(largest, 1.0)


@model
def run_program(
    node: Node,
    parameters: Parameters,
    now: SubstepValues,
    miss: Rows,
    work: ProgramWork,
    demand: Rows,
    step_s: float,
    i: int,
) -> None:
    """Compute the work and the demand of the program of slot ``i`` in a sub-step.

    Args:
        node: The nodes; the working sets of the program are resized.
        parameters: Their parameters.
        now: The waits of all groups.
        miss: The probability that a touched page of each pool of the slot is missing.
        work: Set to the work of the program.
        demand: Set to the pages of each pool that it demands.
        step_s: Length of a sub-step.
        i: The slot.
    """
    anon, file = (1 + i) * POOLS + ANON, (1 + i) * POOLS + FILE
    active = node.on[i] * node.unpaused[i]
    owned = node.wanted[anon] + node.wanted[file]
    share = node.wanted[anon] / maximum(owned, 1.0)
    stream = node.stream_per_s[i] / maximum(node.touch_per_s[i], 1.0)
    burst = node.bursting_per_s[i] / maximum(node.touch_per_s[i], 1.0)
    cached = node.resident[(1 + i) * POOLS + COLD] / maximum(node.stream_span[i], 1.0)
    unread = clip(1.0 - cached, 0.0, 1.0)
    work.burst[i] = node.bursting_per_s[i] * unread * step_s
    page_s = 1.0 / parameters.read_pages_per_s + now.stuck_s / parameters.file_readahead_pages
    reading = (stream * (1.0 - node.dirty_share[i]) + burst) * unread * page_s
    missed_anon, missed_file = share * miss[ANON], (1.0 - share) * miss[FILE]
    others = node.busy_share - node.own_busy_share[i]
    crowd_s = now.device * stalls.crowd_wait_s(parameters.crowded_read_s, others)
    each_s = 1.0 / parameters.read_pages_per_s + now.tight * parameters.reclaim_s_per_page
    read_s = now.read_s + crowd_s + now.stuck_s
    anon_s = read_s / parameters.swap_readahead_pages + each_s
    file_s = read_s / parameters.file_readahead_pages
    file_s = file_s + parameters.read_around_pages * each_s
    # At a group's own limit, reclaim of clean pages takes hardly any time; dirty pages are waited
    # for.
    short = maximum(now.tight, node.dirty_share[i] * shortage(node, i))
    making_room = (stream + burst) * unread * short * parameters.reclaim_s_per_page
    stall = missed_anon * anon_s + missed_file * file_s + reading + making_room
    kernel = missed_anon * parameters.anon_fault_cpu_s + missed_file * parameters.file_fault_cpu_s
    busy = clip(node.slot_cores[i], 0.0, 1.0)
    raw = stalls.speed(node.touch_per_s[i], stall + kernel, busy)
    # What is throttled neither runs nor waits for pages. The kernel's work for it counts as its.
    allowed = maximum(node.cpu_max_cores[i] - node.kernel_cores[i], 0.0)
    raw = minimum(raw, allowed / maximum(node.slot_cores[i], pages.EPSILON))
    work.run[i] = active * raw * node.cpu * where(node.dirty_share[i] > 0.0, now.open_share, 1.0)
    at_work = active * raw * node.touch_per_s[i]
    work.stalled[i] = minimum(at_work * stall, 1.0)
    work.anon_stalled[i] = minimum(at_work * missed_anon * anon_s, work.stalled[i])
    left = work.stalled[i] - work.anon_stalled[i]
    work.making_room[i] = minimum(at_work * making_room, left)
    touched = node.touch_per_s[i] * work.run[i]
    work.anon_faults[i] = _faults(touched * step_s * missed_anon, node, anon)
    work.file_faults[i] = _faults(touched * step_s * missed_file, node, file)
    work.read[i] = work.anon_faults[i] + work.file_faults[i] * parameters.read_around_pages
    _resize(node, work, active, step_s, i)
    warm = touched / maximum(owned, 1.0)
    node.touches_per_s[anon] = warmed(node.touches_per_s[anon], warm, step_s)
    node.touches_per_s[file] = warmed(node.touches_per_s[file], warm, step_s)
    demand[ANON] = work.anon_faults[i] + work.fresh[i]
    # Pages read for the first time go to the inactive list. They take free memory; beyond that,
    # they evict each other.
    room = minimum(now.free, node.limit_pages[i] - held_pages(node, i))
    kept = minimum(work.fresh_file[i], maximum(room, 0.0))
    demand[FILE] = _faults(work.file_faults[i], node, file) + kept
    streamed = node.stream_per_s[i] + node.bursting_per_s[i]
    demand[COLD] = streamed * unread * work.run[i] * step_s


@model
def _faults(touched: float, node: Node, pool: int) -> float:
    """Return the pages to fault in: at most as many of ``touched`` as are missing."""
    return maximum(minimum(touched, node.wanted[pool] - node.resident[pool]), 0.0)


@model
def _resize(node: Node, work: ProgramWork, active: float, step_s: float, i: int) -> None:
    """Let the working sets of slot ``i`` grow and shrink while it runs."""
    anon, file = (1 + i) * POOLS + ANON, (1 + i) * POOLS + FILE
    growth = _ALLOCATING * node.touch_per_s[i] * active * step_s
    runs = active > 0.0
    target = where(runs, node.target_anon[i], node.wanted[anon])
    resident, wanted, fresh = pages.resize(node.resident[anon], node.wanted[anon], target, growth)
    node.resident[anon] = resident
    node.wanted[anon] = wanted
    work.fresh[i] = fresh
    target = where(runs, node.target_file[i], node.wanted[file])
    node.wanted[file] = minimum(node.wanted[file], target)
    node.resident[file] = minimum(node.resident[file], node.wanted[file])
    filled = node.fill_per_s[i] * active * step_s
    work.fresh_file[i] = minimum(target - node.wanted[file], filled)


@model
def end_tick(node: Node, tick_s: float, slots: int) -> None:
    """Let the programs' own time pass, and count their CPU time and work."""
    for i in range(slots):
        node.kernel_cores[i] = minimum(node.kernel_s[i] / tick_s, 1.0)
        node.cursor_s[i] = node.cursor_s[i] + node.progress[i] * tick_s
        own_cores = node.progress[i] * node.slot_cores[i]
        cores = node.kernel_cores[i] + own_cores
        node.user_us[i] = node.user_us[i] + 1e6 * tick_s * own_cores
        node.cpu_us[1 + i] = node.cpu_us[1 + i] + 1e6 * tick_s * cores
        node.units[i] = node.units[i] + node.units_per_s[i] * node.progress[i] * tick_s
