"""The limits on what the background reads and writes while the application waits for the disk."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stallward.agent.desired import MIB
from stallward.agent.sample import GroupSample
from stallward.agent.sharing.throttle import STEP_S, Throttle, ThrottleThresholds

TICK_S = 0.1
TURN_TICKS = 10
"""As on a node, where these counters are read once in ten ticks."""
LEAST_MIB = 16


class Disk:
    """Groups that read as fast as they want or may."""

    def __init__(self, *wanted_mib_per_s: float) -> None:
        thresholds = ThrottleThresholds(least_disk_mib_s=LEAST_MIB, disk_growth_s=30.0)
        self.throttle = Throttle(thresholds)
        self.wanted_mib_per_s = list(wanted_mib_per_s)
        self.read_bytes = [0.0 for _ in wanted_mib_per_s]
        self.written_bytes = 0
        self.counted, self.in_force = [True for _ in wanted_mib_per_s], True
        self.ticks = 0
        self.groups: list[GroupSample] = []

    def run(
        self,
        seconds: float,
        *,
        harmful: bool = False,
        in_danger: bool | None = None,
        ratio: float | None = 0.5,
    ) -> list[float | None]:
        """The limits after some time, in MiB/s."""
        for _ in range(round(seconds / TICK_S)):
            self._tick(harmful=harmful, in_danger=in_danger, ratio=ratio)
        return [
            None if limit is None else limit / MIB for limit in self.throttle.limits_bytes_per_s
        ]

    def _tick(self, *, harmful: bool, in_danger: bool | None, ratio: float | None) -> None:
        limits = self.throttle.limits_bytes_per_s or (None,) * len(self.read_bytes)
        for index, limit in enumerate(limits):
            wanted = self.wanted_mib_per_s[index] * MIB
            allowed = limit if limit and self.in_force else wanted
            self.read_bytes[index] += TICK_S * min(wanted, allowed)
        time_s = TICK_S * self.ticks
        if self.ticks % TURN_TICKS == 0 or len(self.groups) != len(limits):
            self.groups = [
                GroupSample(
                    name="",
                    io_read_bytes=int(read) if counted else None,
                    io_written_bytes=self.written_bytes if counted else None,
                    turn_read_s=time_s,
                )
                for read, counted in zip(self.read_bytes, self.counted, strict=True)
            ]
        self.ticks += 1
        self.throttle.update(
            self.groups,
            time_s,
            TICK_S,
            latency_ratio=ratio,
            in_danger=harmful if in_danger is None else in_danger,
            harmful=harmful,
        )


def test_nothing_is_limited_unless_it_harms_the_application() -> None:
    assert Disk(400.0, 5.0).run(60.0, ratio=2.0) == [None, None]


def test_what_is_read_is_cut_until_the_danger_is_over() -> None:
    disk = Disk(400.0)
    disk.run(5.0)
    limits = [disk.run(STEP_S, harmful=True, ratio=0.95)[0] for _ in range(4)]
    assert limits == [pytest.approx(400.0 * 0.7**k, abs=1.0) for k in range(1, 5)]


def test_a_short_danger_changes_nothing() -> None:
    disk = Disk(400.0)
    for _ in range(10):
        disk.run(4.0 * STEP_S)
        assert disk.run(STEP_S - TICK_S, harmful=True, ratio=1.5) == [None]


def test_danger_that_comes_again_and_again_counts() -> None:
    disk = Disk(400.0)
    disk.run(5.0)
    for _ in range(5):
        disk.run(1.0, harmful=True, ratio=1.2)
        disk.run(2.0, ratio=0.8)
    assert disk.throttle.limits_bytes_per_s != (None,)


def test_it_is_cut_faster_while_the_target_is_missed() -> None:
    near, missed = Disk(400.0), Disk(400.0)
    for disk, ratio in ((near, 0.95), (missed, 1.5)):
        disk.run(5.0)
        disk.run(4.0, harmful=True, ratio=ratio)
    (slow,), (fast,) = near.run(TICK_S), missed.run(TICK_S)
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


def test_writes_count_as_well() -> None:
    disk = Disk(0.0)
    for _ in range(100):
        disk.written_bytes += 200 * MIB
        disk.run(1.0, harmful=True, ratio=0.95)
    assert disk.throttle.limits_bytes_per_s[0] is not None


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


def test_near_the_target_it_grows_slowly_and_never_at_once() -> None:
    near, calm = Disk(400.0), Disk(400.0)
    for disk in (near, calm):
        disk.run(5.0)
        disk.run(20.0, harmful=True, ratio=1.2)
    (after_near,), (after_calm,) = near.run(20.0, ratio=0.8), calm.run(20.0, ratio=0.5)
    assert after_near is not None
    assert after_calm is not None
    assert 80 < after_near < 110 < after_calm
    (next_step,) = near.run(STEP_S, ratio=0.5)
    assert next_step == pytest.approx(after_near * 1.07, rel=0.02), "not for all the time before"
    near.run(4 * 3600.0, ratio=0.8)
    assert near.run(STEP_S) == [None], "hours change nothing"


def test_it_stands_while_the_application_lacks_memory() -> None:
    disk = Disk(400.0)
    disk.run(5.0)
    before = disk.run(10.0, harmful=True, ratio=1.2)
    assert disk.run(60.0, in_danger=True, ratio=1.2) == before


def test_a_limit_that_is_not_in_force_is_not_cut_again() -> None:
    """On a node without the lever, and while another controller decides."""
    disk = Disk(400.0)
    disk.in_force = False
    disk.run(5.0)
    (limit,) = disk.run(60.0, harmful=True, ratio=0.95)
    assert limit is not None
    assert limit > 190, "two cuts may come before that is seen"


def test_when_everything_is_released_it_begins_anew() -> None:
    disk = Disk(400.0)
    disk.run(5.0)
    disk.run(20.0, harmful=True, ratio=1.5)
    disk.throttle.release()
    assert disk.run(1.0) == [None]
    (first,) = disk.run(3.0, harmful=True, ratio=0.95)
    assert first == pytest.approx(280.0, rel=0.15)


def test_who_wants_less_than_its_part_leaves_the_rest_to_others() -> None:
    disk = Disk(400.0, 40.0)
    disk.run(5.0)
    first, second = disk.run(4.0, harmful=True, ratio=0.95)
    assert first is not None
    assert second is not None
    assert first > second + 20.0
    assert second > 40.0


def test_where_nothing_is_counted_nothing_is_limited() -> None:
    disk = Disk(400.0)
    disk.counted = [False]
    assert disk.run(60.0, harmful=True, ratio=2.0) == [None]


def test_a_group_that_is_gone_takes_no_part() -> None:
    """Its last rate would stay above its limit, and no limit would ever be cut again."""
    disk, alone = Disk(400.0, 200.0), Disk(200.0)
    for one in (disk, alone):
        one.run(5.0)
    disk.counted[0] = False
    for one in (disk, alone):
        one.run(5.0)
    limits = disk.run(20.0, harmful=True, ratio=1.5)
    assert limits == [None, *alone.run(20.0, harmful=True, ratio=1.5)]
    assert limits[1] is not None


def test_a_group_that_comes_again_is_measured_from_then_on() -> None:
    disk = Disk(400.0)
    disk.run(5.0)
    disk.counted = [False]
    disk.run(5.0)
    disk.counted, disk.read_bytes = [True], [0.0]
    disk.run(5.0)
    assert disk.run(3.0, harmful=True, ratio=0.95) == [pytest.approx(280.0, abs=1.0)]


def test_other_groups_begin_without_limits() -> None:
    disk = Disk(400.0)
    disk.run(20.0, harmful=True, ratio=0.95)
    disk.wanted_mib_per_s, disk.read_bytes = [400.0, 400.0], [0.0, 0.0]
    disk.counted = [True, True]
    disk.throttle.limits_bytes_per_s = ()
    assert disk.run(TICK_S) == [None, None]
