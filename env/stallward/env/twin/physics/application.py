"""The protected application in the twin: arrivals, their queue, and their waits for pages."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.physics import latency as queue
from stallward.env.twin.physics.pages import ANON, COLD, EPSILON, FILE, POOLS, clip, total
from stallward.env.twin.physics.stalls import crowd_wait_s
from stallward.env.twin.physics.state import Node, Noise, Parameters
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.elementary import exp, remainder
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Layout, Rows
from stallward.env.twin.simd.one_lane import set_lane, value_of_lane
from stallward.env.twin.simd.records import local_reader, local_rows, reader
from stallward.env.twin.simd.values import anywhere, floor, maximum, minimum, where

Array = NDArray[np.float64]

_WARMTH_S: Final = 0.5
"""Time constant of the average of how often a page is touched."""


class SubstepValues:
    """Intermediate values of a sub-step: waits of all groups, and results of the requests."""

    device: float
    """The factor on the times of the device; its mean is 1."""
    free: float
    """Free pages of the zone."""
    tight: float
    """How short the zone's memory is (:func:`~stallward.env.twin.physics.pages.tightness`)."""
    read_s: float
    """The time of one read without reads of other groups."""
    stuck_s: float
    """How long a read waits for a device that stands still."""
    own_anon_s: float
    """The application's wait for one missing anonymous page."""
    own_file_s: float
    """The application's wait for one missing file page."""
    service_s: float
    """The mean service time of a request without waits for pages."""
    cpu_wait_share: float
    """The share of requests that wait for a CPU."""
    pages: Annotated[Rows, POOLS]
    """Pages that the requests fault in."""
    refaults: float
    """The part of them that had been in memory before."""
    read_back: float
    """Pages of the application that are read back from swap untouched."""
    stall_s: float
    """Time that requests wait for pages."""
    anon_stall_s: float
    """The part of that time for anonymous pages."""
    file_stall_s: float
    """The part of that time for file pages that had been in memory before."""
    work_s: float
    """CPU time spent."""
    written: float
    """Dirty pages written back."""
    open_share: float
    """The share of full speed that writers have."""
    swapped_out: float
    """Anonymous pages written to swap."""


SUBSTEP_VALUES: Final = Layout(SubstepValues)
substep_values: Final = local_reader(SubstepValues, SUBSTEP_VALUES)
values_at: Final = reader(SubstepValues, SUBSTEP_VALUES)


@model
def set_rate(node: Node, rates: Array) -> None:
    """Set the rate of requests in this tick.

    Args:
        node: The nodes.
        rates: The factor on the rate in each second, ``(scenarios, seconds)``.
    """
    second, factor = local_rows(1), local_rows(1)
    second[0] = remainder(node.time_s + node.phase_s, maximum(node.rate_cycle_s, 1.0))
    for lane in range(WIDTH):
        which = int(value_of_lane(node.scenario, lane))
        set_lane(factor, 0, lane, rates[which, int(value_of_lane(second[0], lane))])
    node.arriving_per_s = node.rate_per_s * factor[0]


@model
def own_cores(node: Node) -> float:
    """Return the cores that the application asks for."""
    return minimum(node.arriving_per_s * node.service_s, node.workers)


@model
def set_service(
    node: Node, parameters: Parameters, now: SubstepValues, crowding: float, felt: float
) -> None:
    """Set how fast requests are served in this tick.

    Args:
        node: The nodes.
        parameters: Their parameters.
        now: The values to set.
        crowding: The cores that everything beside the application asks for.
        felt: Those for which it has to wait, with regard to CPU weights.
    """
    crowded = clip(crowding / node.cores, 0.0, 1.0)
    now.service_s = node.service_s * (1.0 + parameters.cpu_slowdown * crowded)
    now.cpu_wait_share = parameters.cpu_wait_share * clip(felt / node.cores, 0.0, 1.0)


@model
def set_page_waits(parameters: Parameters, now: SubstepValues, busy_share: float) -> None:
    """Set how long the application waits for one missing page.

    Args:
        parameters: The parameters of the nodes.
        now: The values to set.
        busy_share: The share of time in which the reads of all others keep the device busy.
    """
    crowd_s = now.device * crowd_wait_s(parameters.crowded_read_s, busy_share)
    each_s = 1.0 / parameters.read_pages_per_s + now.tight * parameters.reclaim_s_per_page
    own_s = now.read_s + crowd_s
    now.own_anon_s = own_s / parameters.swap_readahead_pages + each_s
    now.own_file_s = own_s / parameters.file_readahead_pages + each_s


@model
def warmed(before: float, touches_per_s: float, elapsed_s: float) -> float:
    """Return the average touch rate of pages after ``elapsed_s`` with ``touches_per_s``."""
    return before + (elapsed_s / _WARMTH_S) * (touches_per_s - before)


