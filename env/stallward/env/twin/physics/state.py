"""The state of a twin node, its parameters, and the noise of a tick.

Each is a record (``simd.records``). Compiled code reads and sets ``node.time_s`` of eight nodes;
numpy sees ``TwinBatch.nodes.time_s`` of all nodes. Pages are 4096 bytes, shares of time refer to a
tick, and rows of pools are ordered by group: ``group * POOLS + pool``.
"""

from __future__ import annotations

from typing import Annotated, Final

from stallward.agent.desired import SLOTS
from stallward.env.twin.inputs.parameters import TwinParameters
from stallward.env.twin.physics.pages import GROUPS, POOLS
from stallward.env.twin.simd.layout import Layout, Rows
from stallward.env.twin.simd.records import reader

SUBSTEPS: Final = 4
"""Sub-steps of a tick. In each, one request stands for all that arrive."""
HORIZON_TICKS: Final = 64
"""How far ahead answers are scheduled; later ones count as if they came at the end of that."""
REPORT_BINS: Final = 40
PerGroup = Annotated[Rows, GROUPS]
PerSlot = Annotated[Rows, SLOTS]
PerPool = Annotated[Rows, GROUPS, POOLS]
PerSubstep = Annotated[Rows, SUBSTEPS]
PerGroupAndZone = Annotated[Rows, GROUPS + 1]
"""A row for each group, then one for the zone."""
REFAULT_STEPS: Final = 20
"""Steps of half a second over which refaults are counted for the working set."""
COMPLETED, MEAN_MS, P95_MS, MAX_MS, LAST_S = range(5)
"""The rows of ``reported``: the number of answers; their latencies, and when the last one came."""


class Inputs:
    """The exogenous values: the scenario's node, application and programs."""

    scenario: float
    """The index of the scenario."""
    zone_pages: float
    swap_pages: float
    slo_ms: float
    cores: float
    rate_per_s: float
    """The mean rate of requests."""
    rate_cycle_s: float  # the period with which the rate repeats
    service_s: float
    """The mean service time of a request with everything in memory."""
    workers: float
    """How many requests are served at once."""
    poisson: float
    """1 if arrivals are random, 0 if they are evenly spaced."""
    request_touches: Annotated[Rows, POOLS]
    """Pages of each pool that a request touches."""
    idle_loss_per_s: float
    """Pages of the cold pool that leave memory without pressure."""
    has_application: float
    """1 if there is an application; a node with fewer than another has records without one."""
    has_group: PerSlot
    """1 if the slot has a group, even if its program has ended."""
    has_program: PerSlot
    """1 if the slot has a program that has not ended for good."""
    units_per_s: PerSlot
    """Work units per second with the node to itself."""
    touch_per_s: PerSlot
    """Pages that the program touches per second at full speed."""
    fill_per_s: PerSlot
    """File pages of the working set that it reads for the first time, per second."""
    stream_per_s: PerSlot
    """File pages of a stream, per second at full speed."""
    dirty_share: PerSlot
    """The share of the stream that is written."""
    burst_per_s: PerSlot
    """File pages that a program reads per second in a burst, at full speed."""
    burst_s: PerSlot
    """The length of a burst, in the program's own time."""
    burst_every_s: PerSlot
    """The time from the start of a burst to the next."""
    slot_cores: PerSlot
    floor_bytes: PerSlot
    stream_span: PerSlot
    """Distinct pages of the stream."""
    length_s: PerSlot
    """The length of the recorded working set, in the program's own time."""
    loop_from_s: PerSlot
    """Where in it the part begins that is repeated."""
    cycle_s: PerSlot
    """The period with which the schedule of the program repeats."""


class Controls:
    """The settings of the levers for the next tick."""

    want_paused: PerSlot
    want_limit_pages: PerSlot  # infinite for none
    cpu_weight: PerSlot  # 100: as that of the application
    cpu_max_cores: PerSlot  # CPU seconds per second; infinite for no limit
    swappiness: float
    """The swappiness of the slots."""
    protected_swappiness: float
    protected_low_pages: float
    """Pages of the application that are reclaimed only when nothing else can be."""
    read_back_pages: float
    """Pages of the application that are still to be read back from swap, as was asked for."""
    dirty_start: float
    """The share of dirty pages in the zone at which writeback starts."""
    dirty_block: float
    """The share of dirty pages in the zone at which writers block."""


class Memory:
    """The pages of the groups."""

    resident: PerPool
    """Pages in memory."""
    wanted: PerPool
    """Pages owned."""
    touches_per_s: PerPool
    """How often a page of each pool was touched recently, on average."""
    dirty: PerGroup
    """Dirty pages of the cold pools."""


class Application:
    """The protected application's requests and their queue."""

    arriving_per_s: float
    """The rate of requests in this tick."""
    queued: float
    """Requests that are not finished yet."""
    due: float
    """The fraction of the next request that is due, if arrivals are evenly spaced."""
    cold_seen: float
    """Pages of the cold pool that have been read at least once."""
    probe_ms: PerSubstep
    """The latency of the request of each sub-step of the last tick."""
    probe_weight: PerSubstep
    """How many requests each of them stands for."""
    window: Annotated[Rows, REPORT_BINS]
    """The histogram of the latencies of the last second's answers."""
    sums_ms: Annotated[Rows, HORIZON_TICKS]
    """The sum of latencies of all requests answered in a tick; a ring of past and future ticks."""
    worst_ms: Annotated[Rows, HORIZON_TICKS]
    """The largest of these latencies."""
    reported: Annotated[Rows, 5]
    """The latency source's figures of the last second, in the rows ``COMPLETED`` to ``LAST_S``."""
    judged_ticks: float
    """How many ticks of the current second have passed."""
    scheduled: float
    """Requests that have arrived in the current window."""
    slow: float
    """Requests of that window whose latency is above the target."""
    missed: float
    """1 if the last finished window missed the target."""
    keeps_anon: float
    """1 while one of several applications lives on anonymous memory, whose pages are kept."""
    reads_share: float
    """The share of recent time in which its reads kept the device busy; 0 where it is alone."""


