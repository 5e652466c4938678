"""One tick of a node: the order in which things happen.

In a sub-step, all groups first demand pages (requests, touches, growth) and wait for them; then
reclaim makes room; then the groups get their pages. Only arrivals and programs of work are played
back from recordings. ``application`` has the requests, ``background`` the programs; ``pages``,
``stalls`` and ``latency`` have pure functions.
"""

from __future__ import annotations

from typing import Final

from stallward.env.twin.physics import background, pages, stalls
from stallward.env.twin.physics.application import (
    SubstepValues,
    own_cores,
    serve,
    set_page_waits,
    set_service,
)
from stallward.env.twin.physics.background import ProgramWork, program_work
from stallward.env.twin.physics.others import (
    MOST_GROUPS,
    MOST_POOLS,
    World,
    first_pool,
    held_by_others,
    noise_of,
    other_at,
    parameters_of,
    reads_of_others,
    values_of,
)
from stallward.env.twin.physics.pages import ANON, COLD, FILE, GROUPS, POOLS, clip
from stallward.env.twin.physics.reclaim import make_room
from stallward.env.twin.physics.state import SUBSTEPS, Node, Noise, Parameters
from stallward.env.twin.simd.elementary import exp
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.records import from_row, local_rows
from stallward.env.twin.simd.values import anywhere, maximum, minimum, where

TICK_S: Final = 0.1
STEP_S: Final = TICK_S / SUBSTEPS
_PART: Final = 1.0 / SUBSTEPS
_BUSY_S: Final = 0.1
"""Time constant of the averages of how busy the device is."""


@model
def begin(
    world: World,
    node: Node,
    parameters: Parameters,
    noise: Noise,
    now: SubstepValues,
    at: int,
    slots: int,
    others: int,
) -> None:
    """Set the values of the whole tick (CPU, device) and clear the tick's stalls."""
    sigma = parameters.device_sigma
    now.device = exp(sigma * noise.device - 0.5 * sigma * sigma)
    asked = background.demand_cores(node, slots)
    own = own_cores(node)
    together = own
    for a in range(1, 1 + others):
        together = together + own_cores(other_at(world, at, a))
    begins = noise.stall < parameters.device_stalls_per_s * TICK_S * node.busy_share
    node.stuck_s = where(begins, maximum(node.stuck_s, parameters.device_stall_s), node.stuck_s)
    crowding, felt = asked, background.felt_cores(node, parameters, slots)
    if others > 0:
        crowding, felt = crowding + (together - own), felt + (together - own)
    set_service(node, parameters, now, crowding, felt)
    waiting = stalls.cpu_some(asked + together, node.cores)
    node.cpu_stall_us = node.cpu_stall_us + 1e6 * TICK_S * waiting
    node.cpu = stalls.cpu_share(asked, together, node.cores)
    for i in range(slots):
        node.progress[i] = 0.0
        node.kernel_s[i] = 0.0
    for g in range(GROUPS):
        node.stalled[g] = 0.0
        node.io_share[g] = 0.0
    node.io_share[GROUPS] = 0.0
    node.some = 0.0
    node.full = 0.0
    for a in range(1, 1 + others):
        other, its = other_at(world, at, a), parameters_of(world, at, a)
        beside = together - own_cores(other)
        felt = background.felt_cores(node, its, slots) + beside
        then = values_of(world, at, a)
        then.device = now.device
        set_service(other, its, then, asked + beside, felt)
        other.stalled[0] = 0.0
        other.io_share[0] = 0.0


