"""The twin's estimate of the application's working set is that of a node's sensors."""

from __future__ import annotations

import itertools
import math
from typing import cast

import numpy as np
import pytest

from stallward.actuator.sensors.working_set import HOLD_S, RefaultCounters, WorkingSet
from stallward.env.twin.physics.pages import ANON, COLD, FILE, POOLS
from stallward.env.twin.physics.state import REFAULT_STEPS, Node
from stallward.env.twin.physics.working_set import STEP_TICKS, update_working_set

PAGES = 40_000


class OneNode:
    """The pages of one application, whose estimate is made in Python."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.refault_pages = [0.0]
        self.refault_anon_pages = 0.0
        self.refaults_before = [0.0] * REFAULT_STEPS
        self.anon_refaults_before = [0.0] * REFAULT_STEPS
        self.wanted = [0.0] * POOLS
        self.resident = [0.0] * POOLS
        self.cold_seen = 0.0
        self.working_set_pages = math.nan
        self.evidence_s = 0.0
        self.given_up_file_pages = self.given_up_anon_pages = 0.0

    def hold(self, usage_pages: int, away_pages: int) -> None:
        """Let pages of all pools be in memory, and others be away: on disk or in swap."""
        parts = (0.5, 0.3, 0.2)
        for pool, part in zip((ANON, FILE, COLD), parts, strict=True):
            self.resident[pool] = round(usage_pages * part)
        self.resident[ANON] += usage_pages - sum(self.resident)
        swapped = away_pages // 3
        self.wanted[ANON] = self.resident[ANON] + swapped
        self.wanted[FILE] = self.resident[FILE] + away_pages - swapped
        self.cold_seen = self.resident[COLD]


class Both:
    """The two estimates, updated with the same counters."""

    def __init__(self) -> None:
        self.node, self.sensor = OneNode(), WorkingSet()
        self.ticks = 0
        self.estimates: list[int | None] = []

    def run(self, seconds: float, *, usage: int, away: int, refaults_per_step: int = 0) -> None:
        """Pass time, and compare the estimates after every step."""
        self.node.hold(usage, away)
        for _ in range(round(seconds * 10)):
            if self.ticks % STEP_TICKS == 0 and self.ticks:
                self.node.refault_pages[0] += refaults_per_step
                self.node.refault_anon_pages += refaults_per_step // 3
            self.node.time_s = self.ticks / 10
            update_working_set(cast("Node", self.node), self.ticks)
            if self.ticks % STEP_TICKS == 0:
                self._compare(usage, away)
            self.ticks += 1

    def _compare(self, usage: int, away: int) -> None:
        anon = int(self.node.refault_anon_pages)
        counters = RefaultCounters(
            time_s=self.node.time_s,
            usage_pages=usage,
            refault_file_pages=int(self.node.refault_pages[0]) - anon,
            refault_anon_pages=anon,
            away_file_pages=away - away // 3,
            swapped_pages=away // 3,
        )
        theirs = self.sensor.update(counters)
        mine = self.node.working_set_pages
        assert (None if math.isnan(mine) else mine) == theirs, self.node.time_s
        self.estimates.append(theirs)

    @property
    def estimate(self) -> int | None:
        """The newest one."""
        return self.estimates[-1]


@pytest.mark.parametrize("seed", range(8))
def test_random_counters_give_the_same_estimates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    both = Both()
    for _ in range(60):
        both.run(
            float(rng.choice([0.5, 3.0, 12.0, 70.0], p=[0.4, 0.3, 0.2, 0.1])),
            usage=int(rng.integers(1000, 200_000)),
            away=int(rng.integers(0, 60_000)),
            refaults_per_step=int(rng.choice([0, 5, 20, 100, 4000])),
        )
    known = [estimate is not None for estimate in both.estimates]
    changes = sum(a != b for a, b in itertools.pairwise(known))
    assert changes >= 3, "it was found, forgotten and found again"
    assert len(set(both.estimates)) > 20


def test_without_evidence_it_is_forgotten_after_a_minute() -> None:
    both = Both()
    both.run(5.0, usage=PAGES, away=0)
    assert both.estimate is None
    both.run(20.0, usage=PAGES, away=10_000, refaults_per_step=1000)
    assert both.estimate == PAGES + 10_000
    both.run(HOLD_S - 1.0, usage=2 * PAGES, away=10_000)
    assert both.estimate == PAGES + 10_000, "it is still held"
    both.run(2.5, usage=2 * PAGES, away=10_000)
    assert both.estimate is None


def test_what_stayed_away_for_a_minute_is_not_needed() -> None:
    both = Both()
    both.run(HOLD_S + 5.0, usage=PAGES, away=10_000)
    both.run(20.0, usage=PAGES, away=13_000, refaults_per_step=1000)
    assert both.estimate == PAGES + 3_000


def test_it_is_updated_every_half_second() -> None:
    both = Both()
    both.run(10.1, usage=PAGES, away=5000, refaults_per_step=500)
    assert both.estimate == PAGES + 5000
    both.node.hold(2 * PAGES, 5000)
    both.node.refault_pages[0] += 500
    update_working_set(cast("Node", both.node), both.ticks)
    assert both.node.working_set_pages == PAGES + 5000, "between two steps"
