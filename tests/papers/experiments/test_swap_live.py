"""The arms of the experiments on swap assignment in a real sandbox, with a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread

import pytest

from stallward.actuator.kernel.files import read_text
from stallward.env.sandbox.zone_memory import memory_file
from stallward.env.workloads.native.subtasks import SubtaskProgram
from stallward.evaluation.arms import Arm
from stallward.papers.experiments.batch_session import BatchSession, open_batch_session
from stallward.papers.experiments.swap.configurations import MIB, Configuration

pytestmark = [
    pytest.mark.live,
    pytest.mark.reaches(
        "actuator/stallward/actuator/",
        "env/stallward/env/workloads/",
        "env/stallward/env/scenario/",
    ),
]
TINY = Configuration(
    name="tiny",
    zone_bytes=96 * MIB,
    programs=tuple(
        SubtaskProgram(name=name, mib=64, subtasks=2, rounds=6, compute=8) for name in ("a", "b")
    ),
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchSession]:
    cache = tmp_path_factory.mktemp("cache")
    with open_batch_session(slots=2, zone_bytes=TINY.zone_bytes, cache_dir=cache) as opened:
        yield opened


def limit_mib(session: BatchSession, slot: int) -> float:
    group = session.sandbox.slots[slot]
    v2 = group.hierarchy.kind == "v2"
    text = read_text(memory_file(group, "memory.high" if v2 else "memory.limit_in_bytes")) or ""
    return int(text) / MIB if text.strip().isdigit() else float("inf")


@pytest.mark.parametrize(
    ("spec", "limited"),
    [
        ("swap-assign:degrees=1+2,needs_mib=64+64,margin_share=0", {0}),
        ("swap-assign:degrees=2+1,needs_mib=64+64,margin_share=0", {1}),
        ("swap-average:needs_mib=64+64,margin_share=0", {0, 1}),
        ("swap-assign:swap=0,degrees=2+1", set()),
    ],
)
def test_limits_hold_those_that_live_in_swap_and_are_put_back(
    session: BatchSession, spec: str, limited: set[int]
) -> None:
    lowest = {0: float("inf"), 1: float("inf")}
    over = Event()

    def watch() -> None:
        while not over.wait(0.02):
            for slot, before in tuple(lowest.items()):
                lowest[slot] = min(before, limit_mib(session, slot))

    watcher = Thread(target=watch)
    watcher.start()
    try:
        arm = Arm(label="arm", spec=spec)
        result = session.run(TINY, dict(enumerate(TINY.programs)), arm=arm, seed=1)
    finally:
        over.set()
        watcher.join()
    assert set(result.response_s) == {0, 1}
    assert {slot for slot, least in lowest.items() if least < 64} == limited
    if limited == {0}:
        # 128 MiB needed of 96: half of the lowest lives in swap.
        assert 16 <= lowest[0] <= 48
    assert all(limit_mib(session, slot) > 1 << 20 for slot in lowest), "nothing is left behind"


def test_mat_pauses_and_lets_both_end(session: BatchSession) -> None:
    arm = Arm(label="mat", spec="mat:refaults_per_s=500")
    result = session.run(TINY, dict(enumerate(TINY.programs)), arm=arm, seed=1)
    assert set(result.response_s) == {0, 1}
