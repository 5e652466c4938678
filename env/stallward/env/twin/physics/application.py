"""The protected application in the twin: arrivals, their queue, and what requests wait for."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.physics import latency as queue
from stallward.env.twin.physics.pages import ANON, COLD, EPSILON, FILE, POOLS, total
from stallward.env.twin.physics.state import Node, Noise, Parameters
from stallward.env.twin.simd.elementary import exp, remainder
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Layout, Rows
from stallward.env.twin.simd.one_lane import set_lane, value_of_lane
from stallward.env.twin.simd.records import local_reader, local_rows
from stallward.env.twin.simd.values import floor, maximum, minimum, where
from stallward.env.twin.simd.vectors import WIDTH

Array = NDArray[np.float64]

_WARMTH_S: Final = 0.5
"""Time constant with which a page's warmth follows how often it is touched."""


class Moment:
    """What everybody meets in a sub-step, and what serving requests in it comes to."""

    device: float
    """Factor on the device's times, 1 on average."""
    free: float
    """Pages of the zone that nobody holds."""
    tight: float
    """How short memory is: 0 with a fiftieth of the zone free, 1 with nothing."""
    read_s: float
    """What one read takes where nobody else reads."""
    own_anon_s: float
    """The application's wait for one missing anonymous page."""
    own_file_s: float
    """Its wait for one missing page of a file."""
    service_s: float
    """Mean service time of a request without waits for pages."""
    pages: Annotated[Rows, POOLS]
    """Pages that the requests fault in."""
    refaults: float
    """Those of them that had been in memory before."""
    stall_s: float
    """Time that requests wait for pages."""
    anon_stall_s: float
    """The part of it for anonymous pages."""
    file_stall_s: float
    """The part of it for pages of files that had been in memory before."""
    work_s: float
    """Processor time spent."""
    written: float
    """Dirty pages written back."""
    open_share: float
    """Share of full speed that writers have."""
    swapped_out: float
    """Anonymous pages written to swap."""


moment: Final = local_reader(Moment, Layout(Moment))


@model
def set_rate(node: Node, rates: Array) -> None:
    """Set how many requests arrive now.

    Args:
        node: Whose they are.
        rates: What the rate is times in each second, ``(scenarios, seconds)``.
    """
    second, factor = local_rows(1), local_rows(1)
    second[0] = remainder(node.time_s + node.phase_s, maximum(node.rate_cycle_s, 1.0))
    for lane in range(WIDTH):
        which = int(value_of_lane(node.scenario, lane))
        set_lane(factor, 0, lane, rates[which, int(value_of_lane(second[0], lane))])
    node.arriving_per_s = node.rate_per_s * factor[0]


@model
def warmed(before: float, touches_per_s: float, elapsed_s: float) -> float:
    """The warmth of pages after they were touched ``touches_per_s`` times for a moment."""
    return before + (elapsed_s / _WARMTH_S) * (touches_per_s - before)


@model
def serve(
    node: Node,
    parameters: Parameters,
    noise: Noise,
    now: Moment,
    miss: Rows,
    k: int,
    step_s: float,
) -> None:
    """Serve the requests of a sub-step.

    Args:
        node: Whose they are.
        parameters: The node's.
        noise: The tick's.
        now: The waits; what serving comes to is put into it.
        miss: Chance that a touched page of each pool is missing.
        k: Which sub-step of the tick.
        step_s: Length of a sub-step.
    """
    arrived = _arrivals(node, noise, k, step_s)
    anon = node.request_touches[ANON] * miss[ANON]
    cold = node.request_touches[COLD] * miss[COLD]
    file = node.request_touches[FILE] * miss[FILE] + cold
    anon_stall_s, file_stall_s = anon * now.own_anon_s, file * now.own_file_s
    stall_s = anon_stall_s + file_stall_s
    work_s = (
        now.service_s + anon * parameters.anon_fault_cpu_s + file * parameters.file_fault_cpu_s
    )
    request_s = work_s + stall_s
    load = minimum(node.arriving_per_s * request_s / node.workers, 1.0)
    wait_s = queue.wait_s(node.queued, request_s, node.workers, noise.meets[k], load)
    reads = anon / parameters.swap_readahead_pages + file / parameters.file_readahead_pages
    own_s = _own_s(parameters, noise, work_s, reads, stall_s, k)
    node.probe_ms[k] = 1e3 * (wait_s + own_s)
    node.probe_weight[k] = arrived
    served = queue.serve(node.queued, arrived, request_s, node.workers * step_s)
    node.queued = node.queued + arrived - served
    for pool in range(POOLS):
        missed = node.request_touches[pool] * miss[pool]
        lacks = maximum(node.wanted[pool] - node.resident[pool], 0.0)
        now.pages[pool] = minimum(served * missed, lacks)
        per_s = served / step_s * node.request_touches[pool] / maximum(node.wanted[pool], 1.0)
        node.touches_per_s[pool] = warmed(node.touches_per_s[pool], per_s, step_s)
    fresh = _first_reads(node, now.pages[COLD])
    first_s = cold * now.own_file_s * fresh / maximum(now.pages[COLD], EPSILON)
    now.refaults = total(now.pages, POOLS) - fresh
    now.stall_s = served * stall_s
    now.anon_stall_s = served * anon_stall_s
    now.file_stall_s = served * (file_stall_s - first_s)
    now.work_s = served * work_s


@model
def _arrivals(node: Node, noise: Noise, k: int, step_s: float) -> float:
    """Requests that arrive in the sub-step."""
    due = node.due + node.arriving_per_s * step_s
    even = floor(due + 1e-9)
    random = node.poisson > 0.0
    node.due = where(random, node.due, due - even)
    return where(random, noise.arrivals[k], even)


@model
def _own_s(
    parameters: Parameters, noise: Noise, work_s: float, reads: float, stall_s: float, k: int
) -> float:
    """Work and fault wait of one request of its own."""
    sigma, spread = parameters.service_sigma, parameters.fault_sigma
    base = work_s * exp(sigma * noise.spread[k] - 0.5 * sigma * sigma)
    # Below one expected read, few requests wait, and those for a whole one.
    whole = where(noise.misses[k] < reads, stall_s / maximum(reads, 1e-9), 0.0)
    each = where(reads < 1.0, whole, stall_s)
    wait = each * exp(spread * noise.fault_spread[k] - 0.5 * spread * spread)
    hit = noise.hiccups[k] < parameters.hiccup_share
    return base * where(hit, parameters.hiccup_factor, 1.0) + wait


@model
def _first_reads(node: Node, read: float) -> float:
    """How many of the cold pages ``read`` had never been in memory."""
    missing = node.wanted[COLD] - node.resident[COLD]
    unseen = maximum(node.wanted[COLD] - node.cold_seen, 0.0)
    fresh = read * minimum(unseen / maximum(missing, EPSILON), 1.0)
    node.cold_seen = node.cold_seen + fresh
    return fresh