@model
def substep(
    world: World,
    node: Node,
    parameters: Parameters,
    noise: Noise,
    now: SubstepValues,
    k: int,
    at: int,
    slots: int,
    others: int,
) -> None:
    """Let a quarter of a tick pass.

    Args:
        world: All nodes, with the further applications.
        node: The nodes from ``at`` on; they change.
        parameters: Their parameters.
        noise: The noise of the tick.
        now: The values that :func:`begin` set; the others are set here.
        k: The number of the sub-step in the tick.
        at: The first of the eight nodes.
        slots: How many slots are in use.
        others: How many applications beside the first.
    """
    miss, demand = local_rows(MOST_POOLS), local_rows(MOST_POOLS)
    asked = local_rows(GROUPS)
    work = program_work()
    _page_waits(world, node, parameters, now, at, slots, others)
    clean = 1.0 - maximum(now.tight, background.clean_page_shortage(node, slots))
    _own_misses(node, parameters, miss)
    _misses(node, parameters, miss, slots)
    serve(node, parameters, noise, now, miss, k, STEP_S)
    for a in range(1, 1 + others):
        other, its, then = (
            other_at(world, at, a),
            parameters_of(world, at, a),
            values_of(world, at, a),
        )
        own_miss = from_row(miss, first_pool(slots, a))
        _own_misses(other, its, own_miss)
        serve(other, its, noise_of(world, at, a), then, own_miss, k, STEP_S)
    now.written, now.open_share = stalls.writeback(
        node.dirty,
        node.zone_pages * node.dirty_block,
        # Reclaim makes the kernel write dirty pages, even if there are few.
        node.zone_pages * node.dirty_start * clean,
        parameters.write_pages_per_s * STEP_S,
        1 + slots,
    )
    _demand(node, parameters, now, demand)
    for a in range(1, 1 + others):
        its, asks = parameters_of(world, at, a), from_row(demand, first_pool(slots, a))
        _demand(other_at(world, at, a), its, values_of(world, at, a), asks)
    for i in range(slots):
        mine = from_row(miss, (1 + i) * POOLS)
        asks = from_row(demand, (1 + i) * POOLS)
        background.run_program(node, parameters, now, mine, work, asks, STEP_S, i)
    for g in range(1 + slots):
        asked[g] = pages.total(from_row(demand, g * POOLS), POOLS)
    now.swapped_out = make_room(world, node, parameters, demand, STEP_S, at, slots, others)
    _take_programs(node, demand, asked, work, slots)
    _take(node, demand)
    for a in range(1, 1 + others):
        _take(other_at(world, at, a), from_row(demand, first_pool(slots, a)))
    _charge_device(world, node, parameters, now, work, at, slots, others)
    _count(world, node, parameters, now, work, at, slots, others)
    _count_stalls(world, node, parameters, now, work, at, slots, others)


@model
def _demand(node: Node, parameters: Parameters, now: SubstepValues, demand: Rows) -> None:
    """Set the pages of each pool that the application demands."""
    for pool in range(POOLS):
        demand[pool] = now.pages[pool]
    now.read_back = 0.0
    if anywhere(node.read_back_pages > 0.0):
        _read_back(node, parameters, now, demand)


@model
def _read_back(node: Node, parameters: Parameters, now: SubstepValues, demand: Rows) -> None:
    """Read the application's pages back from swap that nobody has touched, as was asked for."""
    lacks = maximum(node.wanted[ANON] - node.resident[ANON] - now.pages[ANON], 0.0)
    most = parameters.read_pages_per_s * STEP_S / now.device
    now.read_back = minimum(minimum(node.read_back_pages, lacks), most)
    node.read_back_pages = minimum(node.read_back_pages, lacks) - now.read_back
    demand[ANON] = demand[ANON] + now.read_back


@model
def _page_waits(
    world: World,
    node: Node,
    parameters: Parameters,
    now: SubstepValues,
    at: int,
    slots: int,
    others: int,
) -> None:
    """Set how short memory is, and how long each application waits for one missing page.

    Its reads wait behind those of all other groups.
    """
    held = held_by_others(world, at, others, pages.total(node.resident, (1 + slots) * POOLS))
    now.free = node.zone_pages - held
    now.tight = pages.tightness(now.free, node.zone_pages)
    now.stuck_s = node.stuck_s
    node.stuck_s = maximum(node.stuck_s - STEP_S, 0.0)
    now.read_s = stalls.read_latency_s(
        parameters.read_latency_s,
        node.backlog_s,
        parameters.read_queue_share,
        now.device,
    )
    set_page_waits(parameters, now, reads_of_others(world, node, at, others, node.reads_share))
    for a in range(1, 1 + others):
        then, own = values_of(world, at, a), other_at(world, at, a).reads_share
        then.tight, then.read_s, then.stuck_s = now.tight, now.read_s, now.stuck_s
        busy_share = reads_of_others(world, node, at, others, own)
        set_page_waits(parameters_of(world, at, a), then, busy_share)


@model
def _own_misses(node: Node, parameters: Parameters, miss: Rows) -> None:
    """Set the probability of a miss for each pool of an application."""
    exponent = parameters.protected_miss_exponent
    for pool in range(COLD):
        miss[pool] = pages.miss_probability(node.resident[pool], node.wanted[pool], exponent)
    miss[COLD] = pages.miss_probability(node.resident[COLD], node.wanted[COLD], 1.0)


@model
def _misses(node: Node, parameters: Parameters, miss: Rows, slots: int) -> None:
    """Set the probability of a miss for the pools of the slots. Their streams need none."""
    for i in range(slots):
        exponent = parameters.slot_miss_exponent[i]
        for pool in range(COLD):
            at = (1 + i) * POOLS + pool
            miss[at] = pages.miss_probability(node.resident[at], node.wanted[at], exponent)


