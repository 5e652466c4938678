"""What a node of the twin consists of: its description, its parameters, its state.

Each is a record (:mod:`stallward.env.twin.simd.records`): compiled code reads and sets
``node.time_s`` of eight nodes at once, numpy sees ``TwinBatch.nodes.time_s`` of all. Pages are
4096 bytes, shares are of a tick. Rows of pools are ordered by group: ``group * POOLS + pool``.
"""

from __future__ import annotations

from typing import Annotated, Final

from stallward.agent.desired import SLOTS
from stallward.env.twin.inputs.parameters import TwinParameters
from stallward.env.twin.physics.pages import GROUPS, POOLS
from stallward.env.twin.simd.layout import Layout, Rows
from stallward.env.twin.simd.records import reader

SUBSTEPS: Final = 4
"""Of a tick; one request stands for all that arrive in each."""
HORIZON_TICKS: Final = 64
"""How far ahead answers are kept for the reported window; later ones count as the last."""
REPORT_BINS: Final = 40
OfGroups = Annotated[Rows, GROUPS]
OfSlots = Annotated[Rows, SLOTS]
OfPools = Annotated[Rows, GROUPS, POOLS]
OfSubsteps = Annotated[Rows, SUBSTEPS]
OfZoneToo = Annotated[Rows, GROUPS + 1]
"""One for each group, then the zone's."""
COMPLETED, MEAN_MS, P95_MS, MAX_MS, LAST_S = range(5)
"""How many requests were answered; their mean, p95 and worst latency, NaN where there were none;
when the last one was answered since the reset, NaN where none was yet."""


class Description:
    """What comes from outside: the scenario's node, application and programs."""

    scenario: float
    """Index of the scenario."""
    zone_pages: float
    swap_pages: float
    slo_ms: float
    cores: float
    rate_per_s: float
    """Requests that arrive, on average."""
    rate_cycle_s: float
    """After which the rate is again what it was."""
    service_s: float
    """Mean service time of a request with everything in memory."""
    workers: float
    """Requests served at once."""
    poisson: float
    """1 where arrivals are random, 0 where they are evenly spaced."""
    request_touches: Annotated[Rows, POOLS]
    """Pages of each pool that a request touches."""
    idle_loss_per_s: float
    """Pages of the cold pool that leave memory though nothing presses."""
    there: OfSlots
    """1 where the slot has a group at all; its program may have ended."""
    present: OfSlots
    """1 where the slot has a program."""
    units_per_s: OfSlots
    touch_per_s: OfSlots
    fill_per_s: OfSlots
    stream_per_s: OfSlots
    dirty_share: OfSlots
    slot_cores: OfSlots
    floor_bytes: OfSlots
    stream_span: OfSlots
    length_s: OfSlots
    loop_from_s: OfSlots
    cycle_s: OfSlots


class Controls:
    """How the levers are set, as the next tick finds them."""

    want_paused: OfSlots
    want_limit_pages: OfSlots
    """Infinite for none."""
    swappiness: float
    dirty_start: float
    """Share of the zone that is dirty at which writeback starts."""
    dirty_block: float
    """Share of the zone that is dirty at which writers block."""


class Memory:
    """The pages that the groups own and hold."""

    resident: OfPools
    """Pages in memory."""
    wanted: OfPools
    """Pages owned."""
    touches_per_s: OfPools
    """How often each page of a pool was touched of late."""
    dirty: OfGroups
    """Dirty pages of the cold pools."""


class Application:
    """The protected application's requests and their queue."""

    arriving_per_s: float
    """Requests that arrive in this tick."""
    queued: float
    """Requests not finished yet."""
    due: float
    """Requests, also parts of one, that are to arrive; where arrivals are evenly spaced."""
    cold_seen: float
    """Pages of the cold pool that were read at least once."""
    probe_ms: OfSubsteps
    """The last tick's requests: their latency."""
    probe_weight: OfSubsteps
    """How many each of them stands for."""
    window: Annotated[Rows, REPORT_BINS]
    """How many of the last second's answers took how long."""
    sums_ms: Annotated[Rows, HORIZON_TICKS]
    """Latencies of all answered in a tick, added up; a ring of ticks past and to come."""
    worst_ms: Annotated[Rows, HORIZON_TICKS]
    """The worst of them."""
    reported: Annotated[Rows, 5]
    """What the latency source says of the last second: see :data:`COMPLETED` and following."""
    judged_ticks: float
    """Of the second that is running."""
    scheduled: float
    """Requests that arrived in the window that is judged next."""
    slow: float
    """Those of them that are answered after more than the target."""
    missed: float
    """1 where the window judged last missed the target."""


