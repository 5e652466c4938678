"""A small fleet of simulated nodes: the experiment runs on all, and every tick is counted."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from stallward.actuator.errors import DaemonError
from stallward.benchmarks.fleet.bench import MEANINGS, FleetSettings, _Caller, bench_fleet

pytestmark = pytest.mark.reaches("actuator/stallward/actuator/service/", "models/")


@pytest.mark.slow
def test_a_small_fleet_completes_its_experiment_and_loses_nothing_uncounted() -> None:
    settings = FleetSettings(nodes=4, pairs=1, period_s=0.05)
    figures = bench_fleet(settings)
    assert figures.keys() == MEANINGS.keys()
    assert figures["ticks_uncounted"] == 0.0
    assert figures["ticks_lost"]
    assert figures["nodes_complete"] == 4.0
    assert figures["blocks_kept"] == 8.0


class Node:
    """A client of a node that answers, or whose loop is too busy to."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers

    def status(self) -> None:
        if not self.answers:
            raise DaemonError("It does not answer in time.")


def test_a_node_that_does_not_answer_in_time_does_not_end_the_calls() -> None:
    clients = {"busy": Node(answers=False), "calm": Node(answers=True)}
    caller = _Caller(SimpleNamespace(clients=clients))  # type: ignore[arg-type]
    caller.start()
    deadline_s = time.monotonic() + 20.0
    while len(caller.durations_ms) < 3 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    caller.ending.set()
    caller.join()
    assert len(caller.durations_ms) >= 3