@model
def _take_programs(node: Node, got: Rows, asked: Rows, work: ProgramWork, slots: int) -> None:
    """Put granted pages into memory; slots progress by the granted share of their demand."""
    for i in range(slots):
        first = (1 + i) * POOLS
        all_asked = asked[1 + i]
        granted = pages.total(from_row(got, first), POOLS) / maximum(all_asked, pages.EPSILON)
        share = where(all_asked > pages.EPSILON, granted, 1.0)
        node.wanted[first + ANON] = node.wanted[first + ANON] + work.fresh[i] * share
        node.wanted[first + FILE] = node.wanted[first + FILE] + work.fresh_file[i]
        work.run[i] = work.run[i] * share
        for pool in (ANON, FILE):
            held = node.resident[first + pool] + got[first + pool]
            node.resident[first + pool] = minimum(held, node.wanted[first + pool])
        node.resident[first + COLD] = node.resident[first + COLD] + got[first + COLD]
        node.wanted[first + COLD] = node.resident[first + COLD]


@model
def _take(node: Node, got: Rows) -> None:
    """Put the granted pages of an application into memory."""
    for pool in range(POOLS):
        node.resident[pool] = minimum(node.resident[pool] + got[pool], node.wanted[pool])
    lost = node.idle_loss_per_s * STEP_S
    node.resident[COLD] = maximum(node.resident[COLD] - lost, 0.0)


@model
def _charge_device(
    world: World,
    node: Node,
    parameters: Parameters,
    now: SubstepValues,
    work: ProgramWork,
    at: int,
    slots: int,
    others: int,
) -> None:
    """Queue reads and writes at the device, and mark the written part of streams dirty."""
    own_s = now.device * pages.total(now.pages, POOLS) / parameters.read_pages_per_s
    gain = STEP_S / _BUSY_S
    others_s = now.device * now.read_back / parameters.read_pages_per_s
    if others > 0:
        _count_reads(node, own_s, gain)
    for a in range(1, 1 + others):
        other, then = other_at(world, at, a), values_of(world, at, a)
        its_s = now.device * pages.total(then.pages, POOLS) / parameters.read_pages_per_s
        _count_reads(other, its_s, gain)
        own_s = own_s + its_s
        others_s = others_s + now.device * then.read_back / parameters.read_pages_per_s
    for i in range(slots):
        streamed = node.stream_per_s[i] * work.run[i] * STEP_S
        dirty = node.dirty[1 + i] + streamed * node.dirty_share[i]
        node.dirty[1 + i] = minimum(dirty, node.resident[(1 + i) * POOLS + COLD])
        read = work.read[i] + streamed * (1.0 - node.dirty_share[i])
        read = read + work.burst[i] * work.run[i]
        fill_s = work.fresh_file[i] / maximum(node.fill_per_s[i], 1.0)
        work_s = now.device * (read / parameters.read_pages_per_s + fill_s)
        others_s = others_s + work_s
        busy = minimum(work_s / STEP_S, 1.0)
        node.own_busy_share[i] = node.own_busy_share[i] + gain * (busy - node.own_busy_share[i])
    write = now.swapped_out * parameters.swap_write_share + now.written
    others_s = others_s + now.device * write / parameters.write_pages_per_s
    node.backlog_s = stalls.drain(node.backlog_s, own_s + others_s, STEP_S)
    node.busy_share = node.busy_share + gain * (minimum(others_s / STEP_S, 1.0) - node.busy_share)


@model
def _count_reads(node: Node, reads_s: float, gain: float) -> None:
    """Follow how busy the reads of an application keep the device."""
    busy = minimum(reads_s / STEP_S, 1.0)
    node.reads_share = node.reads_share + gain * (busy - node.reads_share)


@model
def _count(
    world: World,
    node: Node,
    parameters: Parameters,
    now: SubstepValues,
    work: ProgramWork,
    at: int,
    slots: int,
    others: int,
) -> None:
    """Add the results of a sub-step to the counters."""
    anon_in = now.pages[ANON] + now.read_back
    _count_application(node, parameters, now)
    for a in range(1, 1 + others):
        then = values_of(world, at, a)
        anon_in = anon_in + (then.pages[ANON] + then.read_back)
        _count_application(other_at(world, at, a), parameters_of(world, at, a), then)
    for i in range(slots):
        anon, file = work.anon_faults[i], work.file_faults[i]
        anon_in = anon_in + anon
        kernel_s = anon * parameters.anon_fault_cpu_s + file * parameters.file_fault_cpu_s
        node.kernel_s[i] = node.kernel_s[i] + kernel_s
        node.progress[i] = node.progress[i] + _PART * work.run[i]
        node.refault_pages[1 + i] = node.refault_pages[1 + i] + work.read[i]
    node.swap_in_pages = node.swap_in_pages + anon_in
    node.swap_out_pages = node.swap_out_pages + now.swapped_out