@model
def serve(
    node: Node,
    parameters: Parameters,
    noise: Noise,
    now: SubstepValues,
    miss: Rows,
    k: int,
    step_s: float,
) -> None:
    """Serve the requests of a sub-step.

    Args:
        node: The nodes.
        parameters: Their parameters.
        noise: The noise of the tick.
        now: The waits; the results are written into it.
        miss: The probability that a touched page of each pool is missing.
        k: The number of the sub-step in the tick.
        step_s: Length of a sub-step.
    """
    arrived = _arrivals(node, noise, k, step_s)
    anon = node.request_touches[ANON] * miss[ANON]
    cold = node.request_touches[COLD] * miss[COLD]
    file = node.request_touches[FILE] * miss[FILE] + cold
    anon_stall_s, file_stall_s = anon * now.own_anon_s, file * now.own_file_s
    if anywhere(now.stuck_s > 0.0):
        # Of several reads only the first finds that the device stands still.
        anon_reads = minimum(anon / parameters.swap_readahead_pages, 1.0)
        file_reads = minimum(file / parameters.file_readahead_pages, 1.0 - anon_reads)
        anon_stall_s = anon_stall_s + anon_reads * now.stuck_s
        file_stall_s = file_stall_s + file_reads * now.stuck_s
    stall_s = anon_stall_s + file_stall_s
    work_s = (
        now.service_s + anon * parameters.anon_fault_cpu_s + file * parameters.file_fault_cpu_s
    )
    request_s = work_s + stall_s
    load = minimum(node.arriving_per_s * request_s / node.workers, 1.0)
    wait_s = queue.wait_s(node.queued, request_s, node.workers, noise.meets[k], load)
    reads = anon / parameters.swap_readahead_pages + file / parameters.file_readahead_pages
    own_s = _own_s(parameters, noise, work_s, reads, stall_s, k)
    cpu_s = queue.cpu_wait_s(now.cpu_wait_share, parameters.cpu_wait_s, noise.hiccups[k])
    node.probe_ms[k] = 1e3 * (wait_s + own_s + cpu_s)
    node.probe_weight[k] = arrived
    served = queue.serve(node.queued, arrived, request_s, node.workers * step_s)
    node.queued = node.queued + arrived - served
    for pool in range(POOLS):
        missed = node.request_touches[pool] * miss[pool]
        lacks = maximum(node.wanted[pool] - node.resident[pool], 0.0)
        around = parameters.swap_read_around_pages if pool == ANON else 1.0
        now.pages[pool] = minimum(served * missed * around, lacks)
        per_s = served / step_s * node.request_touches[pool] / maximum(node.wanted[pool], 1.0)
        node.touches_per_s[pool] = warmed(node.touches_per_s[pool], per_s, step_s)
    fresh = _first_reads(node, now.pages[COLD])
    cold_stall_s = file_stall_s * cold / maximum(file, EPSILON)
    first_s = cold_stall_s * fresh / maximum(now.pages[COLD], EPSILON)
    now.refaults = total(now.pages, POOLS) - fresh
    now.stall_s = served * stall_s
    now.anon_stall_s = served * anon_stall_s
    now.file_stall_s = served * (file_stall_s - first_s)
    now.work_s = served * work_s


@model
def _arrivals(node: Node, noise: Noise, k: int, step_s: float) -> float:
    """Return how many requests arrive in the sub-step."""
    due = node.due + node.arriving_per_s * step_s
    even = floor(due + 1e-9)
    random = node.poisson > 0.0
    node.due = where(random, node.due, due - even)
    return where(random, noise.arrivals[k], even)


@model
def _own_s(
    parameters: Parameters, noise: Noise, work_s: float, reads: float, stall_s: float, k: int
) -> float:
    """Return the time of one request without queueing: its work and its wait for pages."""
    sigma, spread = parameters.service_sigma, parameters.fault_sigma
    base = work_s * exp(sigma * noise.spread[k] - 0.5 * sigma * sigma)
    # If less than one read is expected, a part of the requests waits for one whole read.
    whole = where(noise.misses[k] < reads, stall_s / maximum(reads, 1e-9), 0.0)
    each = where(reads < 1.0, whole, stall_s)
    wait = each * exp(spread * noise.fault_spread[k] - 0.5 * spread * spread)
    hit = noise.hiccups[k] < parameters.hiccup_share
    return base * where(hit, parameters.hiccup_factor, 1.0) + wait


@model
def _first_reads(node: Node, read: float) -> float:
    """Return how many of the cold pages ``read`` had never been in memory."""
    missing = node.wanted[COLD] - node.resident[COLD]
    unseen = maximum(node.wanted[COLD] - node.cold_seen, 0.0)
    fresh = read * minimum(unseen / maximum(missing, EPSILON), 1.0)
    node.cold_seen = node.cold_seen + fresh
    return fresh
