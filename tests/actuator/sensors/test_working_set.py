"""The working-set estimate: synthetic histories with known answers, and a real group."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_names import own_name

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import write_text
from stallward.actuator.kernel.hierarchies import require
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.sensors.readers import ReadApplication
from stallward.actuator.sensors.sampler import Sampler
from stallward.actuator.sensors.working_set import HOLD_S, RefaultCounters, WorkingSet
from stallward.agent.sample import GroupSample, SlotState

MIB_PAGES = 256


def feed(
    estimate: WorkingSet,
    start_s: float,
    seconds: float,
    *,
    usage: int,
    rate: int = 0,
    away: int | None = None,
    swapped: int | None = None,
    evicted_rate: int | None = None,
    grow: int = 0,
) -> float:
    """Update every half second, in MiB and MiB per second; returns the time of the end.

    What is read again comes from swap if ``swapped`` is given, else from files.
    """
    steps = int(seconds * 2)
    before = REFAULTS.get(id(estimate), (0, 0))
    refaults, evicted = before
    for step in range(1, steps + 1):
        refaults += rate * MIB_PAGES // 2
        evicted += (rate if evicted_rate is None else evicted_rate) * MIB_PAGES // 2
        estimate.update(
            RefaultCounters(
                time_s=start_s + step / 2,
                usage_pages=(usage + grow * step) * MIB_PAGES,
                refault_file_pages=0 if swapped is not None else refaults,
                refault_anon_pages=refaults if swapped is not None else 0,
                away_file_pages=None if away is None else away * MIB_PAGES,
                swapped_pages=(swapped or 0) * MIB_PAGES,
                evicted_pages=evicted,
            )
        )
    REFAULTS[id(estimate)] = (refaults, evicted)
    return start_s + steps / 2


REFAULTS: dict[int, tuple[int, int]] = {}


@pytest.fixture(autouse=True)
def fresh() -> None:
    REFAULTS.clear()


def mib(estimate: WorkingSet) -> float | None:
    return None if estimate.pages is None else estimate.pages / MIB_PAGES


def test_idle_memory_is_no_evidence() -> None:
    estimate = WorkingSet()
    feed(estimate, 0, 60, usage=500)
    assert mib(estimate) is None


def test_a_loop_over_more_than_fits_needs_its_memory_and_its_evicted_pages() -> None:
    estimate = WorkingSet()
    feed(estimate, 0, 20, usage=60, rate=500, away=40)
    assert mib(estimate) == 100


def test_without_a_count_of_evicted_pages_it_is_at_most_twice_the_usage() -> None:
    estimate = WorkingSet()
    feed(estimate, 0, 20, usage=60, rate=500)
    assert mib(estimate) == 120


def test_anonymous_pages_are_at_most_those_in_swap() -> None:
    estimate = WorkingSet()
    # Swap readahead reads pages of others on this group's account: its files seem to be away.
    feed(estimate, 0, 20, usage=300, rate=50, swapped=60, away=100)
    assert mib(estimate) == 360


def test_file_pages_count_that_come_back_beside_those_in_swap() -> None:
    estimate = WorkingSet()
    for step in range(40):
        counters = RefaultCounters(
            time_s=step / 2,
            usage_pages=200 * MIB_PAGES,
            refault_file_pages=3 * step * MIB_PAGES,
            refault_anon_pages=2 * step * MIB_PAGES,
            away_file_pages=500 * MIB_PAGES,
            swapped_pages=30 * MIB_PAGES,
        )
        estimate.update(counters)
    assert mib(estimate) == 200 + 3 * 20 + 30


def test_pages_that_are_never_read_again_do_not_count() -> None:
    estimate = WorkingSet()
    feed(estimate, 0, 20, usage=60, rate=2, away=5000, evicted_rate=3)
    assert mib(estimate) == pytest.approx(60 + 2 * 10, abs=2)


def test_reclaim_that_is_not_missed_is_no_evidence() -> None:
    estimate = WorkingSet()
    feed(estimate, 0, 20, usage=60, rate=2, away=5000, evicted_rate=100)
    assert mib(estimate) is None


def test_usage_that_grows_after_the_refaults_says_nothing() -> None:
    estimate = WorkingSet()
    now_s = feed(estimate, 0, 20, usage=60, rate=500, away=40)
    now_s = feed(estimate, now_s, 0.5, usage=100, rate=80, away=0)
    feed(estimate, now_s, 30, usage=100, away=0, grow=10)
    assert mib(estimate) is not None
    assert 100 <= (mib(estimate) or 0) <= 140


def test_old_evidence_is_forgotten() -> None:
    estimate = WorkingSet()
    now_s = feed(estimate, 0, 20, usage=60, rate=500, away=40)
    now_s = feed(estimate, now_s, HOLD_S - 5, usage=500, away=40)
    assert mib(estimate) == 100
    now_s = feed(estimate, now_s, 10, usage=500, away=40)
    assert mib(estimate) is None
    # What stayed away all that time is not wanted; what is evicted from now on may be.
    feed(estimate, now_s, 20, usage=50, rate=100, away=70)
    assert mib(estimate) == 80


def test_a_new_group_of_the_same_name_starts_anew() -> None:
    estimate = WorkingSet()
    feed(estimate, 0, 20, usage=60, rate=500, away=40)
    estimate.update(RefaultCounters(time_s=21, usage_pages=10, refault_file_pages=0))
    assert mib(estimate) is None


LOOP = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(fd).st_size
while True:
    for offset in range(0, size, 1 << 20):
        os.pread(fd, 1 << 20, offset)
"""
LOOP_MIB = 100