class Background:
    """The programs of the slots. Each has its own time, which passes with its progress."""

    cursor_s: PerSlot
    """The own time of each program."""
    phase_s: float
    """Where in the schedule of programs and rates the node began."""
    progress: PerSlot
    """Share of full speed in the last tick."""
    on: PerSlot
    """1 if the program runs now, by its schedule."""
    unpaused: PerSlot
    """1 if the program is not paused, after the delay of the lever."""
    pause_change_s: PerSlot
    """For how long a change of the pause has been wanted that has no effect yet."""
    limit_pages: PerSlot
    """The limits in force, after their delay; infinite for none."""
    limit_change_s: PerSlot
    """For how long a change of the limit has been wanted that has no effect yet."""
    target_anon: PerSlot
    """Anonymous pages that the program should own at its own time."""
    target_file: PerSlot
    bursting_per_s: PerSlot
    """``burst_per_s`` in a burst, else 0."""
    kernel_s: PerSlot
    """CPU time of the kernel for the program in this tick."""
    kernel_cores: PerSlot
    """Cores that the kernel used for the program in the tick before."""
    cpu: float
    """The share of full speed that the cores allow."""


class Pressure:
    """Time, the device, and the stalls of the last tick."""

    time_s: float
    """Time since the node's reset."""
    backlog_s: float
    """Work queued at the device."""
    stuck_s: float
    """How long the device still serves no read."""
    busy_share: float
    """The share of recent time in which the background and the kernel kept the device busy."""
    own_busy_share: PerSlot
    """The part of that share that is due to the reads of each slot."""
    stalled: PerGroup
    """The share of the tick in which each group was stalled."""
    io_share: PerGroupAndZone
    """The share of the tick in which each was stalled on the disk."""
    some: float
    """The share of the tick in which at least one group was stalled."""
    full: float
    """The share of the tick in which at least one group was stalled and none ran."""


class Counters:
    """The counters of the node's kernel, cumulative since the reset."""

    psi_some_us: PerGroupAndZone
    psi_full_us: PerGroupAndZone
    psi_io_us: PerGroupAndZone
    refault_pages: PerGroup
    refault_anon_pages: float
    """The part of the protected application's refaults that came from swap."""
    major_faults: float
    """Major faults of the protected application."""
    cpu_us: PerGroup
    user_us: PerSlot
    """The part of ``cpu_us`` outside the kernel."""
    units: PerSlot
    """Finished work."""
    swap_in_pages: float
    swap_out_pages: float
    cpu_stall_us: float
    joint_stall_us: float
    """Where there are several applications: the stall of the one that stalled most, as it grew."""
    joint_io_us: float


class Levers:
    """The history of each slot's pause and limit, as the guard counts it."""

    paused: PerSlot
    limit_bytes: PerSlot
    """NaN for none."""
    paused_for_s: PerSlot
    since_thaw_s: PerSlot
    paused_ticks: PerSlot
    """How many ticks of the last minute the slot was paused."""
    kept_bytes: PerSlot
    """The reference: the memory that the group holds without a limit or pause."""
    seen: float
    """1 after the first reading. As on a node, elapsed time is known from the second one on."""
    profile: float
    """The index of the tuning profile in force."""


class WorkingSet:
    """What is estimated of the application's working set."""

    working_set_pages: float
    """The estimate; NaN while there is no evidence."""
    evidence_s: float
    """When there was evidence for it last."""
    given_up_file_pages: float
    """Evicted file pages that the application does not need any more."""
    given_up_anon_pages: float
    """The same of pages in swap."""
    refaults_before: Annotated[Rows, REFAULT_STEPS]
    """Its refaults in the last steps; a ring."""
    anon_refaults_before: Annotated[Rows, REFAULT_STEPS]
    """The part of them that came from swap."""


class Node(
    Inputs, Controls, Memory, Application, Background, Pressure, Counters, Levers, WorkingSet
):
    """The whole state of a node, without its parameters."""


class Noise:
    """The random numbers of one tick."""

    device: float
    """A normal number for the speed of the device."""
    stall: float
    """A uniform number for whether it stands still; the speed is drawn from it, too."""
    arrivals: PerSubstep
    """How many requests arrive, if arrivals are random."""
    spread: PerSubstep
    """A normal number for a request's own work."""
    fault_spread: PerSubstep
    """A normal number for its wait for pages."""
    meets: PerSubstep
    """A uniform number for whether it meets a busy worker."""
    misses: PerSubstep
    """A uniform number for whether it meets a missing page."""
    hiccups: PerSubstep
    """A uniform number for whether it is delayed by something else, or waits for a CPU."""


class Parameters(TwinParameters):
    """The parameters of a node."""

    slot_miss_exponent: PerSlot
    """The exponent of each slot by its index."""


NODE: Final = Layout(Node)
NOISE: Final = Layout(Noise)
PARAMETERS: Final = Layout(TwinParameters)
PARAMETERS.add_group("slot_miss_exponent", first="slot0_miss_exponent", shape=(SLOTS,))
node_at: Final = reader(Node, NODE)
noise_at: Final = reader(Noise, NOISE)
parameters_at: Final = reader(Parameters, PARAMETERS)
