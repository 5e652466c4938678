"""One twin node as rules see it: available memory, OOM scores, stalls, and restarted programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire
from stallward.env.testing import HOG, small_twin
from stallward.env.twin.inputs.exogenous import SlotProgram
from stallward.env.twin.inputs.parameters import TwinParameters
from stallward.env.twin.node import TwinNode
from stallward.env.twin.sample import FIRST_PID

END = DesiredState(terminate=ProcessRef(pid=FIRST_PID, start_time_ticks=0))
RUN = DesiredState()


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