class Background:
    """The programs of the slots, each with a time of its own that passes as it gets on."""

    cursor_s: OfSlots
    """Each program's own time."""
    phase_s: float
    """How far into the coming and going of the programs the node began."""
    progress: OfSlots
    """Share of full speed in the last tick."""
    on: OfSlots
    """1 where somebody runs the program."""
    unpaused: OfSlots
    """1 where the pause lever lets it run, after its delay."""
    pause_change_s: OfSlots
    """For how long that lever has been set otherwise."""
    limit_pages: OfSlots
    """The limits in force, after their delay; infinite for none."""
    limit_change_s: OfSlots
    target_anon: OfSlots
    """Pages that the program owns at its own time."""
    target_file: OfSlots
    kernel_s: OfSlots
    """Time the kernel spent for it in this tick."""
    kernel_cores: OfSlots
    """Processors that the kernel used for it in the tick before."""
    cpu: float
    """Speed that the processors allow."""


class Pressure:
    """The device, and who waited in the last tick."""

    time_s: float
    """Since the node's reset."""
    backlog_s: float
    """Work queued at the device."""
    busy_share: float
    """Share of the time that the background and the kernel keep the device busy, of late."""
    own_busy_share: OfSlots
    """The part of it that each slot's own reads are."""
    stalled: OfGroups
    """Share of the tick each group was stalled."""
    io_share: OfZoneToo
    some: float
    """Share of the tick in which somebody was stalled."""
    full: float
    """Share of the tick in which somebody was stalled and nobody ran."""


class Counters:
    """What the nodes count, as their kernels do: cumulative since the reset."""

    psi_some_us: OfZoneToo
    psi_full_us: OfZoneToo
    psi_io_us: OfZoneToo
    refault_pages: OfGroups
    major_faults: float
    """Of the protected application."""
    cpu_us: OfGroups
    units: OfSlots
    """Work done."""
    swap_in_pages: float
    swap_out_pages: float
    cpu_stall_us: float


class Levers:
    """What a slot's pause and limit have been doing, as the guard counts it."""

    paused: OfSlots
    limit_bytes: OfSlots
    """NaN for none."""
    paused_for_s: OfSlots
    since_thaw_s: OfSlots
    paused_ticks: OfSlots
    """Of the last minute."""
    kept_bytes: OfSlots
    """What the group wants when nothing holds it back."""
    seen: float
    """1 once the group was read: as on a node, time is known from the second reading on."""
    profile: float
    """Index of the tuning profile in force."""


class Node(Description, Controls, Memory, Application, Background, Pressure, Counters, Levers):
    """All of a node but its parameters."""


class Noise:
    """The random numbers of one tick."""

    device: float
    """Normal."""
    arrivals: OfSubsteps
    """Requests that arrive where arrivals are random."""
    spread: OfSubsteps
    """Normal: of a request's own work."""
    fault_spread: OfSubsteps
    """Normal: of its wait for pages."""
    meets: OfSubsteps
    """Uniform: whether it meets a busy worker."""
    misses: OfSubsteps
    """Uniform: whether it meets a missing page."""
    hiccups: OfSubsteps
    """Uniform: whether something outside the model hits it."""


class Parameters(TwinParameters):
    """A node's parameters."""

    slot_miss_exponent: OfSlots
    """Each slot's own, by its index."""


NODE: Final = Layout(Node)
NOISE: Final = Layout(Noise)
PARAMETERS: Final = Layout(TwinParameters)
PARAMETERS.also("slot_miss_exponent", first="slot0_miss_exponent", shape=(SLOTS,))
node_at: Final = reader(Node, NODE)
noise_at: Final = reader(Noise, NOISE)
parameters_at: Final = reader(Parameters, PARAMETERS)
