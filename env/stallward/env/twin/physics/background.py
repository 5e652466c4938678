"""The background programs in the twin: when they run, what they touch, how far they get."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.env.twin.physics import pages, stalls
from stallward.env.twin.physics.application import Moment, warmed
from stallward.env.twin.physics.pages import ANON, COLD, FILE, POOLS, clip
from stallward.env.twin.physics.state import Node, OfSlots, Parameters
from stallward.env.twin.simd.elementary import remainder
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Layout, Rows
from stallward.env.twin.simd.one_lane import set_lane, value_of_lane
from stallward.env.twin.simd.records import from_row, local_reader, local_rows
from stallward.env.twin.simd.values import anywhere, floor, maximum, minimum, negate, where
from stallward.env.twin.simd.vectors import WIDTH

Array = NDArray[np.float64]

_ALLOCATING: Final = 0.5
"""Share of its accesses that a growing program spends on new pages."""


@model
def slots_in_use(node: Node) -> int:
    """How many slots any of the nodes has; those behind need not be computed."""
    count = SLOTS
    while count > 0 and not anywhere(node.there[count - 1] > 0.0):
        count -= 1
    return count


@model
def demand_cores(node: Node, slots: int) -> float:
    """Processors asked for: by the programs and, for them, by the kernel."""
    cores = 0.0
    for i in range(slots):
        cores = cores + (node.slot_cores[i] * node.progress[i] + node.kernel_cores[i])
    return cores


@model
def come_and_go(node: Node, running: Array, slots: int) -> None:
    """Let programs come and go: one that stops frees its memory, one that starts begins anew.

    Args:
        node: Whose programs they are.
        running: When the programs run, ``(scenarios, SLOTS, seconds)``.
        slots: Slots there are.
    """
    second, on = local_rows(1), local_rows(1)
    for i in range(slots):
        second[0] = remainder(node.time_s + node.phase_s, maximum(node.cycle_s[i], 1.0))
        for lane in range(WIDTH):
            which = int(value_of_lane(node.scenario, lane))
            set_lane(on, 0, lane, running[which, i, int(value_of_lane(second[0], lane))])
        now = node.present[i] * on[0]
        changed = negate(now == node.on[i])
        if anywhere(changed):
            free_pages(node, i, changed & (now == 0.0))
            node.cursor_s[i] = where(changed, 0.0, node.cursor_s[i])
            node.on[i] = now


@model
def free_pages(node: Node, slot: int, gone: bool) -> None:
    """Where a slot's program is ``gone``, so are its pages."""
    for pool in range(POOLS):
        i = (1 + slot) * POOLS + pool
        node.resident[i] = where(gone, 0.0, node.resident[i])
        node.wanted[i] = where(gone, 0.0, node.wanted[i])
        node.touches_per_s[i] = where(gone, 0.0, node.touches_per_s[i])
    node.dirty[1 + slot] = where(gone, 0.0, node.dirty[1 + slot])


@model
def aim(node: Node, programs: Array, slots: int) -> None:
    """Set what each program owns at its own time.

    Args:
        node: Whose programs they are.
        programs: Working sets, ``(scenarios, SLOTS, 2, seconds)`` pages (anonymous, file).
        slots: Slots there are.
    """
    second = local_rows(1)
    for i in range(slots):
        second[0] = program_second(node.cursor_s[i], node.length_s[i], node.loop_from_s[i])
        for lane in range(WIDTH):
            which = int(value_of_lane(node.scenario, lane))
            at = int(value_of_lane(second[0], lane))
            set_lane(node.target_anon, i, lane, programs[which, i, 0, at])
            set_lane(node.target_file, i, lane, programs[which, i, 1, at])


@model
def program_second(cursor_s: float, length_s: float, loop_from_s: float) -> float:
    """Which second of its working sets a program is in, when its own time is ``cursor_s``."""
    past = maximum(cursor_s - length_s, 0.0)
    looped = loop_from_s + remainder(past, maximum(length_s - loop_from_s, 1.0))
    return floor(where(cursor_s < length_s, cursor_s, looped))