@model
def _count_application(node: Node, parameters: Parameters, now: SubstepValues) -> None:
    own_anon = now.pages[ANON] + now.read_back
    node.refault_pages[0] = node.refault_pages[0] + now.refaults + now.read_back
    node.refault_anon_pages = node.refault_anon_pages + own_anon
    touched = now.pages[ANON] / parameters.swap_read_around_pages
    reads = touched / parameters.swap_readahead_pages
    reads = reads + (now.pages[FILE] + now.pages[COLD]) / parameters.file_readahead_pages
    node.major_faults = node.major_faults + reads
    node.cpu_us[0] = node.cpu_us[0] + 1e6 * now.work_s


@model
def _count_stalls(
    world: World,
    node: Node,
    parameters: Parameters,
    now: SubstepValues,
    work: ProgramWork,
    at: int,
    slots: int,
    others: int,
) -> None:
    """Add the stall time of a sub-step, for every group and for the zone."""
    stalled, productive = local_rows(MOST_GROUPS), local_rows(MOST_GROUPS)
    none_on_io = 1.0 - _stalls(node, parameters, now, stalled, productive)
    for a in range(1, 1 + others):
        other, its, then = (
            other_at(world, at, a),
            parameters_of(world, at, a),
            values_of(world, at, a),
        )
        place = slots + a
        own_stall, own_work = from_row(stalled, place), from_row(productive, place)
        none_on_io = none_on_io * (1.0 - _stalls(other, its, then, own_stall, own_work))
        other.stalled[0] = other.stalled[0] + _PART * stalled[place]
    for i in range(slots):
        room = work.making_room[i]
        waited = work.stalled[i] - room
        on_io = clip(waited * parameters.psi_io_scale, 0.0, 1.0)
        node.io_share[1 + i] = node.io_share[1 + i] + _PART * on_io
        none_on_io = none_on_io * (1.0 - on_io)
        anon, file = work.anon_stalled[i], waited - work.anon_stalled[i]
        share = anon * parameters.psi_anon_scale + file * parameters.psi_file_scale
        stalled[1 + i] = clip(share + room, 0.0, 1.0)
        runs = work.run[i] * clip(node.slot_cores[i], 0.0, 1.0)
        productive[1 + i] = minimum(runs, 1.0 - stalled[1 + i])
    some, full = stalls.some_full(stalled, productive, 1 + slots + others)
    for g in range(1 + slots):
        node.stalled[g] = node.stalled[g] + _PART * stalled[g]
    node.some = node.some + _PART * some
    node.full = node.full + _PART * full
    node.io_share[GROUPS] = node.io_share[GROUPS] + _PART * (1.0 - none_on_io)


@model
def _stalls(
    node: Node, parameters: Parameters, now: SubstepValues, stalled: Rows, productive: Rows
) -> float:
    """Set the first rows to those of an application; return its share of time on the disk."""
    on_io = clip(now.stall_s / STEP_S * parameters.psi_io_scale, 0.0, 1.0)
    node.io_share[0] = node.io_share[0] + _PART * on_io
    own_s = now.anon_stall_s * parameters.psi_anon_scale
    own_s = own_s + now.file_stall_s * parameters.psi_file_scale
    stalled[0] = clip(own_s / STEP_S, 0.0, 1.0)
    productive[0] = minimum(clip(now.work_s / STEP_S, 0.0, 1.0), 1.0 - stalled[0])
    return on_io


@model
def end_together(world: World, node: Node, at: int, others: int) -> None:
    """Close the tick of the further applications, and count the stall of all together."""
    if others > 0:
        stalled, on_io = node.stalled[0], node.io_share[0]
        for a in range(1, 1 + others):
            other = other_at(world, at, a)
            end(other, 0)
            stalled = maximum(stalled, other.stalled[0])
            on_io = maximum(on_io, other.io_share[0])
        node.joint_stall_us = node.joint_stall_us + 1e6 * TICK_S * stalled
        node.joint_io_us = node.joint_io_us + 1e6 * TICK_S * on_io


@model
def end(node: Node, slots: int) -> None:
    """Close the tick: add its time, stalls and work to the counters."""
    node.time_s = node.time_s + TICK_S
    for g in range(1 + slots):
        stalled_us = 1e6 * TICK_S * node.stalled[g]
        node.psi_some_us[g] = node.psi_some_us[g] + stalled_us
        node.psi_full_us[g] = node.psi_full_us[g] + stalled_us
        node.psi_io_us[g] = node.psi_io_us[g] + 1e6 * TICK_S * node.io_share[g]
    node.psi_some_us[GROUPS] = node.psi_some_us[GROUPS] + 1e6 * TICK_S * node.some
    node.psi_full_us[GROUPS] = node.psi_full_us[GROUPS] + 1e6 * TICK_S * node.full
    node.psi_io_us[GROUPS] = node.psi_io_us[GROUPS] + 1e6 * TICK_S * node.io_share[GROUPS]
    background.end_tick(node, TICK_S, slots)
