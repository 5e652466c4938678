"""The levers of the twin follow the rules of the guard and of the slot tracker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.guard import Guard, GuardMemory
from stallward.actuator.guard.slot_tracker import NEVER_PAUSED_S, SlotFacts, SlotTracker
from stallward.agent.desired import (
    ACTION_SIZES,
    LIMIT_RATIOS,
    SLOTS,
    DesiredState,
    SlotDesire,
    decode_action,
)
from stallward.agent.sample import GroupSample, NodeSample, Sample, SlotState
from stallward.env.simulation.simulation import SimulationSettings
from stallward.env.twin.physics.levers import (
    Rules,
    advance,
    apply,
    granted_limit_bytes,
    make_ring,
    may_pause,
    paused_share,
    reference_bytes,
    rules_of,
    wanted_limit_bytes,
)
from stallward.env.twin.physics.state import Node

MIB = 1 << 20
FLOORS = (16 * MIB, 32 * MIB, 16 * MIB, 64 * MIB)


class OneNode:
    """The levers of one node of the twin, stepped in Python."""

    def __init__(self) -> None:
        self.paused = [0.0] * SLOTS
        self.limit_bytes = [np.nan] * SLOTS
        self.paused_for_s = [0.0] * SLOTS
        self.since_thaw_s = [NEVER_PAUSED_S] * SLOTS
        self.paused_ticks = [0.0] * SLOTS
        self.kept_bytes = [0.0] * SLOTS
        self.floor_bytes = [float(floor) for floor in FLOORS]
        self.want_paused = [0.0] * SLOTS
        self.want_limit_pages = [np.inf] * SLOTS
        self.seen = 0.0
        self._ring = make_ring(1)
        self._ticks = 0

    @property
    def node(self) -> Node:
        return cast("Node", self)

    def grant(self, action: NDArray[np.int64], rules: Rules, i: int) -> tuple[float, float]:
        paused = float(action[2 * i] == 1 and may_pause(self.node, rules, i))
        want = wanted_limit_bytes(self.node, float(action[2 * i + 1]), i)
        return paused, granted_limit_bytes(self.node, rules, want, paused, i)

    def pass_tick(self, held_bytes: Sequence[float]) -> None:
        for i, held in enumerate(held_bytes):
            advance(self.node, self._ring, held, 0, self._ticks, i)
        self.seen = 1.0
        self._ticks += 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "budgets",
    # Not multiples of a tick, with which rounding would decide.
    [
        Budgets(max_pause_s=5.05, min_run_s=0.55, max_pause_share=0.8005),
        Budgets(max_pause_s=1.05, min_run_s=0.55, max_pause_share=0.0505),
        Budgets(lift_budgets=True),
    ],
)
def test_the_same_actions_get_the_same_grants(seed: int, budgets: Budgets) -> None:
    rng = np.random.default_rng(seed)
    guard = Guard(budgets=budgets, floors_bytes=FLOORS)
    tracker, memory = SlotTracker(SLOTS), GuardMemory()
    levers, rules = OneNode(), rules_of(budgets)
    action = np.zeros(9, dtype=int)
    for k in range(400):
        time_s = 0.1 * k
        usage, swap = rng.integers(1, 200, (2, SLOTS)) * MIB
        swap = np.where(usage < 20 * MIB, 0, swap)
        if k % 7 == 0:
            action = np.array([rng.integers(size) for size in ACTION_SIZES])
        states = tracker.states(time_s)
        sample = Sample(
            sequence=k,
            time_s=time_s,
            node=NodeSample(),
            zone=GroupSample(name="zone"),
            protected=GroupSample(name="app"),
            slots=tuple(GroupSample(name=f"s{i}") for i in range(SLOTS)),
            slot_states=states,
        )
        desired = decode_action(action.tolist(), states, FLOORS)
        verdict = guard.review(desired, sample, memory)
        memory = verdict.memory
        granted = [levers.grant(action, rules, i) for i in range(SLOTS)]
        mine = DesiredState(
            slots=tuple(
                SlotDesire(
                    paused=paused > 0.0, limit_bytes=None if np.isnan(limit) else int(limit)
                )
                for paused, limit in granted
            )
        )
        for i in range(SLOTS):
            known = states[i].reference_bytes
            mine_known = reference_bytes(levers.node, i)
            assert mine_known == pytest.approx(np.nan if known is None else known, nan_ok=True)
            theirs = verdict.granted.slot(i)
            assert mine.slot(i).paused == theirs.paused, (k, i)
            ours = mine.slot(i).limit_bytes
            if theirs.limit_bytes is None or ours is None:
                assert ours == theirs.limit_bytes, (k, i)
            else:
                assert abs(ours - theirs.limit_bytes) <= 4096, (k, i)
        facts = [
            SlotFacts(
                paused=s.paused,
                limit_bytes=s.limit_bytes,
                usage_bytes=int(usage[i]),
                swap_bytes=int(swap[i]),
            )
            for i, s in enumerate(verdict.granted.slots)
        ]
        tracker.update(time_s, facts)
        for i, slot in enumerate(verdict.granted.slots):
            exact = np.nan if slot.limit_bytes is None else float(slot.limit_bytes)
            apply(levers.node, granted[i][0], exact, i)
        levers.pass_tick((usage + swap).astype(float))


def test_a_limit_above_the_reference_is_followed_by_the_first_level() -> None:
    """Partition gives headroom, so a limit may be above what the group holds."""
    reference, before, wanted = 100 * MIB, 130 * MIB, 20 * MIB
    levers = OneNode()
    levers.kept_bytes[0], levers.limit_bytes[0] = float(reference), float(before)
    rules = rules_of(Budgets())
    granted = granted_limit_bytes(levers.node, rules, float(wanted), 0.0, 0)
    assert granted == int(reference * LIMIT_RATIOS[1])
    sample = Sample(
        sequence=0,
        time_s=0.0,
        node=NodeSample(),
        zone=GroupSample(name="zone"),
        protected=GroupSample(name="app"),
        slots=(GroupSample(name="s0"),),
        slot_states=(SlotState(limit_bytes=before, reference_bytes=reference),),
    )
    guard = Guard(budgets=Budgets(), floors_bytes=FLOORS[:1])
    desired = DesiredState(slots=(SlotDesire(limit_bytes=wanted),))
    verdict = guard.review(desired, sample, GuardMemory())
    assert verdict.granted.slot(0).limit_bytes == granted


def test_moves_are_counted() -> None:
    levers = OneNode()
    assert apply(levers.node, 1.0, np.nan, 0) == 1.0
    assert apply(levers.node, 0.0, 1e8, 2) == 1.0
    assert apply(levers.node, 1.0, np.nan, 0) == 0.0
    assert apply(levers.node, 0.0, 1e8, 2) == 0.0
    assert levers.want_paused == [1.0, 0.0, 0.0, 0.0]
    assert levers.want_limit_pages[1:3] == [np.inf, 1e8 / 4096]
    levers.pass_tick([1e6] * SLOTS)
    assert paused_share(levers.node, 0) == pytest.approx(0.1 / 60)
    assert np.isnan(reference_bytes(levers.node, 1)), "a group that held little has a reference"
    levers.pass_tick([5e7] * SLOTS)
    assert np.isnan(reference_bytes(levers.node, 0)), "a paused group changes its reference"
    assert reference_bytes(levers.node, 1) == 5e7


def test_no_episode_is_long_enough_for_a_hold_without_pressure_to_be_refused() -> None:
    """So the twin's levers leave that rule of the guard out."""
    assert SimulationSettings().episode_s < Budgets().pressure_lasts_s