@pytest.fixture
def groups() -> Iterator[tuple[Cgroup, Cgroup]]:
    """A zone and a group in it, removed at the end."""
    zone = require(Paths()).group(f"{own_name()}-ws")
    group = zone.child("loop")
    group.create()
    zone.child("app").create()
    yield zone, group
    zone.kill()
    zone.remove()


def _limit(group: Cgroup, limit: int | None) -> None:
    assert group.memory_dir is not None
    v2 = group.hierarchy.kind == "v2"
    name = "memory.max" if v2 else "memory.limit_in_bytes"
    write_text(group.memory_dir / name, ("max" if v2 else "-1") if limit is None else str(limit))


def _watch(sampler: Sampler, seconds: float) -> list[GroupSample]:
    samples = []
    for sequence in range(int(seconds * 10)):
        samples.append(sampler.read(sequence, (SlotState(),)).slots[0])
        time.sleep(0.1)
    return samples


@pytest.mark.live
def test_a_real_loop_is_estimated_within_a_tenth(
    groups: tuple[Cgroup, Cgroup], tmp_path: Path
) -> None:
    zone, group = groups
    data = Path("/var/tmp") / f"{own_name()}.bin"
    data.write_bytes(os.urandom(LOOP_MIB << 20))
    fd = os.open(data, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    _limit(group, 60 << 20)
    entries = " ".join(f"echo $$ > {path}/cgroup.procs;" for path in group.dirs)
    script = f'{entries} exec {sys.executable} -c "$0" {data}'
    sampler = Sampler(
        paths=Paths(),
        hierarchy=group.hierarchy,
        zone=zone,
        applications=[ReadApplication(target=zone.child("app"))],
        slots=(group,),
    )
    try:
        with subprocess.Popen(["sh", "-c", script, LOOP]) as process:
            try:
                limited = _watch(sampler, 4)
                _limit(group, None)
                free = _watch(sampler, 2)
            finally:
                process.kill()
    finally:
        sampler.close()
        data.unlink()
    # What the interpreter itself needs comes on top of the loop.
    own = max((sample.anon_bytes or 0) for sample in limited) + (4 << 20)
    wanted = (LOOP_MIB << 20) + own
    for sample in (*limited[-10:], free[-1]):
        assert sample.working_set_bytes == pytest.approx(wanted, rel=0.1)
    assert (free[-1].memory_usage_bytes or 0) > LOOP_MIB << 20, "it has what it wants"


def test_pages_evicted_before_the_first_refault_count_on_a_machine_long_up() -> None:
    estimate = WorkingSet()
    now_s = feed(estimate, 10_000.0, 5, usage=96, away=72)
    feed(estimate, now_s, 10, usage=96, away=72, rate=40)
    assert estimate.pages == (96 + 72) * MIB_PAGES