@model
def move_levers(node: Node, parameters: Parameters, step_s: float, slots: int) -> None:
    """Let settings take hold after their delays."""
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


class Strides:
    """What the programs do in a sub-step, if they get the pages they ask for."""

    run: OfSlots
    """Share of full speed."""
    stalled: OfSlots
    """Share of the time spent waiting for pages."""
    anon_stalled: OfSlots
    """The part of it for anonymous pages."""
    making_room: OfSlots
    """The part of it in which reclaim makes room for what a stream brings."""
    fresh: OfSlots
    """Anonymous pages allocated newly."""
    fresh_file: OfSlots
    """Pages of files read for the first time."""
    anon_faults: OfSlots
    """Pages faulted in."""
    file_faults: OfSlots
    read: OfSlots
    """Pages that the device reads for those, with what it reads around a file's."""


strides: Final = local_reader(Strides, Layout(Strides))


@model
def shortage(node: Node, slot: int) -> float:
    """How short of memory a slot is by its own limit, see :func:`pages.tightness`.

    A limit that is not there is as much as the node has.
    """
    limit = minimum(node.limit_pages[slot], node.zone_pages)
    return pages.tightness(limit - held_pages(node, slot), limit)


@model
def held_pages(node: Node, slot: int) -> float:
    """Pages that a slot has in memory."""
    return pages.total(from_row(node.resident, (1 + slot) * POOLS), POOLS)


@model
def in_want_of_clean_pages(node: Node, slots: int) -> float:
    """Share by which groups at their limits find nothing but dirty pages to take.

    Reclaim inside a group wakes the flusher then, as that of the zone does, however few dirty
    pages there are on the node (``shrink_inactive_list`` in the kernel's ``mm/vmscan.c``).
    """
    most = 0.0
    for i in range(slots):
        first = (1 + i) * POOLS
        files = node.resident[first + FILE] + node.resident[first + COLD]
        dirty = node.dirty[1 + i] / maximum(files, 1.0)
        held = held_pages(node, i)
        asks = maximum(node.on[i] * node.unpaused[i], where(held > node.limit_pages[i], 1.0, 0.0))
        most = maximum(most, asks * dirty * shortage(node, i))
    return minimum(most, 1.0)


