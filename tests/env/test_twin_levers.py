"""The twin's levers follow the node's guard and slot tracker, rule by rule."""

from __future__ import annotations

import numpy as np
import pytest

from stallward.actuator.guard import Budgets, Guard, GuardMemory
from stallward.actuator.slots import SlotFacts, SlotTracker
from stallward.agent.desired import ACTION_SIZES, SLOTS, DesiredState, SlotDesire, decode_action
from stallward.agent.sample import GroupSample, NodeSample, Sample
from stallward.env.twin.levers import (
    LeverStates,
    granted_limit_bytes,
    may_pause,
    wanted_limit_bytes,
)

MIB = 1 << 20
FLOORS = (16 * MIB, 32 * MIB, 16 * MIB, 64 * MIB)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "budgets",
    # Off the tick's grid, where rounding would decide.
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
    levers = LeverStates(1, 0.1)
    floors = np.array(FLOORS, dtype=float)[:, None]
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
        allowed = may_pause(levers, budgets, 0.1)
        paused = (action[0:8:2][:, None] == 1) & allowed
        want = wanted_limit_bytes(action[1:8:2][:, None], levers.reference_bytes, floors)
        limit = granted_limit_bytes(want, levers, floors, paused, budgets)
        mine = DesiredState(
            slots=tuple(
                SlotDesire(
                    paused=bool(paused[i, 0]),
                    limit_bytes=None if np.isnan(limit[i, 0]) else int(limit[i, 0]),
                )
                for i in range(SLOTS)
            )
        )
        for i in range(SLOTS):
            known = states[i].reference_bytes
            mine_known = levers.reference_bytes[i, 0]
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
        exact = np.array(
            [[np.nan if s.limit_bytes is None else s.limit_bytes] for s in verdict.granted.slots]
        )
        levers.apply(paused, exact)
        levers.advance((usage + swap)[:, None].astype(float))


def test_moves_are_counted_and_a_reset_forgets() -> None:
    levers = LeverStates(2, 0.1)
    none = np.full((SLOTS, 2), np.nan)
    paused = np.zeros((SLOTS, 2), dtype=bool)
    paused[0, 1] = True
    limit = none.copy()
    limit[2, 1] = 1e8
    assert levers.apply(paused, limit).tolist() == [0.0, 2.0]
    assert levers.apply(paused, limit).tolist() == [0.0, 0.0]
    levers.advance(np.full((SLOTS, 2), 1e6))
    assert levers.paused_share[0, 1] == pytest.approx(0.1 / 60)
    assert np.isnan(levers.reference_bytes).all(), "none has held anything to speak of"
    levers.advance(np.full((SLOTS, 2), 5e7))
    assert np.isnan(levers.reference_bytes[0, 1]), "a paused group shows nothing new"
    assert levers.reference_bytes[1, 1] == 5e7
    levers.reset(np.array([False, True]))
    assert not levers.paused.any()
    assert np.isnan(levers.limit_bytes).all()
    assert levers.paused_share.sum() == 0.0
    assert np.isnan(levers.reference_bytes[:, 1]).all()
    assert levers.reference_bytes[1, 0] == 5e7
