"""One twin node as rules see it: available memory, OOM scores, stalls, and restarted programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire
from stallward.env.testing import HOG, small_twin
from stallward.env.twin.inputs.exogenous import SlotProgram
from stallward.env.twin.inputs.parameters import TwinParameters
from stallward.env.twin.node import TwinNode
from stallward.env.twin.one_shot import Reclaims
from stallward.env.twin.sample import FIRST_PID

END = DesiredState(terminate=ProcessRef(pid=FIRST_PID, start_time_ticks=0))
RUN = DesiredState()
AMPLE_BYTES = 2 << 30
"""Memory for everything."""


def node_of(*programs: SlotProgram, **changes: object) -> TwinNode:
    scenario = replace(small_twin(*programs).scenario, **changes)  # type: ignore[arg-type]
    return TwinNode(scenario, TwinParameters(), seed=1)


def run(node: TwinNode, seconds: float, desired: DesiredState = RUN) -> list[float]:
    """Return the memory of the first slot at every tick."""
    held = []
    for _ in range(round(10 * seconds)):
        node.step(desired)
        held.append(float(node.sample().slots[0].memory_usage_bytes or 0))
    return held


def test_a_terminated_program_is_gone_unless_a_loop_runs_it() -> None:
    for restarts in (False, True):
        node = node_of(replace(HOG, restarts=restarts))
        before = run(node, 10.0)[-1]
        first = run(node, 0.1, END)[0]
        after = run(node, 20.0)[-1]
        assert first < 0.2 * before
        if restarts:
            assert after > 0.8 * before, "it begins anew"
            assert len(node.sample().processes or ()) == 1
        else:
            assert after == 0.0
            assert node.sample().processes == ()


def test_a_terminated_program_runs_again_from_its_next_scheduled_start() -> None:
    node = node_of(replace(HOG, running=(1.0,) * 10 + (0.0,) * 5))
    run(node, 5.0)
    held = run(node, 0.1, END) + run(node, 25.0)
    at_s = 5.0 + 0.1 * np.arange(1, 1 + len(held))
    held_bytes = np.array(held)
    assert held_bytes[at_s < 14.9].max() == 0.0, "it runs again before its next start"
    assert held_bytes[(at_s > 16.0) & (at_s < 24.9)].min() > 0.0, "it does not run again"


def test_a_slot_that_is_ended_is_gone_and_ended_once() -> None:
    node = node_of(replace(HOG, restarts=True), HOG)
    before = run(node, 10.0)[-1]
    end_first = DesiredState(slots=(SlotDesire(terminated=True),))
    held = run(node, 20.0, end_first)
    assert held[0] < 0.5 * before
    assert held[-1] > 0.8 * before, "the wish stands, and what began anew is not ended again"
    assert (node.sample().slots[1].memory_usage_bytes or 0) > 0


def test_a_cpu_limit_bounds_the_work_and_the_cpu_time_of_a_slot() -> None:
    cores = {}
    for limit in (None, 0.5):
        node = node_of(HOG, HOG, zone_bytes=AMPLE_BYTES, cores=4.0)
        wish = DesiredState(slots=(SlotDesire(cpu_max_cores=limit),))
        run(node, 10.0, wish)
        before = [group.cpu_usage_us or 0 for group in node.sample().slots]
        units = node.units().units.reshape(2, -1)[:, -1]
        run(node, 10.0, wish)
        after = [group.cpu_usage_us or 0 for group in node.sample().slots]
        done = node.units().units.reshape(2, -1)[:, -1] - units
        cores[limit] = [(b - a) * 1e-7 for a, b in zip(before, after, strict=True)]
        assert done[0] / done[1] == pytest.approx(0.5 if limit else 1.0, rel=0.1)
    assert cores[None][0] == pytest.approx(HOG.cores, abs=0.03)
    assert cores[0.5][0] == pytest.approx(0.5, abs=0.03)


def test_idle_time_is_what_nobody_used_of_the_time_of_all_cpus() -> None:
    def idle_share(cores: float) -> float:
        node = node_of(replace(HOG, cores=cores), cores=4.0, zone_bytes=AMPLE_BYTES)
        run(node, 10.0)
        sample = node.sample()
        assert sample.node.cpu_time_us == pytest.approx(4e7, rel=1e-6)
        return (sample.node.cpu_idle_us or 0) / (sample.node.cpu_time_us or 1)

    assert 0.7 < idle_share(0.0) <= 1.0
    assert idle_share(0.0) - idle_share(2.0) == pytest.approx(0.5, abs=0.03)


@pytest.mark.slow
def test_a_slot_is_reclaimed_once_and_may_grow_again() -> None:
    node = node_of(replace(HOG, touch_pages_per_s=2000.0), zone_bytes=AMPLE_BYTES)
    before = run(node, 120.0)[-1]
    target = int(0.5 * before)
    wish = DesiredState(slots=(SlotDesire(reclaim_to_bytes=target),))
    held = run(node, 120.0, wish)
    assert min(held) <= target + (1 << 20)
    assert held[-1] > 1.2 * target, "it is no limit: the pages come back as they are touched"
    assert node.sample().slot_states[0].limit_bytes is None
    further = DesiredState(slots=(SlotDesire(reclaim_to_bytes=target - 4096),))
    assert min(run(node, 20.0, further)) <= target + (1 << 20), "another target is another wish"


def test_a_reclaim_that_gets_nothing_is_given_up() -> None:
    reclaims = Reclaims(1)
    wish = DesiredState(slots=(SlotDesire(reclaim_to_bytes=100 << 20),))
    wanted = [reclaims.targets(wish, [2e8]) for _ in range(40)]
    assert wanted[0] == wanted[19] == (100 << 20,)
    assert wanted[-1] == (None,)


@pytest.mark.slow
def test_the_share_of_inactive_file_pages_changes_like_the_recorded_one() -> None:
    node = node_of(inactive_file_shares=(0.0, 0.2, 0.4))
    shares = []
    for _ in range(2000):
        node.step(RUN)
        zone = node.sample().zone
        assert zone.inactive_file_bytes is not None
        assert zone.file_bytes
        shares.append(zone.inactive_file_bytes / zone.file_bytes)
    assert 0.0 <= min(shares) < 0.02
    assert 0.38 < max(shares) <= 0.4
    assert 0.15 < np.median(shares) < 0.25
    assert len(set(np.round(shares, 4))) <= 2000 / 5 + 1, "it changes in every tick"


def test_stalls_are_reported_in_bursts_and_none_is_lost() -> None:
    node = node_of(HOG, HOG)
    totals, reported = [], []
    limited = DesiredState(slots=tuple(SlotDesire(limit_bytes=120 << 20) for _ in range(2)))
    for _ in range(600):
        node.step(limited)
        psi = node.sample().zone.psi
        reported.append((psi.memory_some_us or 0, psi.memory_full_us or 0, psi.io_some_us or 0))
        totals.append(node.frame().node[1])
    some = np.array(reported)[:, 0]
    assert (np.diff(np.array(reported), axis=0) >= 0).all()
    assert (np.array(totals) - some >= -1.0).all()
    assert np.max(np.array(totals) - some) < 50.0 * 1e6 * TwinParameters().read_latency_s
    assert some[-1] > 0


def test_if_stalls_are_rarer_than_ticks_most_ticks_report_none() -> None:
    node = node_of(replace(HOG, anon_pages=(62_410.0,)))  # a few pages too many
    run(node, 20.0)
    reported_rises, exact_rises = 0, 0
    for _ in range(600):
        reported_us, exact_us = node.sample().zone.psi.memory_some_us, node.frame().node[1]
        node.step(RUN)
        reported_rises += node.sample().zone.psi.memory_some_us != reported_us
        exact_rises += node.frame().node[1] > exact_us
    assert exact_rises == 600
    assert 50 < reported_rises < 250


def test_programs_of_about_the_same_size_have_the_same_score_on_a_large_machine() -> None:
    larger, smaller = (replace(HOG, anon_pages=(pages,)) for pages in (20_000.0, 19_000.0))
    for memory_bytes, same in ((24 << 30, True), (256 << 20, False)):
        node = node_of(larger, smaller, memory_bytes=memory_bytes, swap_bytes=256 << 20)
        run(node, 15.0)
        one, two = node.sample().processes or ()
        assert (one.oom_score == two.oom_score) == same
        assert 666 <= one.oom_score < 2000
