"""The limits on what the background reads while it makes the application wait for the disk."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stallward.agent.desired import MIB
from stallward.agent.sample import GroupSample
from stallward.agent.sharing.throttle import STEP_S, Throttle, ThrottleThresholds

TICK_S = 0.1
LEAST_MIB = 16


class Disk:
    """Groups that read as fast as they want or may."""

    def __init__(self, *wanted_mib_per_s: float) -> None:
        thresholds = ThrottleThresholds(least_read_mib_s=LEAST_MIB, read_growth_s=30.0)
        self.throttle = Throttle(thresholds)
        self.wanted_mib_per_s = list(wanted_mib_per_s)
        self.read_bytes = [0.0 for _ in wanted_mib_per_s]
        self.counted = True

    def run(
        self, seconds: float, *, harmful: bool = False, ratio: float | None = 0.5
    ) -> list[float | None]:
        """The limits after some time, in MiB/s."""
        for _ in range(round(seconds / TICK_S)):
            limits = self.throttle.limits_bytes_per_s or (None,) * len(self.read_bytes)
            for index, limit in enumerate(limits):
                wanted = self.wanted_mib_per_s[index] * MIB
                self.read_bytes[index] += TICK_S * min(wanted, limit or wanted)
            self.throttle.update(
                [
                    GroupSample(name="", io_read_bytes=int(read) if self.counted else None)
                    for read in self.read_bytes
                ],
                TICK_S,
                latency_ratio=ratio,
                harmful=harmful,
            )
        return [
            None if limit is None else limit / MIB for limit in self.throttle.limits_bytes_per_s
        ]


def test_nothing_is_limited_unless_it_harms_the_application() -> None:
    assert Disk(400.0, 5.0).run(60.0, ratio=2.0) == [None, None]


def test_what_is_read_is_cut_until_the_danger_is_over() -> None:
    disk = Disk(400.0)
    disk.run(5.0)
    limits = [disk.run(STEP_S, harmful=True, ratio=0.95)[0] for _ in range(4)]
    expected = [400.0 * 0.7**k for k in range(1, 5)]
    assert limits == [pytest.approx(mib, rel=0.1) for mib in expected]
    assert disk.run(10.0, ratio=0.8) == [limits[-1]], "neither danger nor calm"


def test_a_short_danger_changes_nothing() -> None:
    disk = Disk(400.0)
    for _ in range(10):
        disk.run(3.0)
        assert disk.run(STEP_S - TICK_S, harmful=True, ratio=1.5) == [None]


def test_it_is_cut_faster_while_the_target_is_missed() -> None:
    near, missed = Disk(400.0), Disk(400.0)
    for disk, ratio in ((near, 0.95), (missed, 1.5)):
        disk.run(5.0)
        disk.run(6.0, harmful=True, ratio=ratio)
    (slow,), (fast,) = near.run(TICK_S, ratio=0.8), missed.run(TICK_S, ratio=0.8)
    assert slow is not None
    assert fast is not None
    assert fast < 0.6 * slow


def test_everybody_may_read_a_little_whatever_happens() -> None:
    disk = Disk(40.0, 30.0)
    disk.run(5.0)
    assert disk.run(120.0, harmful=True, ratio=3.0) == [LEAST_MIB, LEAST_MIB]


def test_a_fast_disk_stays_in_use_a_little() -> None:
    disk = Disk(400.0)
    disk.run(5.0)
    assert disk.run(120.0, harmful=True, ratio=3.0) == [80]


def test_groups_that_read_little_are_not_limited() -> None:
    disk = Disk(400.0, 5.0)
    assert disk.run(20.0, harmful=True, ratio=0.95)[1] is None


def test_the_limit_grows_without_danger_and_is_lifted() -> None:
    disk = Disk(400.0)
    disk.run(5.0)
    disk.run(10.0, harmful=True, ratio=1.2)
    limits = [disk.run(STEP_S)[0] for _ in range(60)]
    known = [limit for limit in limits if limit is not None]
    assert 10 < len(known) < 60
    assert all(later > earlier for earlier, later in pairwise(known))
    assert limits[-1] is None
    assert disk.run(60.0) == [None], "it stays away"


def test_who_wants_less_than_its_part_leaves_the_rest_to_others() -> None:
    disk = Disk(400.0, 40.0)
    disk.run(5.0)
    first, second = disk.run(4.0, harmful=True, ratio=0.95)
    assert first is not None
    assert second is not None
    assert first > second + 20.0
    assert second > 40.0


def test_where_reads_are_not_counted_nothing_is_limited() -> None:
    disk = Disk(400.0)
    disk.counted = False
    assert disk.run(60.0, harmful=True, ratio=2.0) == [None]


def test_other_groups_begin_without_limits() -> None:
    disk = Disk(400.0)
    disk.run(20.0, harmful=True, ratio=0.95)
    disk.wanted_mib_per_s, disk.read_bytes = [400.0, 400.0], [0.0, 0.0]
    disk.throttle.limits_bytes_per_s = ()
    assert disk.run(TICK_S) == [None, None]
