"""One decision on many twin nodes: guard, twin, observation and reward in one pass.

Eight nodes go through all ticks of the decision before the next eight do, so that their state
stays in the processor's cache.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.action_table import ACTION_TABLES
from stallward.agent.applications import ANON_BAND, ANON_SHARE
from stallward.agent.desired import PROFILES, SLOTS
from stallward.env import objective
from stallward.env.simulation.observe import (
    encode,
    encoder_at,
    new_encoder,
    write_observation,
)
from stallward.env.simulation.sharing.partition import partition
from stallward.env.simulation.sharing.state import Numbers, Sharing, sharing_at
from stallward.env.simulation.step_buffers import (
    COSTS,
    Array,
    RewardTerms,
    StepBuffers,
    measured_at,
)
from stallward.env.twin.batch import TICK_S, World, tick_nodes
from stallward.env.twin.frame import Frame, add_others, anon_share, fill_frame, frame_at
from stallward.env.twin.inputs.exogenous import MOST_APPLICATIONS
from stallward.env.twin.physics import levers
from stallward.env.twin.physics.background import slots_in_use
from stallward.env.twin.physics.levers import Rules
from stallward.env.twin.physics.others import other_at, others_in_use
from stallward.env.twin.physics.pages import ANON
from stallward.env.twin.physics.state import LAST_S, P95_MS, SUBSTEPS, Node, node_at
from stallward.env.twin.physics.working_set import update_working_set
from stallward.env.twin.settings import settings_of
from stallward.env.twin.simd.backend import WIDTH
from stallward.env.twin.simd.jit import kernel, model
from stallward.env.twin.simd.layout import Rows
from stallward.env.twin.simd.one_lane import set_lane, value_of_lane
from stallward.env.twin.simd.records import local_rows
from stallward.env.twin.simd.values import maximum, where

_VIOLATED, _EXCESS, _SLOW = range(len(COSTS))
"""The rows of the prices, in the order of ``COSTS``."""
_PRICES: Final = len(COSTS)
_ENTRIES: Final = max(len(table.sizes) for table in ACTION_TABLES.values())
_PROFILES: Final = len(PROFILES)
_SETTINGS: Final = [settings_of(profile) for profile in PROFILES]
_KEEPS_ANON: Final = np.array([float(profile.keeps_anon) for profile in PROFILES])
_UNTOLD_SWAPPINESS: Final = np.array(
    [
        settings_of(replace(profile, protected_swappiness=None)).protected_swappiness
        for profile in PROFILES
    ]
)
"""The swappiness of an application that is given none of its own."""
_SWAPPINESS: Final = np.array([s.swappiness for s in _SETTINGS])
_PROTECTED_SWAPPINESS: Final = np.array([s.protected_swappiness for s in _SETTINGS])
_DIRTY_START: Final = np.array([s.dirty_start for s in _SETTINGS])
_DIRTY_BLOCK: Final = np.array([s.dirty_block for s in _SETTINGS])


@kernel
def step_all(
    world: World,
    buffers: StepBuffers,
    measured: Array,
    rules: Rules,
    numbers: Numbers,
    divides: bool,
    terms: RewardTerms,
    switch_cost: float,
    tick: int,
    ticks: int,
) -> None:
    """Hold the wanted actions for ``ticks`` ticks on every node.

    Args:
        world: The twin's nodes.
        buffers: The actions; the observations are written into it.
        measured: Rows of :class:`Measured`; they are filled.
        rules: The guard's rules.
        numbers: The numbers of ``partition``.
        divides: Whether the actions are set-points of ``partition``, or else limit levels.
        terms: The terms of the reward.
        switch_cost: The cost of one move of one lever.
        tick: The number of ticks before this decision.
        ticks: How many ticks the decision holds.
    """
    for at in range(0, buffers.wanted.shape[0], WIDTH):
        _step_nodes(
            world, buffers, measured, rules, numbers, divides, terms, switch_cost, tick, ticks, at
        )


@model
def _step_nodes(
    world: World,
    buffers: StepBuffers,
    measured: Array,
    rules: Rules,
    numbers: Numbers,
    divides: bool,
    terms: RewardTerms,
    switch_cost: float,
    tick: int,
    ticks: int,
    at: int,
) -> None:
    node, frame = node_at(world.state, at), frame_at(buffers.frames, at)
    memory = encoder_at(buffers.encoders, at)
    slots, others = slots_in_use(node), others_in_use(world, at)
    action, prices = local_rows(_ENTRIES), local_rows(_PRICES)
    paused, limits = local_rows(SLOTS), local_rows(SLOTS)
    baseline_ms, slow_ms = local_rows(MOST_APPLICATIONS), local_rows(MOST_APPLICATIONS)
    for lane in range(WIDTH):
        which = int(value_of_lane(node.scenario, lane))
        for cost in range(_PRICES):
            set_lane(prices, cost, lane, terms.prices[cost, which])
        set_lane(baseline_ms, 0, lane, terms.baseline_ms[which])
        set_lane(slow_ms, 0, lane, terms.slow_ms[which])
        for a in range(1, 1 + others):
            set_lane(baseline_ms, a, lane, terms.others_baseline_ms[a - 1, which])
            set_lane(slow_ms, a, lane, terms.others_slow_ms[a - 1, which])
    mean = measured_at(measured, at)
    mean.reward = mean.progress = mean.violated = mean.window_violated = 0.0
    mean.moved = mean.excess = mean.slow = 0.0
    for k in range(ticks):
        _read_actions(buffers, action, at, k == 0)
        if divides:
            sharing = sharing_at(buffers.sharing, at)
            profile = partition(node, frame, sharing, numbers, action, paused, limits, slots)
            _read_back_others(world, frame, sharing, at, others)
        else:
            profile = _levels(node, action, paused, limits, slots)
        moved = _set_levers(node, rules, profile, paused, limits, slots)
        _set_swappiness(world, node.profile, at, others)
        tick_nodes(world, at, tick + k, slots, True)
        for i in range(slots):
            levers.advance(node, buffers.ring, levers.held_bytes(node, i), at, tick + k, i)
        node.seen = 1.0
        update_working_set(node, tick + k + 1)
        _update_others(world, at, others, tick + k + 1)
        fill_frame(node, frame, slots)
        add_others(world, node, frame, at, others)
        encode(frame, memory, slots)
        progress = _progress(node, slots)
        severity, missed, excess, slow = _suffered(world, node, baseline_ms, slow_ms, at, others)
        paid = prices[_VIOLATED] * severity + prices[_EXCESS] * excess + prices[_SLOW] * slow
        value = objective.reward(progress, paid, moved, switch_cost)
        mean.reward = mean.reward + value / ticks
        mean.progress = mean.progress + progress / ticks
        mean.violated = mean.violated + severity / ticks
        mean.window_violated = mean.window_violated + missed / ticks
        mean.moved = mean.moved + moved
        mean.excess = mean.excess + excess / ticks
        mean.slow = mean.slow + slow / ticks
        for lane in range(WIDTH):
            observed = ticks - 2 if buffers.late[at + lane] else ticks - 1
            if k == observed:
                write_observation(memory, buffers.observation, at, lane)
    for lane in range(WIDTH):
        for j in range(buffers.wanted.shape[1]):
            buffers.action[at + lane, j] = buffers.wanted[at + lane, j]


@model
def _read_actions(buffers: StepBuffers, action: Rows, at: int, first: bool) -> None:
    """Set the actions in force: in the ``first`` tick of a decision, slow nodes keep the old."""
    for lane in range(WIDTH):
        old = first and buffers.slow[at + lane]
        for j in range(buffers.wanted.shape[1]):
            entry = buffers.action[at + lane, j] if old else buffers.wanted[at + lane, j]
            set_lane(action, j, lane, entry)


@model
def _severity(node: Node) -> float:
    """How badly the last second of an application missed its target."""
    return objective.window_severity(
        node.reported[P95_MS],
        node.time_s - node.reported[LAST_S],
        node.time_s,
        node.slo_ms,
        node.rate_per_s,
    )


@model
def _suffered(
    world: World, node: Node, baseline_ms: Rows, slow_ms: Rows, at: int, others: int
) -> tuple[float, float, float, float]:
    """Severity, whether the last window was missed, excess and slow requests in a tick.

    None of several applications is bought with another: of each figure the worst one counts.
    """
    severity, missed = _severity(node), node.missed
    excess, slow = _requests(node, baseline_ms[0], slow_ms[0])
    for a in range(1, 1 + others):
        other = other_at(world, at, a)
        there = other.has_application > 0.0
        its_excess, its_slow = _requests(other, baseline_ms[a], slow_ms[a])
        severity = where(there, maximum(severity, _severity(other)), severity)
        missed = where(there, maximum(missed, other.missed), missed)
        excess = where(there, maximum(excess, its_excess), excess)
        slow = where(there, maximum(slow, its_slow), slow)
    return severity, missed, excess, slow


@model
def _update_others(world: World, at: int, others: int, tick: int) -> None:
    for a in range(1, 1 + others):
        update_working_set(other_at(world, at, a), tick)


@model
def _read_back_others(world: World, frame: Frame, sharing: Sharing, at: int, others: int) -> None:
    """Ask for the swapped pages of further applications where the rule asks for those of all."""
    for a in range(1, 1 + others):
        other = other_at(world, at, a)
        swapped = other.wanted[ANON] - other.resident[ANON]
        asked = sharing.read_back_s == frame.time_s
        other.read_back_pages = where(asked, swapped, other.read_back_pages)


@model
def _set_swappiness(world: World, profile: float, at: int, others: int) -> None:
    """Set the swappiness of each of several applications, as ``agent.applications.Shares`` does.

    With a swappiness for anonymous pages, one that lives on files would lose those.
    """
    if others > 0:
        several = other_at(world, at, 1).has_application > 0.0
        for a in range(1 + others):
            own = other_at(world, at, a)
            share = anon_share(own)
            clear = maximum(share - ANON_SHARE, ANON_SHARE - share) > ANON_BAND
            keeps = where(share > ANON_SHARE, 1.0, 0.0)
            own.keeps_anon = where(clear, keeps, own.keeps_anon)
            for k in range(_PROFILES):
                given = where(
                    own.keeps_anon >= _KEEPS_ANON[k],
                    _PROTECTED_SWAPPINESS[k],
                    _UNTOLD_SWAPPINESS[k],
                )
                chosen = several & (profile == float(k))
                own.protected_swappiness = where(chosen, given, own.protected_swappiness)


@model
def _levels(node: Node, action: Rows, paused: Rows, limit_bytes: Rows, slots: int) -> float:
    """Set the pauses and limits of an action; return the index of its tuning profile."""
    for i in range(slots):
        paused[i] = action[2 * i]
        limit_bytes[i] = levers.wanted_limit_bytes(node, action[2 * i + 1], i)
    return action[2 * SLOTS]


@model
def _set_levers(
    node: Node, rules: Rules, profile: float, paused: Rows, limit_bytes: Rows, slots: int
) -> float:
    """Set the levers as far as the guard grants it; return how many moved."""
    moved = where(profile == node.profile, 0.0, 1.0)
    node.profile = profile
    # A profile is within the table, so one is always on.
    for k in range(_PROFILES):
        on = node.profile == float(k)
        node.swappiness = where(on, _SWAPPINESS[k], node.swappiness)
        protected = where(on, _PROTECTED_SWAPPINESS[k], node.protected_swappiness)
        node.protected_swappiness = protected
        node.dirty_start = where(on, _DIRTY_START[k], node.dirty_start)
        node.dirty_block = where(on, _DIRTY_BLOCK[k], node.dirty_block)
    for i in range(slots):
        there = node.has_program[i] > 0.0
        pause = (paused[i] == 1.0) & levers.may_pause(node, rules, i) & there
        granted = where(pause, 1.0, 0.0)
        limit = levers.granted_limit_bytes(node, rules, limit_bytes[i], granted, i)
        moved = moved + levers.apply(node, granted, where(there, limit, np.nan), i)
    return moved


@model
def _requests(node: Node, baseline_ms: float, slow_ms: float) -> tuple[float, float]:
    """Excess and number of slow requests in a tick, divided by the mean number of arrivals.

    With that divisor, the mean over ticks is the mean over requests, and a tick without requests
    has no weight.
    """
    excess, slow = 0.0 * baseline_ms, 0.0 * baseline_ms
    for k in range(SUBSTEPS):
        count, ms = node.probe_weight[k], node.probe_ms[k]
        excess = excess + count * objective.excess(ms, baseline_ms)
        slow = slow + where(ms > slow_ms, count, 0.0)
    expected = maximum(node.rate_per_s * TICK_S, 1e-9)
    return excess / expected, slow / expected


@model
def _progress(node: Node, slots: int) -> float:
    together, count = 0.0, 0.0
    for i in range(slots):
        together = together + node.progress[i] * node.on[i]
        count = count + node.on[i]
    return objective.mean_progress(together, count)


@kernel
def observe_first(world: World, buffers: StepBuffers, index: NDArray[np.int64]) -> None:
    """Write the first observation of the nodes in ``index``, whose episodes begin."""
    for n in index:
        at = n // WIDTH * WIDTH
        node, frame = node_at(world.state, at), frame_at(buffers.frames, at)
        memory = new_encoder()
        memory.fresh = 1.0
        memory.known_ms = encoder_at(buffers.encoders, at).known_ms
        slots = slots_in_use(node)
        fill_frame(node, frame, slots)
        add_others(world, node, frame, at, others_in_use(world, at))
        encode(frame, memory, slots)
        write_observation(memory, buffers.observation, at, n - at)