@model
def stride(
    node: Node,
    parameters: Parameters,
    now: Moment,
    miss: Rows,
    does: Strides,
    demand: Rows,
    step_s: float,
    i: int,
) -> None:
    """What the program of slot ``i`` does in a sub-step.

    Args:
        node: Where it runs; its working sets are moved.
        parameters: The node's.
        now: What everybody waits for a missing page.
        miss: Chance that a touched page of each pool of the slot is missing.
        does: Set.
        demand: Set to the pages of each pool that it asks for.
        step_s: Length of a sub-step.
        i: The slot.
    """
    anon, file = (1 + i) * POOLS + ANON, (1 + i) * POOLS + FILE
    active = node.on[i] * node.unpaused[i]
    owned = node.wanted[anon] + node.wanted[file]
    share = node.wanted[anon] / maximum(owned, 1.0)
    stream = node.stream_per_s[i] / maximum(node.touch_per_s[i], 1.0)
    cached = node.resident[(1 + i) * POOLS + COLD] / maximum(node.stream_span[i], 1.0)
    unread = clip(1.0 - cached, 0.0, 1.0)
    reading = stream * unread * (1.0 - node.dirty_share[i]) / parameters.read_pages_per_s
    missed_anon, missed_file = share * miss[ANON], (1.0 - share) * miss[FILE]
    others = node.busy_share - node.own_busy_share[i]
    crowd_s = now.device * stalls.crowd_wait_s(parameters.crowded_read_s, others)
    each_s = 1.0 / parameters.read_pages_per_s + now.tight * parameters.reclaim_s_per_page
    anon_s = (now.read_s + crowd_s) / parameters.swap_readahead_pages + each_s
    file_s = (now.read_s + crowd_s) / parameters.file_readahead_pages
    file_s = file_s + parameters.read_around_pages * each_s
    # At a group's own limit clean pages cost next to nothing; dirty ones are waited for.
    short = maximum(now.tight, node.dirty_share[i] * shortage(node, i))
    making_room = stream * unread * short * parameters.reclaim_s_per_page
    stall = missed_anon * anon_s + missed_file * file_s + reading + making_room
    kernel = missed_anon * parameters.anon_fault_cpu_s + missed_file * parameters.file_fault_cpu_s
    busy = clip(node.slot_cores[i], 0.0, 1.0)
    raw = stalls.speed(node.touch_per_s[i], stall + kernel, busy)
    does.run[i] = active * raw * node.cpu * where(node.dirty_share[i] > 0.0, now.open_share, 1.0)
    at_work = active * raw * node.touch_per_s[i]
    does.stalled[i] = minimum(at_work * stall, 1.0)
    does.anon_stalled[i] = minimum(at_work * missed_anon * anon_s, does.stalled[i])
    left = does.stalled[i] - does.anon_stalled[i]
    does.making_room[i] = minimum(at_work * making_room, left)
    touched = node.touch_per_s[i] * does.run[i]
    does.anon_faults[i] = _faults(touched * step_s * missed_anon, node, anon)
    does.file_faults[i] = _faults(touched * step_s * missed_file, node, file)
    does.read[i] = does.anon_faults[i] + does.file_faults[i] * parameters.read_around_pages
    _resize(node, does, active, step_s, i)
    warm = touched / maximum(owned, 1.0)
    node.touches_per_s[anon] = warmed(node.touches_per_s[anon], warm, step_s)
    node.touches_per_s[file] = warmed(node.touches_per_s[file], warm, step_s)
    demand[ANON] = does.anon_faults[i] + does.fresh[i]
    # What is read for the first time goes to the inactive list: it takes what is free, and beyond
    # that pushes out its own.
    room = minimum(now.free, node.limit_pages[i] - held_pages(node, i))
    kept = minimum(does.fresh_file[i], maximum(room, 0.0))
    demand[FILE] = _faults(does.file_faults[i], node, file) + kept
    demand[COLD] = node.stream_per_s[i] * unread * does.run[i] * step_s


@model
def _faults(touched: float, node: Node, pool: int) -> float:
    """Of the missing pages ``touched``, those that are there to be faulted in."""
    return maximum(minimum(touched, node.wanted[pool] - node.resident[pool]), 0.0)


@model
def _resize(node: Node, does: Strides, active: float, step_s: float, i: int) -> None:
    """Let the working sets of slot ``i`` grow and shrink while it runs."""
    anon, file = (1 + i) * POOLS + ANON, (1 + i) * POOLS + FILE
    growth = _ALLOCATING * node.touch_per_s[i] * active * step_s
    runs = active > 0.0
    target = where(runs, node.target_anon[i], node.wanted[anon])
    resident, wanted, fresh = pages.resize(node.resident[anon], node.wanted[anon], target, growth)
    node.resident[anon] = resident
    node.wanted[anon] = wanted
    does.fresh[i] = fresh
    target = where(runs, node.target_file[i], node.wanted[file])
    node.wanted[file] = minimum(node.wanted[file], target)
    node.resident[file] = minimum(node.resident[file], node.wanted[file])
    filled = node.fill_per_s[i] * active * step_s
    does.fresh_file[i] = minimum(target - node.wanted[file], filled)


@model
def end_tick(node: Node, tick_s: float, slots: int) -> None:
    """Let the programs' own time pass, and count what they used."""
    for i in range(slots):
        node.kernel_cores[i] = minimum(node.kernel_s[i] / tick_s, 1.0)
        node.cursor_s[i] = node.cursor_s[i] + node.progress[i] * tick_s
        cores = node.kernel_cores[i] + node.progress[i] * node.slot_cores[i]
        node.cpu_us[1 + i] = node.cpu_us[1 + i] + 1e6 * tick_s * cores
        node.units[i] = node.units[i] + node.units_per_s[i] * node.progress[i] * tick_s
