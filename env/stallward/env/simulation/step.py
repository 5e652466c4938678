"""One decision on many twin nodes: guard, twin, observation and reward in one pass.

Eight nodes go through all ticks of the decision before the next eight, so that what they read
stays near the processor.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import ACTION_SIZES, PROFILES, SLOTS
from stallward.agent.observation.encoder import OBSERVATION_SIZE
from stallward.env import objective as rewards
from stallward.env.simulation.observe import (
    ENCODER,
    Observations,
    encode,
    encoder_at,
    new_encoder,
    write_observation,
)
from stallward.env.twin.batch import NODE_DIRTY_RATIOS, NODE_SWAPPINESS, TICK_S, World, tick_nodes
from stallward.env.twin.frame import FRAME, fill_frame, frame_at
from stallward.env.twin.physics import levers
from stallward.env.twin.physics.background import slots_in_use
from stallward.env.twin.physics.levers import Ring, Rules
from stallward.env.twin.physics.state import LAST_S, P95_MS, SUBSTEPS, Node, node_at
from stallward.env.twin.simd.jit import kernel, model
from stallward.env.twin.simd.layout import Layout, Rows, tiles
from stallward.env.twin.simd.one_lane import set_lane, value_of_lane
from stallward.env.twin.simd.records import local_rows, reader
from stallward.env.twin.simd.values import maximum, where
from stallward.env.twin.simd.vectors import WIDTH

Array = NDArray[np.float64]
Actions = NDArray[np.int64]

COSTS: Final = ("violated", "excess", "slow")
"""What has a price."""
_VIOLATED, _EXCESS, _SLOW = range(len(COSTS))
"""Which row of the prices is that of which cost."""
_PRICES: Final = len(COSTS)
_ENTRIES: Final = len(ACTION_SIZES)
_PROFILES: Final = len(PROFILES)
_START, _BLOCK = NODE_DIRTY_RATIOS
_SWAPPINESS: Final = np.array(
    [NODE_SWAPPINESS if p.swappiness is None else float(p.swappiness) for p in PROFILES]
)
_DIRTY_START: Final = np.array(
    [
        _START if p.dirty_background_ratio is None else p.dirty_background_ratio / 100
        for p in PROFILES
    ]
)
_DIRTY_BLOCK: Final = np.array(
    [_BLOCK if p.dirty_ratio is None else p.dirty_ratio / 100 for p in PROFILES]
)


class Seen(NamedTuple):
    """What stands between the policies and the nodes, of as many nodes as are computed."""

    frames: Array
    """Of :class:`~stallward.env.twin.frame.Frame`."""
    encoders: Array
    """Of :class:`~stallward.env.simulation.observe.Encoder`."""
    ring: Ring
    observation: Observations
    """``(B, OBSERVATION_SIZE)``."""
    wanted: Actions
    """``(B, len(ACTION_SIZES))``."""
    action: Actions
    """The decisions before those, same shape."""
    slow: NDArray[np.bool_]
    """Whether actions take hold a tick late, ``(B,)``."""
    late: NDArray[np.bool_]
    """Whether the next decision sees the observation of the tick before, ``(B,)``."""


class Terms(NamedTuple):
    """By what nodes of each scenario are rewarded."""

    prices: Array
    """Of each of :data:`COSTS`, ``(len(COSTS), scenarios)``."""
    usual_ms: Array
    """Mean latency with ample memory, ``(scenarios,)``."""
    slow_ms: Array
    """Latency from which on a request is a slow one, ``(scenarios,)``."""


class Measured:
    """What a decision came to on a node, means over its ticks."""

    reward: float
    progress: float
    """Mean over the slots of their share of full speed."""
    violated: float
    """Severity of the last second."""
    window_violated: float
    """1 where the last window missed the target."""
    moved: float
    """How many levers moved; a sum."""
    excess: float
    """By how many times the usual latency requests took longer."""
    slow: float
    """Share of the requests that are slow ones."""


MEASURED: Final = Layout(Measured)
measured_at: Final = reader(Measured, MEASURED)


def measured_by_name(measured: Array, nodes: int) -> dict[str, Array]:
    """The figures of the first nodes, ``(nodes,)`` each, by their names in :class:`Measured`.

    Args:
        measured: Rows of ``MEASURED``.
        nodes: How many.
    """
    rows = measured.swapaxes(0, 1).reshape(MEASURED.rows, -1)[:, :nodes]
    return {name: rows[row] for name, (row, _) in MEASURED.fields.items()}


def make_seen(nodes: int) -> Seen:
    """For ``nodes`` nodes."""
    size = tiles(nodes) * WIDTH
    return Seen(
        frames=FRAME.empty(nodes),
        encoders=ENCODER.empty(nodes),
        ring=levers.make_ring(nodes),
        observation=np.zeros((size, OBSERVATION_SIZE), dtype=np.float32),
        wanted=np.zeros((size, _ENTRIES), dtype=np.int64),
        action=np.zeros((size, _ENTRIES), dtype=np.int64),
        slow=np.zeros(size, dtype=bool),
        late=np.zeros(size, dtype=bool),
    )


@kernel
def step_all(
    world: World,
    seen: Seen,
    measured: Array,
    rules: Rules,
    terms: Terms,
    switch_cost: float,
    tick: int,
    ticks: int,
) -> None:
    """Hold the wanted actions for ``ticks`` ticks on every node.

    Args:
        world: The twin's nodes.
        seen: The actions; observations are put into it.
        measured: Filled; rows of :class:`Measured`.
        rules: The guard's.
        terms: Of the scenarios.
        switch_cost: Of one lever moving once.
        tick: Ticks before.
        ticks: How many the decision holds.
    """
    for at in range(0, seen.wanted.shape[0], WIDTH):
        _step_nodes(world, seen, measured, rules, terms, switch_cost, tick, ticks, at)


@model
def _step_nodes(
    world: World,
    seen: Seen,
    measured: Array,
    rules: Rules,
    terms: Terms,
    switch_cost: float,
    tick: int,
    ticks: int,
    at: int,
) -> None:
    node, frame = node_at(world.state, at), frame_at(seen.frames, at)
    memory = encoder_at(seen.encoders, at)
    slots = slots_in_use(node)
    action, prices = local_rows(_ENTRIES), local_rows(_PRICES)
    usual_ms, slow_ms = local_rows(1), local_rows(1)
    for lane in range(WIDTH):
        which = int(value_of_lane(node.scenario, lane))
        for cost in range(_PRICES):
            set_lane(prices, cost, lane, terms.prices[cost, which])
        set_lane(usual_ms, 0, lane, terms.usual_ms[which])
        set_lane(slow_ms, 0, lane, terms.slow_ms[which])
    mean = measured_at(measured, at)
    mean.reward = mean.progress = mean.violated = mean.window_violated = 0.0
    mean.moved = mean.excess = mean.slow = 0.0
    for k in range(ticks):
        _read_actions(seen, action, at, k == 0)
        moved = _set_levers(node, rules, action, slots)
        tick_nodes(world, at, tick + k, slots, True)
        for i in range(slots):
            levers.advance(node, seen.ring, levers.held_bytes(node, i), at, tick + k, i)
        node.seen = 1.0
        fill_frame(node, frame, slots)
        encode(frame, memory, slots)
        progress = _progress(node, slots)
        bad = rewards.window_severity(
            node.reported[P95_MS],
            node.time_s - node.reported[LAST_S],
            node.time_s,
            node.slo_ms,
            node.rate_per_s,
        )
        longer, slow = _requests(node, usual_ms[0], slow_ms[0])
        paid = prices[_VIOLATED] * bad + prices[_EXCESS] * longer + prices[_SLOW] * slow
        value = rewards.reward(progress, paid, moved, switch_cost)
        mean.reward = mean.reward + value / ticks
        mean.progress = mean.progress + progress / ticks
        mean.violated = mean.violated + bad / ticks
        mean.window_violated = mean.window_violated + node.missed / ticks
        mean.moved = mean.moved + moved
        mean.excess = mean.excess + longer / ticks
        mean.slow = mean.slow + slow / ticks
        for lane in range(WIDTH):
            shown = ticks - 2 if seen.late[at + lane] else ticks - 1
            if k == shown:
                write_observation(memory, seen.observation, at, lane)
    for lane in range(WIDTH):
        for j in range(_ENTRIES):
            seen.action[at + lane, j] = seen.wanted[at + lane, j]


@model
def _read_actions(seen: Seen, action: Rows, at: int, first: bool) -> None:
    """Set the actions in force; at the ``first`` tick of a decision, slow ones are the old."""
    for lane in range(WIDTH):
        old = first and seen.slow[at + lane]
        for j in range(_ENTRIES):
            entry = seen.action[at + lane, j] if old else seen.wanted[at + lane, j]
            set_lane(action, j, lane, entry)


@model
def _set_levers(node: Node, rules: Rules, action: Rows, slots: int) -> float:
    """Set the levers as far as the guard lets them; returns how many moved."""
    moved = where(action[2 * SLOTS] == node.profile, 0.0, 1.0)
    node.profile = action[2 * SLOTS]
    node.swappiness, node.dirty_start, node.dirty_block = _SWAPPINESS[0], _START, _BLOCK
    for k in range(_PROFILES):
        on = node.profile == float(k)
        node.swappiness = where(on, _SWAPPINESS[k], node.swappiness)
        node.dirty_start = where(on, _DIRTY_START[k], node.dirty_start)
        node.dirty_block = where(on, _DIRTY_BLOCK[k], node.dirty_block)
    for i in range(slots):
        there = node.present[i] > 0.0
        pause = (action[2 * i] == 1.0) & levers.may_pause(node, rules, i) & there
        paused = where(pause, 1.0, 0.0)
        want = levers.wanted_limit_bytes(node, action[2 * i + 1], i)
        limit = levers.granted_limit_bytes(node, rules, want, paused, i)
        moved = moved + levers.put(node, paused, where(there, limit, np.nan), i)
    return moved


@model
def _requests(node: Node, usual_ms: float, slow_ms: float) -> tuple[float, float]:
    """Excess and number of slow ones of the requests of a tick, by how many come on average.

    So the mean over time is that over requests, and a tick without any counts for nothing.
    """
    longer, slow = 0.0 * usual_ms, 0.0 * usual_ms
    for k in range(SUBSTEPS):
        count, ms = node.probe_weight[k], node.probe_ms[k]
        longer = longer + count * rewards.excess(ms, usual_ms)
        slow = slow + where(ms > slow_ms, count, 0.0)
    usually = maximum(node.rate_per_s * TICK_S, 1e-9)
    return longer / usually, slow / usually


@model
def _progress(node: Node, slots: int) -> float:
    together, count = 0.0, 0.0
    for i in range(slots):
        together = together + node.progress[i] * node.on[i]
        count = count + node.on[i]
    return rewards.mean_progress(together, count)


@kernel
def observe_first(world: World, seen: Seen, index: NDArray[np.int64]) -> None:
    """Write the first observation of the nodes ``index``, whose episodes begin."""
    for n in index:
        at = n // WIDTH * WIDTH
        node, frame = node_at(world.state, at), frame_at(seen.frames, at)
        memory = new_encoder()
        memory.fresh = 1.0
        memory.known_ms = encoder_at(seen.encoders, at).known_ms
        slots = slots_in_use(node)
        fill_frame(node, frame, slots)
        encode(frame, memory, slots)
        write_observation(memory, seen.observation, at, n - at)
